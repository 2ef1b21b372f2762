-- The seeds' functions over the installation's token. The database never has a token in clear text: `access_token` is 'sealed:v2:' and, in
-- base64, the byte 1, the id of the key (4 bytes), a nonce of 12 bytes and the token encrypted by AES-256-GCM with that key of
-- WERKRUF_SECRET_KEY (additional data 'amadeus/<environment>').
-- Only a holder of the key can use it. The functions run with the rights of the caller, so they show no more than the table.

-- {access_token, token_type, expires_at}; expires_at in milliseconds since 1970, as the seeds compare it. Null where no token is stored.
CREATE OR REPLACE FUNCTION get_amadeus_token_for_api(p_environment text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT jsonb_build_object('access_token', 'sealed:v2:' || translate(encode(sealed, 'base64'), E'\n', ''), 'token_type', 'Bearer',
    'expires_at', floor(extract(epoch FROM expires_at) * 1000)::bigint)
  FROM provider_tokens
  WHERE tenant_id = '00000000-0000-0000-0000-000000000000' AND provider = 'amadeus' AND account = p_environment
    AND expires_at IS NOT NULL
$$;

-- Replaces the stored token. A token that is not sealed is refused: it would be readable in the table and in every backup.
CREATE OR REPLACE FUNCTION store_amadeus_token_secure(p_access_token text, p_token_type text, p_expires_in integer, p_environment text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  the_time constant timestamptz := date_trunc('milliseconds', clock_timestamp());
  the_bytes bytea;
BEGIN
  IF p_access_token IS NULL OR NOT starts_with(p_access_token, 'sealed:v2:') THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'p_access_token is not sealed; seal it with WERKRUF_SECRET_KEY';
  END IF;
  the_bytes := decode(substr(p_access_token, 11), 'base64');
  IF length(the_bytes) <= 33 OR get_byte(the_bytes, 0) <> 1 THEN
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
