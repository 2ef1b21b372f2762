-- The first schema of the flight search: calls counted against a provider's daily quota, and cached answers of providers.
-- tenant_id is the nil id where a row belongs to the installation.

-- reported_by: the latest call whose response named the quota. ceiling: the most calls of the day according to that response.
CREATE TABLE provider_quota (
  tenant_id TEXT NOT NULL,
  provider  TEXT NOT NULL,
  account   TEXT NOT NULL,
  day       TEXT NOT NULL,
  used      INTEGER NOT NULL,
  reported_by INTEGER NOT NULL DEFAULT 0,
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
