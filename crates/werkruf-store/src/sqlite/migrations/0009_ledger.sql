-- Calls counted against a provider's day, provider answers kept for a while, and who is fetching a token.
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

-- Who is fetching a token, so that others wait for it.
CREATE TABLE provider_claims (
  tenant_id  TEXT NOT NULL,
  provider   TEXT NOT NULL,
  account    TEXT NOT NULL,
  owner      TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
) STRICT;
