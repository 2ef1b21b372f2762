-- What must be decided inside a transaction: a guard, and what it guards, in one call. They run as whoever calls, behind the walls.
-- Every one that changes a conversation locks its lease first, so that two of them never wait for each other. Texts that are JSON
-- come as texts, because a null inside a document would be no value at all.
-- Own errors: WK001 fenced, WK002 busy, WK003 moved ("what id").

-- Who waits, and who is at work, in one conversation.
CREATE INDEX turns_open_by_conversation ON turns (tenant_id, conversation_id, id) WHERE finished_at IS NULL;

-- Locks the lease of a stream, making it where there is none.
CREATE FUNCTION lock_lease(the_tenant uuid, the_stream uuid) RETURNS leases LANGUAGE plpgsql AS $$
DECLARE
  held leases;
BEGIN
  SELECT * INTO held FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES (the_tenant, the_stream, 0, 1, 1)
    ON CONFLICT (tenant_id, conversation_id) DO NOTHING;
    SELECT * INTO held FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE;
  END IF;
  RETURN held;
END
$$;

-- Messages without a place whose turn has ended get theirs from first_seq on, oldest first; only those before own, where it is given.
CREATE FUNCTION place_left_behind(the_tenant uuid, the_conversation uuid, own uuid, first_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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

CREATE FUNCTION put_events(the_tenant uuid, the_stream uuid, the_turn uuid, the_time timestamptz, items jsonb, first_seq bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (conversation_id, seq, tenant_id, turn_id, type, data, created_at)
  SELECT the_stream, first_seq + n - 1, the_tenant, the_turn, item ->> 'type', (item ->> 'data')::json, the_time
  FROM jsonb_array_elements(items) WITH ORDINALITY AS list (item, n);
END
$$;

-- first_seq is null while they wait.
CREATE FUNCTION put_messages(the_tenant uuid, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb, first_seq bigint)
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

CREATE FUNCTION put_calls(items jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tool_calls (id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, tool_name, call_id, item_id,
    status, request, raw_arguments, repairs, response, error, error_type, error_code, error_detail, effect, attempt, cache_hit,
    dedupe_key, dedupe_of, retry_of, idempotency_key, permission, context, trace_id, run_id, ingestion_run_id, workflow_id, case_id,
    meta, created_at, updated_at, started_at, finished_at)
  SELECT id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, tool_name, call_id, item_id,
    status, request::jsonb, raw_arguments, repairs::jsonb, response::jsonb, error, error_type, error_code, error_detail::jsonb, effect,
    attempt, cache_hit, dedupe_key, dedupe_of, retry_of, idempotency_key, permission::json, context::json, trace_id, run_id,
    ingestion_run_id, workflow_id, case_id, meta::json, created_at, updated_at, started_at, finished_at
  FROM jsonb_to_recordset(items) AS c (id uuid, tenant_id uuid, conversation_id uuid, turn_id uuid, step bigint, output_index bigint,
    response_id text, kind text, tool_name text, call_id text, item_id text, status text, request text, raw_arguments text,
    repairs text, response text, error text, error_type text, error_code text, error_detail text, effect text, attempt bigint,
    cache_hit boolean, dedupe_key text, dedupe_of uuid, retry_of uuid, idempotency_key text, permission text, context text,
    trace_id text, run_id text, ingestion_run_id text, workflow_id text, case_id text, meta text, created_at timestamptz,
    updated_at timestamptz, started_at timestamptz, finished_at timestamptz);
END
$$;

CREATE FUNCTION put_approvals(the_tenant uuid, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO approvals (tenant_id, id, conversation_id, turn_id, call_id, tool_name, arguments, arguments_digest, approver_roles,
    asked_by, status, created_at, expires_at)
  SELECT the_tenant, id, the_conversation, the_turn, call_id, tool_name, arguments::json, arguments_digest, approver_roles::json,
    asked_by, 'pending', the_time, expires_at
  FROM jsonb_to_recordset(items) AS a (id uuid, call_id uuid, tool_name text, arguments text, arguments_digest text,
    approver_roles text, asked_by text, expires_at timestamptz);
END
$$;

CREATE FUNCTION merge_state(the_tenant uuid, the_conversation uuid, patches jsonb, the_time timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  merged jsonb;
  patch jsonb;
BEGIN
  SELECT state INTO merged FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  FOR patch IN SELECT item FROM jsonb_array_elements(patches) WITH ORDINALITY AS list (item, n) ORDER BY n LOOP
    -- A null takes its field away, on the first level only.
    merged := (merged || patch) - ARRAY(SELECT key FROM jsonb_each(patch) WHERE value = 'null'::jsonb);
  END LOOP;
  UPDATE conversations SET state = merged, updated_at = the_time WHERE tenant_id = the_tenant AND id = the_conversation;
  RETURN merged;
END
$$;

-- The results a client sends take their places; what it leaves unanswered is canceled. Only turns that have ended wait for a client.
CREATE FUNCTION settle_results(the_tenant uuid, the_conversation uuid, results jsonb, unanswered text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND status = 'pending' LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE messages SET content = result ->> 'content', status = result ->> 'status', tokens = NULL
  FROM jsonb_array_elements(coalesce(results, '[]')) AS result
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation
    AND messages.tool_call_id = result ->> 'tool_call_id' AND messages.status = 'pending' AND EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL);
  UPDATE messages SET content = unanswered, status = 'error', tokens = NULL
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation AND messages.status = 'pending' AND EXISTS
    (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL);
END
$$;

-- Commit A. outcome: stored, duplicate, unknown, gone_on.
CREATE FUNCTION open_turn(doc jsonb, ttl interval, again boolean,
  OUT outcome text, OUT claimed bigint, OUT first_event bigint, OUT found_state jsonb, OUT found_assistant text,
  OUT known_turn uuid, OUT known_fingerprint text)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_turn constant uuid := (doc ->> 'turn_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  the_conversation constant uuid := (doc ->> 'conversation_id')::uuid;
  the_stream constant uuid := coalesce(the_conversation, the_turn);
  existing constant boolean := (doc ->> 'existing')::boolean;
  entry constant jsonb := doc -> 'inbox';
  event_count constant bigint := jsonb_array_length(doc -> 'events');
  message_count constant bigint := jsonb_array_length(doc -> 'messages');
  starts boolean := (doc ->> 'start')::boolean;
  held leases;
  begin_at bigint := 1;
BEGIN
  IF again THEN
    SELECT s.* INTO outcome, claimed, first_event, found_state, found_assistant FROM opened_before(doc) AS s;
    IF outcome IS NOT NULL THEN RETURN; END IF;
  END IF;
  IF existing THEN
    SELECT state, assistant INTO found_state, found_assistant FROM conversations
    WHERE tenant_id = the_tenant AND id = the_conversation AND ((doc ->> 'any_user')::boolean OR user_id = doc ->> 'user_id');
    IF FOUND THEN
      held := lock_lease(the_tenant, the_stream);
      begin_at := held.next_message_seq;
      -- Its own turn may be among them when the first try was not heard of.
      IF doc ? 'after' AND (doc ->> 'after')::uuid IS DISTINCT FROM
        (SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation ORDER BY id DESC LIMIT 1)
      THEN outcome := 'gone_on'; END IF;
    ELSE
      outcome := 'unknown';
    END IF;
    IF outcome IS NOT NULL THEN
      -- A second copy is answered as such even where the conversation is out of reach by now.
      SELECT turn_id, fingerprint INTO known_turn, known_fingerprint FROM inbox
      WHERE tenant_id = the_tenant AND channel = entry ->> 'channel' AND account = entry ->> 'account'
        AND external_id = entry ->> 'external_id' AND expires_at > the_time;
      IF FOUND THEN outcome := 'duplicate'; END IF;
    END IF;
  END IF;
  IF outcome IS NULL AND entry IS NOT NULL THEN
    INSERT INTO inbox (tenant_id, channel, account, external_id, fingerprint, turn_id, created_at, expires_at)
    VALUES (the_tenant, entry ->> 'channel', entry ->> 'account', entry ->> 'external_id', entry ->> 'fingerprint', the_turn, the_time,
      (entry ->> 'expires_at')::timestamptz)
    ON CONFLICT (tenant_id, channel, account, external_id) DO UPDATE SET fingerprint = excluded.fingerprint, turn_id = excluded.turn_id,
      created_at = excluded.created_at, expires_at = excluded.expires_at
    WHERE inbox.expires_at <= excluded.created_at;
    IF NOT FOUND THEN
      outcome := 'duplicate';
      SELECT turn_id, fingerprint INTO known_turn, known_fingerprint FROM inbox
      WHERE tenant_id = the_tenant AND channel = entry ->> 'channel' AND account = entry ->> 'account'
        AND external_id = entry ->> 'external_id';
    END IF;
  END IF;
  IF known_turn = the_turn THEN
    SELECT s.* INTO outcome, claimed, first_event, found_state, found_assistant FROM opened_before(doc) AS s;
    known_turn := NULL;
  END IF;
  IF outcome IS NOT NULL THEN RETURN; END IF;

  IF NOT existing AND the_conversation IS NOT NULL THEN
    INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
    VALUES (the_conversation, the_tenant, doc ->> 'user_id', doc ->> 'channel', doc ->> 'assistant', doc ->> 'title', '{}', the_time, the_time);
  END IF;
  -- Nothing may come between a call and its result, and nobody comes before one who waits longer.
  starts := starts AND (NOT existing OR held.owner IS NULL AND NOT EXISTS
    (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL AND status = 'accepted'));
  IF NOT starts AND doc ? 'calls' THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  IF existing THEN
    IF starts THEN begin_at := begin_at + place_left_behind(the_tenant, the_conversation, NULL, begin_at); END IF;
    UPDATE leases SET next_event_seq = next_event_seq + event_count,
      next_message_seq = CASE WHEN starts THEN begin_at + message_count ELSE next_message_seq END,
      epoch = CASE WHEN starts THEN epoch + 1 ELSE epoch END, owner = CASE WHEN starts THEN doc ->> 'owner' ELSE owner END,
      expires_at = CASE WHEN starts THEN clock_timestamp() + ttl ELSE expires_at END
    WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch, next_event_seq - event_count INTO claimed, first_event;
  ELSE
    INSERT INTO leases (tenant_id, conversation_id, owner, epoch, next_event_seq, next_message_seq, expires_at)
    VALUES (the_tenant, the_stream, CASE WHEN starts THEN doc ->> 'owner' END, starts::int, 1 + event_count,
      CASE WHEN starts THEN 1 + message_count ELSE 1 END, CASE WHEN starts THEN clock_timestamp() + ttl END)
    RETURNING epoch, 1 INTO claimed, first_event;
  END IF;
  IF NOT starts THEN claimed := NULL; END IF;
  INSERT INTO turns (id, tenant_id, conversation_id, user_id, kind, assistant, key_id, status, created_at, updated_at, client, sent)
  VALUES (the_turn, the_tenant, the_conversation, doc ->> 'user_id', doc ->> 'kind', doc ->> 'assistant', (doc ->> 'key_id')::uuid,
    CASE WHEN NOT starts THEN 'accepted' WHEN doc ? 'calls' AND doc ->> 'kind' <> 'chat' THEN 'acting' ELSE 'planning' END,
    the_time, the_time, (doc ->> 'client')::json, doc ->> 'sent');
  IF doc ? 'unanswered' AND existing THEN
    PERFORM settle_results(the_tenant, the_conversation, doc -> 'results', doc ->> 'unanswered');
  END IF;
  IF message_count > 0 THEN
    PERFORM put_messages(the_tenant, the_conversation, the_turn, the_time, doc -> 'messages', CASE WHEN starts THEN begin_at END);
  END IF;
  IF doc ? 'calls' THEN PERFORM put_calls(doc -> 'calls'); END IF;
  IF doc ? 'approvals' THEN PERFORM put_approvals(the_tenant, the_conversation, the_turn, the_time, doc -> 'approvals'); END IF;
  PERFORM put_events(the_tenant, the_stream, the_turn, the_time, doc -> 'events', first_event);
  outcome := 'stored';
END
$$;

-- What opening this very turn said, where it is stored already; nothing otherwise.
CREATE FUNCTION opened_before(doc jsonb, OUT outcome text, OUT claimed bigint, OUT first_event bigint, OUT found_state jsonb, OUT found_assistant text)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_turn constant uuid := (doc ->> 'turn_id')::uuid;
  the_stream constant uuid := coalesce((doc ->> 'conversation_id')::uuid, the_turn);
  begun boolean;
BEGIN
  -- Where somebody has taken it over meanwhile, also this process itself, it is theirs.
  SELECT status <> 'accepted' AND finished_at IS NULL AND takeovers = 0 INTO begun FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  IF NOT FOUND THEN RETURN; END IF;
  outcome := 'stored';
  SELECT epoch INTO claimed FROM leases
  WHERE tenant_id = the_tenant AND conversation_id = the_stream AND begun AND owner = doc ->> 'owner';
  SELECT min(seq) INTO first_event FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND turn_id = the_turn;
  SELECT state, assistant INTO found_state, found_assistant FROM conversations
  WHERE tenant_id = the_tenant AND id = the_stream AND (doc ->> 'existing')::boolean;
END
$$;

-- A turn that waited begins: lease, place of its message, status.
CREATE FUNCTION start_turn(the_tenant uuid, the_turn uuid, the_owner text, the_time timestamptz, ttl interval, again boolean,
  OUT the_stream uuid, OUT claimed bigint)
LANGUAGE plpgsql AS $$
DECLARE
  held leases;
  the_status text;
  times bigint;
  own uuid;
  begin_at bigint;
BEGIN
  SELECT coalesce(conversation_id, id), status INTO the_stream, the_status FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  IF NOT FOUND OR (the_status <> 'accepted' AND NOT again) THEN
    RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn);
  END IF;
  held := lock_lease(the_tenant, the_stream);
  SELECT status, takeovers INTO the_status, times FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  -- Begun by a try whose end was not heard, and taken over by nobody since.
  IF again AND the_status = 'planning' AND times = 0 AND held.owner = the_owner THEN
    claimed := held.epoch;
    RETURN;
  END IF;
  IF the_status IS DISTINCT FROM 'accepted' THEN
    RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn);
  END IF;
  IF held.owner IS NOT NULL OR EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_stream
    AND finished_at IS NULL AND status = 'accepted' AND id < the_turn)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  SELECT id INTO own FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq IS NULL AND turn_id = the_turn;
  begin_at := held.next_message_seq;
  begin_at := begin_at + place_left_behind(the_tenant, the_stream, own, begin_at);
  IF own IS NOT NULL THEN
    UPDATE messages SET seq = begin_at WHERE tenant_id = the_tenant AND conversation_id = the_stream AND id = own;
    begin_at := begin_at + 1;
  END IF;
  UPDATE leases SET owner = the_owner, epoch = epoch + 1, next_message_seq = begin_at, expires_at = clock_timestamp() + ttl
  WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch INTO claimed;
  UPDATE turns SET status = 'planning', updated_at = the_time WHERE tenant_id = the_tenant AND id = the_turn;
END
$$;

-- Commits B, C and D. The same write a second time changes nothing and answers as it did.
CREATE FUNCTION write_turn(doc jsonb, ttl interval, OUT first_event bigint, OUT new_state jsonb, OUT canceled boolean)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_stream constant uuid := (doc ->> 'stream_id')::uuid;
  the_turn constant uuid := (doc ->> 'turn_id')::uuid;
  the_conversation constant uuid := (doc ->> 'conversation_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  event_count constant bigint := coalesce(jsonb_array_length(doc -> 'events'), 0);
  message_count constant bigint := coalesce(jsonb_array_length(doc -> 'messages'), 0);
  change constant jsonb := doc -> 'turn';
  first_message bigint;
  item record;
BEGIN
  UPDATE leases SET next_event_seq = next_event_seq + event_count, next_message_seq = next_message_seq + message_count,
    expires_at = clock_timestamp() + ttl, last_write = (doc ->> 'id')::uuid,
    owner = CASE WHEN (doc ->> 'gives_back')::boolean THEN NULL ELSE owner END
  WHERE tenant_id = the_tenant AND conversation_id = the_stream AND owner = doc ->> 'owner' AND epoch = (doc ->> 'epoch')::bigint
    AND last_write IS DISTINCT FROM (doc ->> 'id')::uuid
  RETURNING next_event_seq - event_count, next_message_seq - message_count INTO first_event, first_message;
  IF NOT FOUND THEN
    SELECT w.* INTO first_event, new_state, canceled FROM written_before(doc) AS w;
    RETURN;
  END IF;
  IF message_count > 0 THEN PERFORM put_messages(the_tenant, the_conversation, the_turn, the_time, doc -> 'messages', first_message); END IF;
  IF doc ? 'replacements' THEN
    FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'replacements') AS r (tool_call_id text, content text, status text) LOOP
      UPDATE messages SET content = item.content, status = item.status, tokens = NULL WHERE tenant_id = the_tenant
        AND conversation_id = the_conversation AND turn_id = the_turn AND tool_call_id = item.tool_call_id AND status = 'pending';
      IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('message %s', item.tool_call_id); END IF;
    END LOOP;
  END IF;
  IF doc ? 'calls' THEN PERFORM put_calls(doc -> 'calls'); END IF;
  IF doc ? 'approvals' THEN PERFORM put_approvals(the_tenant, the_conversation, the_turn, the_time, doc -> 'approvals'); END IF;
  IF doc ? 'withdrawn' THEN
    -- A decision that was just made stands.
    UPDATE approvals SET status = 'canceled', decided_at = the_time WHERE tenant_id = the_tenant AND status = 'pending'
      AND call_id IN (SELECT value::uuid FROM jsonb_array_elements_text(doc -> 'withdrawn') AS named (value));
  END IF;
  IF doc ? 'starts' OR doc ? 'retries' OR doc ? 'heard' OR doc ? 'ends' THEN PERFORM move_calls(doc, the_tenant, the_turn, the_time); END IF;
  IF doc ? 'usage' THEN
    INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model, operation,
      tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd)
    SELECT id, the_tenant, doc ->> 'user_id', the_conversation, the_turn, call_id, key_id, the_time, provider, model, operation,
      tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd
    FROM jsonb_to_recordset(doc -> 'usage') AS u (id uuid, call_id uuid, key_id uuid, provider text, model text, operation text,
      tokens_prompt bigint, tokens_cached bigint, tokens_completion bigint, tokens_reasoning bigint, tokens_total bigint,
      estimated boolean, cost_nano_usd bigint);
  END IF;
  IF doc ? 'counted' OR doc ? 'summary' THEN PERFORM note_history(the_tenant, the_conversation, doc -> 'counted', doc -> 'summary'); END IF;
  IF event_count > 0 THEN PERFORM put_events(the_tenant, the_stream, the_turn, the_time, doc -> 'events', first_event); END IF;
  IF doc ? 'patches' THEN new_state := merge_state(the_tenant, the_conversation, doc -> 'patches', the_time); END IF;
  IF change IS NULL THEN
    SELECT cancel_requested INTO canceled FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
    IF (doc ->> 'settles_text')::boolean THEN
      UPDATE turns SET partial = NULL WHERE tenant_id = the_tenant AND id = the_turn AND partial IS NOT NULL;
    END IF;
  ELSE
    UPDATE turns SET status = change ->> 'status', step = (change ->> 'step')::bigint, stalled = 0, partial = NULL,
      error = coalesce((change ->> 'error')::json, error), error_code = coalesce(change ->> 'error_code', error_code),
      message = coalesce(change ->> 'message', message), updated_at = the_time,
      finished_at = CASE WHEN (change ->> 'ends')::boolean THEN the_time END, seen = coalesce(seen, change ->> 'seen')
    WHERE tenant_id = the_tenant AND id = the_turn AND status NOT IN ('completed', 'failed', 'canceled')
    RETURNING cancel_requested INTO canceled;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  END IF;
  IF doc ? 'given_up' THEN
    -- Only the number moves on: a turn that breaks every process that takes it must still be known by its takeovers.
    UPDATE turns SET step = (doc ->> 'given_up')::bigint, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = the_turn AND step < (doc ->> 'given_up')::bigint AND finished_at IS NULL;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  END IF;
END
$$;

-- Counts of messages, and what was said before. A count whose message is gone is no loss.
CREATE FUNCTION note_history(the_tenant uuid, the_conversation uuid, counted jsonb, summed jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE messages SET tokens = (counts.pair ->> 1)::bigint FROM jsonb_array_elements(coalesce(counted, '[]')) AS counts (pair)
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation AND messages.id = (counts.pair ->> 0)::uuid;
  IF summed IS NULL THEN RETURN; END IF;
  UPDATE conversations SET summary = summed ->> 'text', summary_until = (summed ->> 'until')::bigint
  WHERE tenant_id = the_tenant AND id = the_conversation;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('conversation %s', the_conversation); END IF;
END
$$;

-- Calls begin, are tried again, are heard of, end; each from where it must be.
CREATE FUNCTION move_calls(doc jsonb, the_tenant uuid, the_turn uuid, the_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  item record;
BEGIN
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'starts') AS s (id uuid, started_at timestamptz) LOOP
    -- One that waited for another call and now runs itself has had no key of its own.
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
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'heard') AS h (id uuid, tool_name text, response_id text, item_id text, call_id text,
    request text, raw_arguments text) LOOP
    UPDATE tool_calls SET tool_name = item.tool_name, response_id = coalesce(item.response_id, response_id),
      item_id = coalesce(item.item_id, item_id), call_id = coalesce(item.call_id, call_id),
      request = coalesce(item.request::jsonb, request), raw_arguments = coalesce(item.raw_arguments, raw_arguments), updated_at = the_time
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status = 'running';
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
  END LOOP;
  FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'ends') AS e (id uuid, status text, response text, meta text, error text,
    error_type text, error_code text, error_detail text, cache_hit boolean, finished_at timestamptz) LOOP
    UPDATE tool_calls SET status = item.status, response = item.response::jsonb, meta = item.meta::json, error = item.error,
      error_type = item.error_type, error_code = item.error_code, error_detail = item.error_detail::jsonb, cache_hit = item.cache_hit,
      finished_at = item.finished_at, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = item.id AND turn_id = the_turn AND status IN ('queued', 'running');
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('call %s', item.id); END IF;
  END LOOP;
END
$$;

-- What this very write said, where it went through already; fenced otherwise. A write that gave the lease back is also known by the end
-- of its turn: by now somebody else may have written under the next lease.
CREATE FUNCTION written_before(doc jsonb, OUT first_event bigint, OUT new_state jsonb, OUT canceled boolean) LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_stream constant uuid := (doc ->> 'stream_id')::uuid;
  the_turn constant uuid := (doc ->> 'turn_id')::uuid;
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream AND last_write = (doc ->> 'id')::uuid;
  IF NOT FOUND THEN
    PERFORM 1 FROM turns WHERE tenant_id = the_tenant AND id = the_turn AND status = doc #>> '{turn,status}'
      AND finished_at = (doc ->> 'now')::timestamptz AND (doc #>> '{turn,ends}')::boolean
      AND EXISTS (SELECT 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream AND epoch > (doc ->> 'epoch')::bigint);
  END IF;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = 'fenced'; END IF;
  -- Nobody else appends in the name of this turn, so its newest events are this write's.
  SELECT min(seq) INTO first_event FROM (
    SELECT seq FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND turn_id = the_turn
    ORDER BY seq DESC LIMIT coalesce(jsonb_array_length(doc -> 'events'), 0)) AS newest;
  IF doc ? 'patches' THEN
    SELECT state INTO new_state FROM conversations WHERE tenant_id = the_tenant AND id = (doc ->> 'conversation_id')::uuid;
  END IF;
  SELECT cancel_requested INTO canceled FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
END
$$;

-- Ends a turn that has not begun; the number of its last event, null when it does not wait (any more).
CREATE FUNCTION cancel_waiting(the_tenant uuid, the_turn uuid, the_error text, the_code text, the_event jsonb, the_time timestamptz, again boolean)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  the_stream uuid;
  seq bigint;
BEGIN
  SELECT coalesce(conversation_id, id) INTO the_stream FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM lock_lease(the_tenant, the_stream);
  UPDATE turns SET status = 'canceled', cancel_requested = true, error = the_error::json, error_code = the_code, updated_at = the_time,
    finished_at = the_time
  WHERE tenant_id = the_tenant AND id = the_turn AND status = 'accepted';
  IF NOT FOUND THEN
    RETURN (SELECT max(events.seq) FROM events, turns WHERE again AND events.tenant_id = the_tenant
      AND events.conversation_id = the_stream AND events.turn_id = the_turn AND turns.tenant_id = the_tenant AND turns.id = the_turn AND turns.status = 'canceled'
      AND turns.finished_at = the_time);
  END IF;
  -- Nobody's lease is touched: only a number is drawn, as for the event that began the turn.
  UPDATE leases SET next_event_seq = next_event_seq + 1 WHERE tenant_id = the_tenant AND conversation_id = the_stream
  RETURNING next_event_seq - 1 INTO seq;
  PERFORM put_events(the_tenant, the_stream, the_turn, the_time, the_event, seq);
  RETURN seq;
END
$$;

-- Claims the lease of a turn that had begun before. Somebody who is just at it is not waited for.
CREATE FUNCTION take_over(the_tenant uuid, the_turn uuid, the_owner text, ttl interval, again boolean, OUT the_stream uuid, OUT claimed bigint)
LANGUAGE plpgsql AS $$
DECLARE
  held leases;
  waited boolean;
BEGIN
  SELECT coalesce(conversation_id, id) INTO the_stream FROM turns WHERE tenant_id = the_tenant AND id = the_turn AND finished_at IS NULL;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  SELECT * INTO held FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy'; END IF;
  SELECT status = 'awaiting_approval' INTO waited FROM turns WHERE tenant_id = the_tenant AND id = the_turn AND finished_at IS NULL;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  -- One that waited begins like any other: nothing may come between the call and the result of a turn that was left.
  IF held.owner IS NOT NULL AND (waited OR NOT (held.owner IN (the_owner, '') OR held.expires_at <= clock_timestamp())) THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  -- A lease that still has an owner was lost by a task, not given back: that counts. From here on a crash counts too, also for one that waited.
  UPDATE turns SET status = CASE WHEN waited THEN 'acting' ELSE status END,
    takeovers = takeovers + lost.times, stalled = stalled + lost.times
  FROM (SELECT CASE WHEN held.owner <> '' AND NOT (again AND held.owner = the_owner) THEN 1 ELSE 0 END AS times) AS lost
  WHERE tenant_id = the_tenant AND id = the_turn AND (waited OR lost.times > 0);
  UPDATE leases SET owner = the_owner, epoch = epoch + 1, expires_at = clock_timestamp() + ttl
  WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch INTO claimed;
END
$$;

-- Gives the lease back without ending the turn.
CREATE FUNCTION release_lease(the_tenant uuid, the_stream uuid, the_owner text, the_epoch bigint, again boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE leases SET owner = '' WHERE tenant_id = the_tenant AND conversation_id = the_stream AND epoch = the_epoch
    AND (owner = the_owner OR (again AND owner = ''));
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = 'fenced'; END IF;
END
$$;

-- A conversation and everything in it; what was spent stays in api_usage. One that waits for a person's word goes too.
CREATE FUNCTION delete_conversation(the_tenant uuid, the_conversation uuid, again boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation FOR UPDATE;
  PERFORM 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL
    AND status <> 'awaiting_approval' LIMIT 1;
  IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy'; END IF;
  DELETE FROM inbox WHERE tenant_id = the_tenant
    AND turn_id IN (SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation);
  DELETE FROM outbox WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM approvals WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM call_attempts WHERE tenant_id = the_tenant
    AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = the_tenant AND conversation_id = the_conversation);
  DELETE FROM tool_calls WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation;
  -- After a try whose end was not heard, none is left because of it.
  RETURN FOUND OR again;
END
$$;

-- One batch: deletes events older than before from the beginnings of streams, those after the given one. A stream with more than fits
-- is begun with again in the next batch; next_stream is null when every stream was looked at. A log never gets a hole.
CREATE FUNCTION forget_events(before timestamptz, after_tenant uuid, after_stream uuid,
  OUT forgotten bigint, OUT next_tenant uuid, OUT next_stream uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_streams constant bigint := 200;
  most_events constant bigint := 2000;
  looked_at bigint := 0;
  horizon bigint;
  begins bigint;
  ends bigint;
  gone bigint;
  key record;
BEGIN
  forgotten := 0;
  next_tenant := after_tenant;
  next_stream := after_stream;
  FOR key IN SELECT tenant_id, conversation_id FROM leases
    WHERE after_tenant IS NULL OR (tenant_id, conversation_id) > (after_tenant, after_stream)
    ORDER BY tenant_id, conversation_id LIMIT most_streams LOOP
    -- The first number that must stay: younger, or of a turn that has not ended.
    SELECT seq INTO horizon FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id AND (created_at >= before
      OR EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = key.tenant_id AND turns.id = events.turn_id AND turns.finished_at IS NULL))
    ORDER BY seq LIMIT 1;
    SELECT min(seq) INTO begins FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id;
    IF begins IS NOT NULL THEN
      ends := least(coalesce(horizon, 9223372036854775807), begins + most_events - forgotten);
      DELETE FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id AND seq < ends;
      GET DIAGNOSTICS gone = ROW_COUNT;
      -- Where the end was the batch's and not the log's, there may be more.
      IF ends IS DISTINCT FROM horizon AND gone >= most_events - forgotten THEN
        forgotten := forgotten + gone;
        RETURN;
      END IF;
      forgotten := forgotten + gone;
    END IF;
    looked_at := looked_at + 1;
    next_tenant := key.tenant_id;
    next_stream := key.conversation_id;
  END LOOP;
  IF looked_at < most_streams THEN
    next_tenant := NULL;
    next_stream := NULL;
  END IF;
END
$$;
