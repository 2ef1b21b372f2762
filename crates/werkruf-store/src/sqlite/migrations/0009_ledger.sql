-- Calls counted against a provider's day, and provider answers kept for a while.
-- `tenant_id` is the nil id where a row belongs to the installation.
CREATE TABLE provider_quota (
  tenant_id TEXT NOT NULL,
  provider  TEXT NOT NULL,
  account   TEXT NOT NULL,
  day       TEXT NOT NULL,
  used      INTEGER NOT NULL,
  -- The latest call the provider has said something about, and the most calls that leaves for the day.
  told_by   INTEGER NOT NULL DEFAULT 0,
  ceiling   INTEGER,
  PRIMARY KEY (tenant_id, provider, account, day)
) STRICT;

CREATE TABLE provider_answers (
  tenant_id  TEXT NOT NULL,
  digest     TEXT NOT NULL,
  answer     TEXT NOT NULL,
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, digest)
) STRICT;
CREATE INDEX provider_answers_by_end ON provider_answers (expires_at);
