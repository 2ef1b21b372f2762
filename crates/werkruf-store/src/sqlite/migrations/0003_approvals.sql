-- More than one role may decide; and the ways in: by turn, by time, by what still waits.
ALTER TABLE approvals RENAME COLUMN approver_role TO approver_roles;
CREATE INDEX approvals_by_turn ON approvals (tenant_id, turn_id);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
