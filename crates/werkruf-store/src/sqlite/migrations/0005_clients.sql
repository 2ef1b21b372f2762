-- What a client of the OpenAI doors brought with its turn, and what it has seen after it.
ALTER TABLE turns ADD COLUMN client TEXT;
ALTER TABLE turns ADD COLUMN seen TEXT;
CREATE INDEX turns_by_sight ON turns (tenant_id, user_id, seen) WHERE seen IS NOT NULL;
CREATE INDEX messages_awaited ON messages (tenant_id, tool_call_id) WHERE status = 'pending';
