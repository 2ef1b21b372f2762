-- Calls outside any conversation that are the same: which of them goes first, before it has a row. A running row speaks for itself.
CREATE TABLE boardings (
  tenant_id  uuid NOT NULL,
  dedupe_key text NOT NULL,
  call_id    uuid NOT NULL,
  boarded_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, dedupe_key)
);
CREATE INDEX boardings_by_age ON boardings (tenant_id, boarded_at);

-- The call that has the flight: the one that asks, one whose row runs, or one that boarded a moment ago.
CREATE FUNCTION board_call(the_tenant uuid, the_key text, the_call uuid, moment interval) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
  leader uuid;
BEGIN
  INSERT INTO boardings (tenant_id, dedupe_key, call_id, boarded_at) VALUES (the_tenant, the_key, the_call, clock_timestamp())
  ON CONFLICT (tenant_id, dedupe_key) DO UPDATE SET call_id = excluded.call_id, boarded_at = excluded.boarded_at
  WHERE boardings.boarded_at < excluded.boarded_at - moment
    OR EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.tenant_id = the_tenant AND tool_calls.id = boardings.call_id AND status <> 'running')
  RETURNING call_id INTO leader;
  IF leader IS NULL THEN
    RETURN (SELECT call_id FROM boardings WHERE tenant_id = the_tenant AND dedupe_key = the_key);
  END IF;
  DELETE FROM boardings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM boardings WHERE tenant_id = the_tenant AND boarded_at < clock_timestamp() - moment * 6
    ORDER BY boarded_at LIMIT 10 FOR UPDATE SKIP LOCKED));
  SELECT id INTO leader FROM tool_calls
  WHERE tenant_id = the_tenant AND dedupe_key = the_key AND status = 'running' ORDER BY created_at LIMIT 1;
  RETURN coalesce(leader, the_call);
END
$$;
