-- Alerts. The unique index decides which of several processes tells; the notifications are written by that one.

-- Opens an alert, with what is sent about it. False where it is open, or was told once. An attempt whose answer was lost finds its own id.
CREATE OR REPLACE FUNCTION open_alert(doc jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
BEGIN
  INSERT INTO alerts (tenant_id, id, kind, subject, once, source, detail, opened_at, seen_at)
  VALUES (the_tenant, (doc ->> 'id')::uuid, doc ->> 'kind', doc ->> 'subject', (doc ->> 'once')::boolean, doc ->> 'source',
    (doc ->> 'detail')::json, the_time, the_time)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN EXISTS (SELECT 1 FROM alerts WHERE tenant_id = the_tenant AND id = (doc ->> 'id')::uuid); END IF;
  PERFORM put_outbox(the_tenant, the_time, doc -> 'rows');
  RETURN true;
END
$$;

-- Ends an open alert, with what is sent about its end. False where it has ended.
CREATE OR REPLACE FUNCTION resolve_alert(the_tenant uuid, the_id uuid, the_time timestamptz, items jsonb, is_retry boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE alerts SET resolved_at = the_time, seen_at = the_time
  WHERE tenant_id = the_tenant AND id = the_id AND resolved_at IS NULL AND NOT once;
  IF NOT FOUND THEN
    RETURN is_retry AND EXISTS (SELECT 1 FROM alerts WHERE tenant_id = the_tenant AND id = the_id AND resolved_at = the_time);
  END IF;
  PERFORM put_outbox(the_tenant, the_time, items);
  RETURN true;
END
$$;
