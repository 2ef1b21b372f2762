-- A message that a restored backup would send again waits for the operator's word: it is held, and no longer due.
ALTER TABLE outbox ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (next_at) WHERE status IN ('pending', 'sending') AND held = 0;
