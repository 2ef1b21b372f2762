-- The commits of a turn: a guard and the writes that it guards in one call, so that no round trip lies between them.

-- Stores an inbox entry; false where the inbox has it already. An expired entry is replaced.
CREATE OR REPLACE FUNCTION put_inbox(the_tenant uuid, the_time timestamptz, entry jsonb, the_turn uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO inbox (tenant_id, channel, account, external_id, fingerprint, turn_id, created_at, expires_at)
  VALUES (the_tenant, entry ->> 'channel', entry ->> 'account', entry ->> 'external_id', entry ->> 'fingerprint', the_turn, the_time,
    (entry ->> 'expires_at')::timestamptz)
  ON CONFLICT (tenant_id, channel, account, external_id) DO UPDATE SET fingerprint = excluded.fingerprint, turn_id = excluded.turn_id,
    created_at = excluded.created_at, expires_at = excluded.expires_at
  WHERE inbox.expires_at <= excluded.created_at;
  RETURN FOUND;
END
$$;

-- Commit A: stores a turn. outcome: stored, duplicate, unknown, superseded, stale_budgets, over_budget (refused says where), or retried, and then
-- stored_turn is the call that has retried it.
-- A duplicate without stored_turn is a copy of an item that started no turn.
CREATE OR REPLACE FUNCTION open_turn(doc jsonb, ttl interval, is_retry boolean,
  OUT outcome text, OUT claimed_epoch bigint, OUT first_event bigint, OUT found_state jsonb, OUT found_assistant text,
  OUT stored_turn uuid, OUT stored_fingerprint text, OUT refused jsonb)
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
  lease leases;
  next_seq bigint := 1;
BEGIN
  IF is_retry THEN
    SELECT s.* INTO outcome, claimed_epoch, first_event, found_state, found_assistant FROM opened_before(doc) AS s;
    IF outcome IS NOT NULL THEN RETURN; END IF;
  END IF;
  IF existing THEN
    SELECT state, assistant INTO found_state, found_assistant FROM conversations
    WHERE tenant_id = the_tenant AND id = the_conversation AND ((doc ->> 'any_user')::boolean OR user_id = doc ->> 'user_id');
    IF FOUND THEN
      lease := lock_lease(the_tenant, the_stream);
      next_seq := lease.next_message_seq;
      -- The newest turn may be this one, when the first attempt was committed and its answer was lost.
      IF doc ? 'expected_last_turn' AND (doc ->> 'expected_last_turn')::uuid IS DISTINCT FROM
        (SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation ORDER BY id DESC LIMIT 1)
      THEN outcome := 'superseded'; END IF;
    ELSE
      outcome := 'unknown';
    END IF;
  END IF;
  IF outcome IS NULL AND doc #>> '{calls,0,retry_of}' IS NOT NULL THEN
    -- An unknown outcome is retried once; a retry that ended without being sent does not count. The lock makes retries at the same time wait for each other.
    PERFORM 1 FROM tool_calls WHERE tenant_id = the_tenant AND id = (doc #>> '{calls,0,retry_of}')::uuid AND error_code = 'outcome_unknown' FOR UPDATE;
    IF FOUND THEN
      SELECT id INTO stored_turn FROM tool_calls WHERE tenant_id = the_tenant AND retry_of = (doc #>> '{calls,0,retry_of}')::uuid
        AND NOT (attempt = 0 AND finished_at IS NOT NULL) LIMIT 1;
      IF FOUND THEN
        outcome := 'retried';
        RETURN;
      END IF;
    END IF;
  END IF;
  -- Before anything is written: a refused turn leaves no row. The counters stay locked until the reservation is stored.
  IF outcome IS NULL AND doc ? 'budgets_version' THEN
    IF coalesce((SELECT budgets_version FROM tenants WHERE id = the_tenant), 0) <> (doc ->> 'budgets_version')::bigint THEN
      outcome := 'stale_budgets';
    ELSIF doc ? 'reservation' THEN
      -- A refusal needs no lock: however many messages a used-up budget refuses, none of them waits for another.
      refused := refused_claim(the_tenant, doc #> '{reservation,claims}', '[]');
      IF refused IS NULL THEN
        PERFORM lock_counters(the_tenant, doc #> '{reservation,claims}');
        refused := refused_claim(the_tenant, doc #> '{reservation,claims}', '[]');
      END IF;
      IF refused IS NOT NULL THEN outcome := 'over_budget'; END IF;
    END IF;
  END IF;
  IF outcome IS NOT NULL AND entry IS NOT NULL THEN
    -- A second copy is answered as a duplicate even where the conversation cannot be read any more, or the first copy took the last of the budget.
    SELECT turn_id, fingerprint INTO stored_turn, stored_fingerprint FROM inbox
    WHERE tenant_id = the_tenant AND channel = entry ->> 'channel' AND account = entry ->> 'account'
      AND external_id = entry ->> 'external_id' AND expires_at > the_time;
    IF FOUND THEN outcome := 'duplicate'; END IF;
  END IF;
  IF outcome IS NULL AND entry IS NOT NULL THEN
    IF NOT put_inbox(the_tenant, the_time, entry, the_turn) THEN
      outcome := 'duplicate';
      SELECT turn_id, fingerprint INTO stored_turn, stored_fingerprint FROM inbox
      WHERE tenant_id = the_tenant AND channel = entry ->> 'channel' AND account = entry ->> 'account'
        AND external_id = entry ->> 'external_id';
    END IF;
  END IF;
  IF stored_turn = the_turn THEN
    SELECT s.* INTO outcome, claimed_epoch, first_event, found_state, found_assistant FROM opened_before(doc) AS s;
    stored_turn := NULL;
  END IF;
  IF outcome IS NOT NULL THEN RETURN; END IF;

  IF NOT existing AND the_conversation IS NOT NULL THEN
    INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
    VALUES (the_conversation, the_tenant, doc ->> 'user_id', doc ->> 'channel', doc ->> 'assistant', doc ->> 'title', '{}', the_time, the_time);
  END IF;
  -- No turn may come between a call and its result, nor before a turn that waits longer.
  starts := starts AND (NOT existing OR lease.owner IS NULL AND NOT EXISTS
    (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL AND status = 'accepted'));
  IF NOT starts AND doc ? 'calls' THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  IF existing THEN
    IF starts THEN next_seq := next_seq + place_ended_messages(the_tenant, the_conversation, NULL, next_seq); END IF;
    UPDATE leases SET next_event_seq = next_event_seq + event_count,
      next_message_seq = CASE WHEN starts THEN next_seq + message_count ELSE next_message_seq END,
      epoch = CASE WHEN starts THEN epoch + 1 ELSE epoch END, owner = CASE WHEN starts THEN doc ->> 'owner' ELSE owner END,
      expires_at = CASE WHEN starts THEN clock_timestamp() + ttl ELSE expires_at END
    WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch, next_event_seq - event_count INTO claimed_epoch, first_event;
  ELSE
    INSERT INTO leases (tenant_id, conversation_id, owner, epoch, next_event_seq, next_message_seq, expires_at)
    VALUES (the_tenant, the_stream, CASE WHEN starts THEN doc ->> 'owner' END, starts::int, 1 + event_count,
      CASE WHEN starts THEN 1 + message_count ELSE 1 END, CASE WHEN starts THEN clock_timestamp() + ttl END)
    RETURNING epoch, 1 INTO claimed_epoch, first_event;
  END IF;
  IF NOT starts THEN claimed_epoch := NULL; END IF;
  INSERT INTO turns (id, tenant_id, conversation_id, user_id, kind, assistant, key_id, status, created_at, updated_at, client, request_digest,
    credential, context, inbound)
  VALUES (the_turn, the_tenant, the_conversation, doc ->> 'user_id', doc ->> 'kind',
    coalesce(nullif(doc ->> 'assistant', ''), found_assistant, ''), (doc ->> 'key_id')::uuid,
    CASE WHEN NOT starts THEN 'accepted' WHEN doc ? 'calls' AND doc ->> 'kind' <> 'chat' THEN 'acting' ELSE 'planning' END,
    the_time, the_time, (doc ->> 'client')::json, doc ->> 'request_digest', doc ->> 'credential', (doc ->> 'context')::json,
    (doc ->> 'inbound')::json);
  IF doc ? 'unanswered' AND existing THEN
    PERFORM put_client_results(the_tenant, the_conversation, doc -> 'results', doc ->> 'unanswered');
  END IF;
  IF existing AND (message_count > 0 OR doc ? 'unanswered') THEN PERFORM touch_conversation(the_tenant, the_conversation, the_time); END IF;
  IF message_count > 0 THEN
    PERFORM put_messages(the_tenant, the_conversation, the_turn, the_time, doc -> 'messages', CASE WHEN starts THEN next_seq END);
  END IF;
  IF doc ? 'calls' THEN PERFORM put_calls(doc -> 'calls'); END IF;
  IF doc ? 'approvals' THEN PERFORM put_approvals(the_tenant, the_conversation, the_turn, the_time, doc -> 'approvals'); END IF;
  PERFORM put_events(the_tenant, the_stream, the_turn, the_time, doc -> 'events', first_event);
  IF doc ? 'outbox' THEN PERFORM put_outbox(the_tenant, the_time, doc -> 'outbox'); END IF;
  IF starts AND doc ? 'reservation' THEN
    PERFORM change_counters(the_tenant, put_reservation(the_tenant, the_turn, doc -> 'reservation'));
  END IF;
  outcome := 'stored';
END
$$;

-- The result of opening this very turn, where it is stored already; null otherwise.
CREATE OR REPLACE FUNCTION opened_before(doc jsonb, OUT outcome text, OUT claimed_epoch bigint, OUT first_event bigint, OUT found_state jsonb, OUT found_assistant text)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_turn constant uuid := (doc ->> 'turn_id')::uuid;
  the_stream constant uuid := coalesce((doc ->> 'conversation_id')::uuid, the_turn);
  started boolean;
BEGIN
  -- A turn that was taken over meanwhile, also by this process, belongs to that task.
  SELECT status <> 'accepted' AND finished_at IS NULL AND takeovers = 0 INTO started FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  IF NOT FOUND THEN RETURN; END IF;
  outcome := 'stored';
  SELECT epoch INTO claimed_epoch FROM leases
  WHERE tenant_id = the_tenant AND conversation_id = the_stream AND started AND owner = doc ->> 'owner';
  SELECT min(seq) INTO first_event FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND turn_id = the_turn;
  SELECT state, assistant INTO found_state, found_assistant FROM conversations
  WHERE tenant_id = the_tenant AND id = the_stream AND (doc ->> 'existing')::boolean;
END
$$;

-- A turn that waited starts: lease, seq of its message, status.
CREATE OR REPLACE FUNCTION start_turn(the_tenant uuid, the_turn uuid, the_owner text, the_time timestamptz, ttl interval, is_retry boolean,
  OUT the_stream uuid, OUT claimed_epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
  lease leases;
  the_status text;
  times bigint;
  own uuid;
  next_seq bigint;
BEGIN
  SELECT coalesce(conversation_id, id), status INTO the_stream, the_status FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  IF NOT FOUND OR (the_status <> 'accepted' AND NOT is_retry) THEN
    RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn);
  END IF;
  lease := lock_lease(the_tenant, the_stream);
  SELECT status, takeovers INTO the_status, times FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  -- Started by an attempt whose answer was lost, and not taken over since.
  IF is_retry AND the_status = 'planning' AND times = 0 AND lease.owner = the_owner THEN
    claimed_epoch := lease.epoch;
    RETURN;
  END IF;
  IF the_status IS DISTINCT FROM 'accepted' THEN
    RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn);
  END IF;
  IF lease.owner IS NOT NULL OR EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_stream
    AND finished_at IS NULL AND status = 'accepted' AND id < the_turn)
  THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  SELECT id INTO own FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq IS NULL AND turn_id = the_turn;
  next_seq := lease.next_message_seq;
  next_seq := next_seq + place_ended_messages(the_tenant, the_stream, own, next_seq);
  IF own IS NOT NULL THEN
    UPDATE messages SET seq = next_seq WHERE tenant_id = the_tenant AND conversation_id = the_stream AND id = own;
    next_seq := next_seq + 1;
  END IF;
  UPDATE leases SET owner = the_owner, epoch = epoch + 1, next_message_seq = next_seq, expires_at = clock_timestamp() + ttl
  WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch INTO claimed_epoch;
  UPDATE turns SET status = 'planning', updated_at = the_time WHERE tenant_id = the_tenant AND id = the_turn;
END
$$;

-- Commits B, C and D: everything a turn writes at once, under its fence. The same write a second time changes nothing and returns the same.
CREATE OR REPLACE FUNCTION write_turn(doc jsonb, ttl interval, OUT first_event bigint, OUT new_state jsonb, OUT canceled boolean,
  OUT refused jsonb)
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
    owner = CASE WHEN (doc ->> 'releases_lease')::boolean THEN NULL ELSE owner END
  WHERE tenant_id = the_tenant AND conversation_id = the_stream AND owner = doc ->> 'owner' AND epoch = (doc ->> 'epoch')::bigint
    AND last_write IS DISTINCT FROM (doc ->> 'id')::uuid
  RETURNING next_event_seq - event_count, next_message_seq - message_count INTO first_event, first_message;
  IF NOT FOUND THEN
    SELECT w.* INTO first_event, new_state, canceled FROM written_before(doc) AS w;
    refused := refused_before(the_tenant, doc -> 'reserve');
    RETURN;
  END IF;
  IF message_count > 0 THEN PERFORM put_messages(the_tenant, the_conversation, the_turn, the_time, doc -> 'messages', first_message); END IF;
  IF doc ? 'replacements' THEN
    FOR item IN SELECT * FROM jsonb_to_recordset(doc -> 'replacements') AS r (tool_call_id text, content text, status text, metadata text) LOOP
      UPDATE messages SET content = item.content, status = item.status, tokens = NULL,
        metadata = coalesce(item.metadata::jsonb, messages.metadata) WHERE tenant_id = the_tenant
        AND conversation_id = the_conversation AND turn_id = the_turn AND tool_call_id = item.tool_call_id AND status = 'pending';
      IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('message %s', item.tool_call_id); END IF;
    END LOOP;
  END IF;
  IF (doc ->> 'releases_lease')::boolean THEN PERFORM touch_conversation(the_tenant, the_conversation, the_time); END IF;
  IF doc ? 'calls' THEN PERFORM put_calls(doc -> 'calls'); END IF;
  IF doc ? 'approvals' THEN PERFORM put_approvals(the_tenant, the_conversation, the_turn, the_time, doc -> 'approvals'); END IF;
  IF doc ? 'withdrawn' THEN
    -- A decision that was made just before this write stays.
    UPDATE approvals SET status = 'canceled', decided_at = the_time WHERE tenant_id = the_tenant AND status = 'pending'
      AND call_id IN (SELECT value::uuid FROM jsonb_array_elements_text(doc -> 'withdrawn') AS named (value));
  END IF;
  IF doc ? 'starts' OR doc ? 'retries' OR doc ? 'provider_updates' OR doc ? 'ends' THEN PERFORM update_calls(doc, the_tenant, the_turn, the_time); END IF;
  IF doc ? 'counted' OR doc ? 'summary' THEN PERFORM put_history(the_tenant, the_conversation, doc -> 'counted', doc -> 'summary'); END IF;
  IF event_count > 0 THEN PERFORM put_events(the_tenant, the_stream, the_turn, the_time, doc -> 'events', first_event); END IF;
  IF doc ? 'outbox' THEN PERFORM put_outbox(the_tenant, the_time, doc -> 'outbox'); END IF;
  IF doc ? 'patches' THEN new_state := merge_state(the_tenant, the_conversation, doc -> 'patches', the_time); END IF;
  IF change IS NULL THEN
    SELECT cancel_requested INTO canceled FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
    IF (doc ->> 'clears_partial')::boolean THEN
      UPDATE turns SET partial = NULL WHERE tenant_id = the_tenant AND id = the_turn AND partial IS NOT NULL;
    END IF;
  ELSE
    UPDATE turns SET status = change ->> 'status', step = (change ->> 'step')::bigint, stalled = 0, partial = NULL,
      error = coalesce((change ->> 'error')::json, error), error_code = coalesce(change ->> 'error_code', error_code),
      message = coalesce(change ->> 'message', message), updated_at = the_time,
      finished_at = CASE WHEN (change ->> 'ends')::boolean THEN the_time END, transcript_digest = coalesce(transcript_digest, change ->> 'transcript_digest')
    WHERE tenant_id = the_tenant AND id = the_turn AND status NOT IN ('completed', 'failed', 'canceled')
    RETURNING cancel_requested INTO canceled;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  END IF;
  IF doc ? 'abandoned_step' THEN
    -- Only the step changes: a turn that crashes every process that takes it over is recognised by its takeovers.
    UPDATE turns SET step = (doc ->> 'abandoned_step')::bigint, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = the_turn AND step < (doc ->> 'abandoned_step')::bigint AND finished_at IS NULL;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  END IF;
  -- Last, so that the counters of budgets are locked for a short time.
  IF doc ? 'usage' OR doc ? 'reserve' OR (doc ->> 'releases_reservations')::boolean THEN
    refused := write_usage(the_tenant, doc ->> 'user_id', the_conversation, the_turn, the_time, coalesce(doc -> 'usage', '[]'),
      (doc ->> 'releases_reservations')::boolean, doc -> 'reserve', false);
  END IF;
END
$$;

-- The result of this very write, where it was committed already; fenced otherwise. A write that released the lease is also recognised by the
-- end of its turn: by now another process may have written under the next lease.
CREATE OR REPLACE FUNCTION written_before(doc jsonb, OUT first_event bigint, OUT new_state jsonb, OUT canceled boolean) LANGUAGE plpgsql AS $$
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
  -- Only the owner of the lease appends events of this turn, so its newest events are those of this write.
  SELECT min(seq) INTO first_event FROM (
    SELECT seq FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND turn_id = the_turn
    ORDER BY seq DESC LIMIT coalesce(jsonb_array_length(doc -> 'events'), 0)) AS newest;
  IF doc ? 'patches' THEN
    SELECT state INTO new_state FROM conversations WHERE tenant_id = the_tenant AND id = (doc ->> 'conversation_id')::uuid;
  END IF;
  SELECT cancel_requested INTO canceled FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
END
$$;

-- Ends a turn that has not started; returns the seq of its last event, null when the turn does not wait (any more).
CREATE OR REPLACE FUNCTION cancel_waiting(the_tenant uuid, the_turn uuid, the_error text, the_code text, the_event jsonb, the_outbox jsonb,
  the_time timestamptz, is_retry boolean)
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
    RETURN (SELECT max(events.seq) FROM events, turns WHERE is_retry AND events.tenant_id = the_tenant
      AND events.conversation_id = the_stream AND events.turn_id = the_turn AND turns.tenant_id = the_tenant AND turns.id = the_turn AND turns.status = 'canceled'
      AND turns.finished_at = the_time);
  END IF;
  -- The lease keeps its owner: only a seq is taken, as for the first event of the turn.
  UPDATE leases SET next_event_seq = next_event_seq + 1 WHERE tenant_id = the_tenant AND conversation_id = the_stream
  RETURNING next_event_seq - 1 INTO seq;
  PERFORM put_events(the_tenant, the_stream, the_turn, the_time, the_event, seq);
  IF jsonb_array_length(the_outbox) > 0 THEN PERFORM put_outbox(the_tenant, the_time, the_outbox); END IF;
  RETURN seq;
END
$$;

-- Whether the user has sent a message in another turn since the outcome of a call of the_turn was known. A message that was queued before answers
-- nothing. Two times of one millisecond say nothing about their order; the events of the conversation do. Any message counts: an import into a
-- conversation that went on gives older ones a higher seq. The whole conversation may be read, so ask it only for calls with an unknown outcome.
CREATE OR REPLACE FUNCTION message_since(the_tenant uuid, the_conversation uuid, the_turn uuid, known_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM messages AS message
    WHERE message.tenant_id = the_tenant AND message.conversation_id = the_conversation AND message.role = 'user'
      AND message.turn_id IS DISTINCT FROM the_turn AND (message.created_at > known_at OR (message.created_at = known_at
      AND (SELECT min(seq) FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND turn_id = message.turn_id)
        > (SELECT max(seq) FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND turn_id = the_turn))))
$$;
