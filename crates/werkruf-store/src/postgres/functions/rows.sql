-- Rows of a turn, written from JSON documents. Values that are JSON come as texts, because a null inside a document would be no value.

-- Messages without a seq whose turn has ended get theirs from first_seq on, oldest first; only those before own, where it is given.
CREATE OR REPLACE FUNCTION place_ended_messages(the_tenant uuid, the_conversation uuid, own uuid, first_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  placed bigint;
BEGIN
  UPDATE messages SET seq = first_seq + waiting.n - 1 FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS n FROM messages AS m
    WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq IS NULL AND (own IS NULL OR id < own)
      AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = m.turn_id AND turns.finished_at IS NOT NULL)
  ) AS waiting
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation AND messages.id = waiting.id;
  GET DIAGNOSTICS placed = ROW_COUNT;
  RETURN placed;
END
$$;

CREATE OR REPLACE FUNCTION put_events(the_tenant uuid, the_stream uuid, the_turn uuid, the_time timestamptz, items jsonb, first_seq bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (conversation_id, seq, tenant_id, turn_id, type, data, created_at)
  SELECT the_stream, first_seq + n - 1, the_tenant, the_turn, item ->> 'type', (item ->> 'data')::json, the_time
  FROM jsonb_array_elements(items) WITH ORDINALITY AS list (item, n);
END
$$;

-- first_seq is null while the messages wait for their turn to start.
CREATE OR REPLACE FUNCTION put_messages(the_tenant uuid, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb, first_seq bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name, status,
    metadata, seq, turn_id, tokens)
  SELECT (item ->> 'id')::uuid, the_tenant, the_time, the_conversation, item ->> 'content', item ->> 'role', (item ->> 'tool_calls')::jsonb,
    item ->> 'tool_call_id', item ->> 'tool_name', item ->> 'status', coalesce((item ->> 'metadata')::jsonb, '{}'), first_seq + n - 1,
    the_turn, (item ->> 'tokens')::bigint
  FROM jsonb_array_elements(items) WITH ORDINALITY AS list (item, n);
END
$$;

-- The conversation has new messages. A turn says so when it begins and when it ends or waits, not at every step: the row is large when its
-- state is. A clock that is behind does not move the time back.
CREATE OR REPLACE FUNCTION touch_conversation(the_tenant uuid, the_conversation uuid, the_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE conversations SET updated_at = the_time WHERE tenant_id = the_tenant AND id = the_conversation AND updated_at < the_time;
END
$$;

CREATE OR REPLACE FUNCTION put_calls(items jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tool_calls (id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, runner, tool_name, call_id, item_id,
    status, request, raw_arguments, repairs, response, error, error_type, error_code, error_detail, effect, attempt, cache_hit,
    dedupe_key, dedupe_of, retry_of, idempotency_key, permission, context, trace_id, run_id, ingestion_run_id, workflow_id, case_id,
    meta, taint, created_at, updated_at, started_at, finished_at)
  SELECT id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, runner, tool_name, call_id, item_id,
    status, request::jsonb, raw_arguments, repairs::jsonb, response::jsonb, error, error_type, error_code, error_detail::jsonb, effect,
    attempt, cache_hit, dedupe_key, dedupe_of, retry_of, idempotency_key, permission::json, context::json, trace_id, run_id,
    ingestion_run_id, workflow_id, case_id, meta::json, taint::json, created_at, updated_at, started_at, finished_at
  FROM jsonb_to_recordset(items) AS c (id uuid, tenant_id uuid, conversation_id uuid, turn_id uuid, step bigint, output_index bigint,
    response_id text, kind text, runner text, tool_name text, call_id text, item_id text, status text, request text, raw_arguments text,
    repairs text, response text, error text, error_type text, error_code text, error_detail text, effect text, attempt bigint,
    cache_hit boolean, dedupe_key text, dedupe_of uuid, retry_of uuid, idempotency_key text, permission text, context text,
    trace_id text, run_id text, ingestion_run_id text, workflow_id text, case_id text, meta text, taint text, created_at timestamptz,
    updated_at timestamptz, started_at timestamptz, finished_at timestamptz);
END
$$;

CREATE OR REPLACE FUNCTION put_approvals(the_tenant uuid, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO approvals (tenant_id, id, conversation_id, turn_id, call_id, tool_name, server_label, arguments, arguments_digest, approver_roles,
    taint, asked_by, asked_key, retried_by, status, created_at, expires_at)
  SELECT the_tenant, id, the_conversation, the_turn, call_id, tool_name, server_label, arguments::json, arguments_digest, approver_roles::json, taint::json,
    asked_by, asked_key, retried_by, 'pending', the_time, expires_at
  FROM jsonb_to_recordset(items) AS a (id uuid, call_id uuid, tool_name text, server_label text, arguments text, arguments_digest text,
    approver_roles text, taint text, asked_by text, asked_key text, retried_by text, expires_at timestamptz);
END
$$;

CREATE OR REPLACE FUNCTION merge_state(the_tenant uuid, the_conversation uuid, patches jsonb, the_time timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  merged jsonb;
  patch jsonb;
BEGIN
  SELECT state INTO merged FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  FOR patch IN SELECT item FROM jsonb_array_elements(patches) WITH ORDINALITY AS list (item, n) ORDER BY n LOOP
    -- A null removes its field, on the first level only.
    merged := (merged || patch) - ARRAY(SELECT key FROM jsonb_each(patch) WHERE value = 'null'::jsonb);
  END LOOP;
  UPDATE conversations SET state = merged, updated_at = greatest(updated_at, the_time) WHERE tenant_id = the_tenant AND id = the_conversation;
  RETURN merged;
END
$$;

-- The bytes of a value as JSON without spaces. PostgreSQL writes one after every comma and every colon.
CREATE OR REPLACE FUNCTION json_bytes(whole jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT octet_length(whole::text) - coalesce(sum(CASE jsonb_typeof(part)
    WHEN 'array' THEN greatest(jsonb_array_length(part) - 1, 0)
    WHEN 'object' THEN greatest(2 * (SELECT count(*) FROM jsonb_object_keys(part)) - 1, 0)
    ELSE 0 END), 0)::bigint
  FROM jsonb_path_query(whole, 'strict $.**') AS part
$$;

-- Merges a patch from outside a turn. A patch may not make the state larger than allowed.
CREATE OR REPLACE FUNCTION patch_state(the_tenant uuid, the_conversation uuid, patches jsonb, max_bytes bigint, the_time timestamptz) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  before jsonb;
  merged jsonb;
BEGIN
  SELECT state INTO before FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation FOR UPDATE;
  merged := merge_state(the_tenant, the_conversation, patches, the_time);
  IF octet_length(merged::text) > max_bytes AND json_bytes(merged) > greatest(max_bytes, json_bytes(before)) THEN
    RAISE EXCEPTION USING ERRCODE = 'WK004', MESSAGE = 'state too large';
  END IF;
  RETURN merged;
END
$$;

-- The results that a client sends replace the pending messages; a call without a result is canceled. Only turns that have ended wait for a
-- client; a copied or imported call belongs to no turn.
CREATE OR REPLACE FUNCTION put_client_results(the_tenant uuid, the_conversation uuid, results jsonb, unanswered text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND status = 'pending' LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE messages SET content = result ->> 'content', status = result ->> 'status', tokens = NULL,
    metadata = coalesce((result ->> 'metadata')::jsonb, metadata)
  FROM jsonb_array_elements(coalesce(results, '[]')) AS result
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation
    AND messages.tool_call_id = result ->> 'tool_call_id' AND messages.status = 'pending' AND (messages.turn_id IS NULL OR EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL));
  UPDATE messages SET content = unanswered, status = 'error', tokens = NULL
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation AND messages.status = 'pending' AND (messages.turn_id IS NULL OR EXISTS
    (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL));
END
$$;

-- Token counts of messages, and the summary of the conversation. A count whose message was deleted is ignored.
CREATE OR REPLACE FUNCTION put_history(the_tenant uuid, the_conversation uuid, counted jsonb, new_summary jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE messages SET tokens = (counts.pair ->> 1)::bigint FROM jsonb_array_elements(coalesce(counted, '[]')) AS counts (pair)
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation AND messages.id = (counts.pair ->> 0)::uuid;
  IF new_summary IS NULL THEN RETURN; END IF;
  UPDATE conversations SET summary = new_summary ->> 'text', summary_until = (new_summary ->> 'until')::bigint,
    summary_untrusted = new_summary ->> 'untrusted'
  WHERE tenant_id = the_tenant AND id = the_conversation;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('conversation %s', the_conversation); END IF;
END
$$;

-- Calls start, are retried, get data of the provider, end; each from the status that the change expects.
CREATE OR REPLACE FUNCTION update_calls(doc jsonb, the_tenant uuid, the_turn uuid, the_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  item record;
BEGIN
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'starts') AS s (id uuid, started_at timestamptz) LOOP
    -- A call that waited for another one and now runs itself has no idempotency key yet.
    UPDATE tool_calls SET status = 'running', attempt = 1, started_at = item.started_at, updated_at = the_time, dedupe_of = NULL,
      idempotency_key = coalesce(idempotency_key, id::text)
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status = 'queued';
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'retries') AS r (id uuid, attempt bigint, started_at timestamptz,
    finished_at timestamptz, status text, error text, next_started_at timestamptz) LOOP
    UPDATE tool_calls SET attempt = attempt + 1, started_at = item.next_started_at, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status = 'running' AND attempt = item.attempt;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
    INSERT INTO call_attempts (tenant_id, call_id, attempt, started_at, finished_at, status, error)
    VALUES (the_tenant, item.id, item.attempt, item.started_at, item.finished_at, item.status, item.error::json);
  END LOOP;
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'provider_updates') AS h (id uuid, tool_name text, response_id text, item_id text, call_id text,
    request text, raw_arguments text) LOOP
    UPDATE tool_calls SET tool_name = item.tool_name, response_id = coalesce(item.response_id, response_id),
      item_id = coalesce(item.item_id, item_id), call_id = coalesce(item.call_id, call_id),
      request = coalesce(item.request::jsonb, request), raw_arguments = coalesce(item.raw_arguments, raw_arguments), updated_at = the_time
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status = 'running';
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'ends') AS e (id uuid, status text, response text, meta text, error text,
    error_type text, error_code text, error_detail text, permission text, cache_hit boolean, finished_at timestamptz) LOOP
    UPDATE tool_calls SET status = item.status, response = item.response::jsonb, meta = item.meta::json, error = item.error,
      error_type = item.error_type, error_code = item.error_code, error_detail = item.error_detail::jsonb, cache_hit = item.cache_hit,
      finished_at = item.finished_at, updated_at = the_time, permission = coalesce(item.permission::json, permission)
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status IN ('queued', 'running');
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
  END LOOP;
END
$$;
