-- What a client had sent with its turn, so that the same request is known again; and what of a conversation waits.
ALTER TABLE turns ADD COLUMN sent TEXT;
CREATE INDEX turns_by_request ON turns (tenant_id, user_id, sent) WHERE sent IS NOT NULL;
CREATE INDEX messages_waiting ON messages (conversation_id) WHERE status = 'pending';
