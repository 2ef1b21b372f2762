-- Calls counted against a provider's day, provider answers kept for a while, and who is fetching a token.
-- `tenant_id` is the nil id where a row belongs to the installation.
CREATE TABLE provider_quota (
  tenant_id uuid NOT NULL,
  provider  text NOT NULL,
  account   text NOT NULL,
  day       date NOT NULL,
  used      bigint NOT NULL,
  -- The latest call the provider has said something about, and the most calls that leaves for the day.
  told_by   bigint NOT NULL DEFAULT 0,
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

CREATE TABLE provider_claims (
  tenant_id  uuid NOT NULL,
  provider   text NOT NULL,
  account    text NOT NULL,
  owner      uuid NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
);

-- The seeds' functions over the installation's token. The database never sees one in the clear: `access_token` is
-- 'sealed:v1:' and, in base64, a nonce of 12 bytes and what AES-256-GCM made of the token with WERKRUF_SECRET_KEY (additional
-- data 'amadeus/<environment>'). Whoever has the key opens it; whoever has not gets a text that is good for nothing.
-- Nobody gets more by a function than by the table: both run with the rights of the caller, behind the walls.

-- {access_token, token_type, expires_at}, the end in milliseconds since 1970 as the seeds compare it; null where none is stored.
CREATE FUNCTION get_amadeus_token_for_api(p_environment text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT jsonb_build_object('access_token', 'sealed:v1:' || translate(encode(sealed, 'base64'), E'\n', ''), 'token_type', 'Bearer',
    'expires_at', floor(extract(epoch FROM expires_at) * 1000)::bigint)
  FROM provider_tokens
  WHERE tenant_id = '00000000-0000-0000-0000-000000000000' AND provider = 'amadeus' AND account = p_environment
    AND expires_at IS NOT NULL
$$;

-- Takes the place of the token that was there. One that is not sealed is refused: it would stand here for every reader and backup.
CREATE FUNCTION store_amadeus_token_secure(p_access_token text, p_token_type text, p_expires_in integer, p_environment text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  the_time constant timestamptz := date_trunc('milliseconds', clock_timestamp());
  the_bytes bytea;
BEGIN
  IF p_access_token IS NULL OR NOT starts_with(p_access_token, 'sealed:v1:') THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'p_access_token is not sealed; seal it with WERKRUF_SECRET_KEY';
  END IF;
  the_bytes := decode(substr(p_access_token, 11), 'base64');
  IF length(the_bytes) <= 28 THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'p_access_token is shorter than anything sealed';
  END IF;
  IF lower(coalesce(p_token_type, 'bearer')) <> 'bearer' OR coalesce(p_expires_in, 0) <= 0 OR coalesce(p_environment, '') = '' THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
      MESSAGE = 'p_token_type must be Bearer, p_expires_in more than 0 seconds, p_environment the name of an environment';
  END IF;
  INSERT INTO provider_tokens (tenant_id, provider, account, sealed, expires_at, created_at, updated_at)
  VALUES ('00000000-0000-0000-0000-000000000000', 'amadeus', p_environment, the_bytes, the_time + make_interval(secs => p_expires_in),
    the_time, the_time)
  ON CONFLICT (tenant_id, provider, account) DO UPDATE
    SET sealed = excluded.sealed, expires_at = excluded.expires_at, updated_at = excluded.updated_at;
END
$$;
