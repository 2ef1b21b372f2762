-- The first schema of the flight search: calls counted against a provider's daily quota, and cached answers of providers.
-- tenant_id is the nil id where a row belongs to the installation.

CREATE TABLE provider_quota (
  tenant_id uuid NOT NULL,
  provider  text NOT NULL,
  account   text NOT NULL,
  day       date NOT NULL,
  used      bigint NOT NULL,
  -- Number of the newest call whose answer said how many calls are left, and the total for the day that follows from it.
  reported_by bigint NOT NULL DEFAULT 0,
  ceiling   bigint,
  PRIMARY KEY (tenant_id, provider, account, day)
);

CREATE TABLE provider_answers (
  tenant_id  uuid NOT NULL,
  digest     text NOT NULL,
  answer     text NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, digest)
);
CREATE INDEX provider_answers_by_end ON provider_answers (expires_at);
