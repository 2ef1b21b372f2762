-- Letting go of rows that were kept long enough: one batch per call, each a short transaction. No new index: every look goes by a
-- primary key, every delete by an index that turns need anyway. Several servers may be at it: whoever deletes holds the lease of the
-- conversation, as whoever opens a turn does, and passes by what another one holds.

-- Whether everything of a turn may go; null where there is no such turn. It ended long enough ago, its message is not known by its key
-- any more, nothing of it is still to be sent, and of no call is the outcome unknown. The person settles that by speaking again; where
-- the turn's own messages went, that was so.
CREATE FUNCTION is_free(the_tenant uuid, the_turn uuid, before timestamptz, the_time timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT coalesce(turns.finished_at < before, false)
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.tenant_id = the_tenant AND inbox.turn_id = the_turn AND inbox.expires_at > the_time)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.tenant_id = the_tenant AND outbox.turn_id = the_turn
      AND outbox.status IN ('pending', 'sending'))
    AND NOT EXISTS (SELECT 1 FROM tool_calls AS call WHERE call.tenant_id = the_tenant AND call.turn_id = the_turn
      AND (call.finished_at IS NULL OR (call.error_code = 'outcome_unknown' AND call.conversation_id IS NOT NULL
        AND (turns.kind <> 'chat' OR EXISTS (SELECT 1 FROM messages AS own WHERE own.tenant_id = the_tenant
          AND own.conversation_id = call.conversation_id AND own.turn_id = the_turn))
        AND NOT EXISTS (SELECT 1 FROM messages AS word WHERE word.tenant_id = the_tenant AND word.conversation_id = call.conversation_id
          AND word.role = 'user' AND word.turn_id IS DISTINCT FROM the_turn AND word.created_at > call.created_at))))
  FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = the_turn
$$;

-- Whether a turn of the conversation has not ended: what it may still look back at stays.
CREATE FUNCTION is_busy(the_tenant uuid, the_conversation uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL)
$$;

-- Takes the lease where nobody else has it at this moment; false where somebody does. One that was never made is nobody's.
CREATE FUNCTION hold_lease(the_tenant uuid, the_stream uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN true; END IF;
  RETURN NOT EXISTS (SELECT 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream);
END
$$;

-- The number below which messages may go, among the first so many; the greatest there is where all of them may. Whole turns, so that no
-- call is ever without its result; no hole in the numbers; and what is left begins with a person's word. capped: there may be more.
CREATE FUNCTION messages_end(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz, most bigint,
  OUT ends bigint, OUT capped boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  begins bigint;
  lower_end bigint;
  seen bigint := 0;
  last_turn uuid;
  last_free boolean;
  later uuid[];
  said record;
BEGIN
  ends := 9223372036854775807;
  capped := false;
  FOR said IN SELECT seq, turn_id, created_at FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation
    AND seq IS NOT NULL ORDER BY seq LOOP
    begins := coalesce(begins, said.seq);
    capped := seen = most;
    IF said.turn_id IS NULL OR said.turn_id IS DISTINCT FROM last_turn THEN
      last_turn := said.turn_id;
      -- One without a turn came from elsewhere and goes by its own age.
      last_free := coalesce(is_free(the_tenant, said.turn_id, before, the_time), said.created_at < before);
    END IF;
    IF NOT last_free OR capped THEN
      ends := said.seq;
      capped := capped AND last_free;
      EXIT;
    END IF;
    seen := seen + 1;
  END LOOP;
  WHILE begins IS NOT NULL AND ends <> 9223372036854775807 AND ends > begins LOOP
    SELECT seq INTO lower_end FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq <= ends
      AND role IN ('user', 'system') ORDER BY seq DESC LIMIT 1;
    ends := coalesce(lower_end, begins);
    -- One that waited for a word may have said its last after others. First the turns, then the messages: a join may be planned badly.
    later := ARRAY(SELECT DISTINCT turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation
      AND seq >= ends AND turn_id IS NOT NULL);
    SELECT min(seq) INTO lower_end FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq < ends
      AND turn_id = ANY (later);
    EXIT WHEN lower_end IS NULL;
    ends := lower_end;
  END LOOP;
END
$$;

-- The messages that may go. Those that wait for no turn that may still begin go with the last of the others.
CREATE FUNCTION old_messages(the_tenant uuid, the_conversation uuid, ends bigint, before timestamptz, the_time timestamptz)
RETURNS TABLE (message_id uuid, of_turn uuid) LANGUAGE sql STABLE AS $$
  SELECT id, turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq < ends
  UNION ALL
  SELECT id, turn_id FROM messages WHERE ends = 9223372036854775807 AND tenant_id = the_tenant AND conversation_id = the_conversation
    AND seq IS NULL AND coalesce(is_free(the_tenant, turn_id, before, the_time), created_at < before)
$$;

-- Ended turns with neither messages nor calls.
CREATE FUNCTION empty_turns(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
  SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at < before
    AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.tenant_id = the_tenant AND tool_calls.turn_id = turns.id)
    AND id NOT IN (SELECT turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND turn_id IS NOT NULL)
    AND is_free(the_tenant, id, before, the_time)
$$;

CREATE FUNCTION is_empty(the_tenant uuid, the_conversation uuid, before timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT updated_at < before AND created_at < before
    AND NOT EXISTS (SELECT 1 FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation)
  FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation
$$;

-- Deletes about so many messages of one conversation, and all that repeats their words; with what is empty then.
CREATE FUNCTION lose_messages(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz, most bigint,
  OUT gone bigint, OUT whole boolean, OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  ends bigint;
  among bigint := most;
  ids uuid[];
  of_turns uuid[];
BEGIN
  gone := 0;
  whole := false;
  more := false;
  IF NOT hold_lease(the_tenant, the_conversation) THEN RETURN; END IF;
  -- Looked at without the lease a moment ago; a turn may have begun since. A statement of its own, so that it sees what the lease let in.
  IF is_busy(the_tenant, the_conversation) THEN RETURN; END IF;
  -- A batch ends at a turn, and never before it has begun.
  LOOP
    SELECT found.ends, found.capped INTO ends, more FROM messages_end(the_tenant, the_conversation, before, the_time, among) AS found;
    SELECT array_agg(message_id), array_agg(DISTINCT of_turn) INTO ids, of_turns
    FROM old_messages(the_tenant, the_conversation, ends, before, the_time);
    EXIT WHEN NOT more OR cardinality(ids) > 0;
    among := among * 2;
  END LOOP;
  IF cardinality(ids) > 0 THEN
    DELETE FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND id = ANY (ids);
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM outbox WHERE tenant_id = the_tenant AND turn_id = ANY (of_turns);
    DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = ANY (of_turns);
    UPDATE turns SET message = NULL, partial = NULL, client = NULL, seen = NULL, sent = NULL
    WHERE tenant_id = the_tenant AND id = ANY (of_turns);
    -- The title is the beginning of the first message, and the summary tells of messages; it stays while one of them does.
    UPDATE conversations SET title = coalesce((SELECT left(content, 80) FROM messages WHERE tenant_id = the_tenant
        AND conversation_id = the_conversation AND role = 'user' AND seq IS NOT NULL ORDER BY seq LIMIT 1), ''),
      summary = CASE WHEN summary_until >= ends THEN summary END, summary_until = CASE WHEN summary_until >= ends THEN summary_until END
    WHERE tenant_id = the_tenant AND id = the_conversation;
  END IF;
  ids := ARRAY(SELECT empty_turns(the_tenant, the_conversation, before, the_time) LIMIT most);
  DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = ANY (ids);
  DELETE FROM turns WHERE tenant_id = the_tenant AND id = ANY (ids);
  more := more OR cardinality(ids) = most;
  IF NOT more AND is_empty(the_tenant, the_conversation, before) THEN
    DELETE FROM outbox WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM approvals WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation;
    whole := true;
  END IF;
END
$$;

-- One batch over the conversations after the given one. One with more than fits is begun with again in the next batch; next_id is null
-- when every one was looked at.
CREATE FUNCTION sweep_messages(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT gone bigint, OUT whole bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_conversations constant bigint := 200;
  most_messages constant bigint := 200;
  looked_at bigint := 0;
  found_rows bigint;
  found_end record;
  lost record;
  key record;
BEGIN
  gone := 0;
  whole := 0;
  next_tenant := after_tenant;
  next_id := after_id;
  FOR key IN SELECT tenant_id, id, created_at FROM conversations WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most_conversations LOOP
    looked_at := looked_at + 1;
    IF key.created_at < before THEN
      found_end := messages_end(key.tenant_id, key.id, before, the_time, CASE WHEN dry_run THEN 9223372036854775807 ELSE most_messages END);
      SELECT count(*) INTO found_rows FROM old_messages(key.tenant_id, key.id, found_end.ends, before, the_time);
      IF (found_rows > 0 OR found_end.capped OR EXISTS (SELECT 1 FROM empty_turns(key.tenant_id, key.id, before, the_time))
          OR is_empty(key.tenant_id, key.id, before)) AND NOT is_busy(key.tenant_id, key.id) THEN
        IF dry_run THEN
          gone := gone + found_rows;
        ELSE
          lost := lose_messages(key.tenant_id, key.id, before, the_time, most_messages);
          gone := gone + lost.gone;
          whole := whole + lost.whole::int;
          IF lost.more THEN RETURN; END IF;
        END IF;
      END IF;
    END IF;
    next_tenant := key.tenant_id;
    next_id := key.id;
    IF gone >= most_messages AND NOT dry_run THEN RETURN; END IF;
  END LOOP;
  IF looked_at < most_conversations THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- Deletes the calls of one turn, with attempts and approvals; how many. A turn outside any conversation is a stream of its own and goes
-- with them.
CREATE FUNCTION lose_calls(the_tenant uuid, the_conversation uuid, the_turn uuid, before timestamptz, the_time timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  gone bigint;
BEGIN
  IF NOT hold_lease(the_tenant, coalesce(the_conversation, the_turn)) THEN RETURN 0; END IF;
  -- Under the lease once more, in a statement of its own: a turn may have begun, or the last word on this one may just have gone.
  IF is_busy(the_tenant, the_conversation) OR NOT coalesce(is_free(the_tenant, the_turn, before, the_time), false) THEN RETURN 0; END IF;
  DELETE FROM call_attempts WHERE tenant_id = the_tenant
    AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = the_tenant AND turn_id = the_turn);
  DELETE FROM approvals WHERE tenant_id = the_tenant AND turn_id = the_turn;
  DELETE FROM tool_calls WHERE tenant_id = the_tenant AND turn_id = the_turn;
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF the_conversation IS NULL THEN
    DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_turn;
    DELETE FROM outbox WHERE tenant_id = the_tenant AND turn_id = the_turn;
    DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = the_turn;
    DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_turn;
    DELETE FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  END IF;
  RETURN gone;
END
$$;

-- One batch over the turns after the given one.
CREATE FUNCTION sweep_calls(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT gone bigint, OUT whole bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_turns constant bigint := 1000;
  most_calls constant bigint := 200;
  looked_at bigint := 0;
  found_rows bigint;
  key record;
BEGIN
  gone := 0;
  whole := 0;
  next_tenant := after_tenant;
  next_id := after_id;
  FOR key IN SELECT tenant_id, id, conversation_id, finished_at FROM turns WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most_turns LOOP
    looked_at := looked_at + 1;
    IF key.finished_at < before THEN
      SELECT count(*) INTO found_rows FROM tool_calls WHERE tenant_id = key.tenant_id AND turn_id = key.id;
      IF (found_rows > 0 OR key.conversation_id IS NULL) AND is_free(key.tenant_id, key.id, before, the_time)
          AND NOT is_busy(key.tenant_id, key.conversation_id) THEN
        IF dry_run THEN
          gone := gone + found_rows;
        ELSE
          gone := gone + lose_calls(key.tenant_id, key.conversation_id, key.id, before, the_time);
        END IF;
      END IF;
    END IF;
    next_tenant := key.tenant_id;
    next_id := key.id;
    IF gone >= most_calls AND NOT dry_run THEN RETURN; END IF;
  END LOOP;
  IF looked_at < most_turns THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- One batch of bills. A turn that goes on counts what it has cost from them.
CREATE FUNCTION sweep_usage(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT gone bigint, OUT whole bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000;
  looked_at bigint := 0;
  key record;
BEGIN
  gone := 0;
  whole := 0;
  FOR key IN SELECT tenant_id, id, turn_id, created_at FROM api_usage WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most LOOP
    looked_at := looked_at + 1;
    next_tenant := key.tenant_id;
    next_id := key.id;
    CONTINUE WHEN key.created_at >= before OR EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = key.tenant_id AND turns.id = key.turn_id AND turns.finished_at IS NULL);
    IF dry_run THEN
      gone := gone + 1;
    ELSE
      DELETE FROM api_usage WHERE tenant_id = key.tenant_id AND id = key.id;
      IF FOUND THEN gone := gone + 1; END IF;
    END IF;
  END LOOP;
  IF looked_at < most THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- How many events forget_events would delete.
CREATE FUNCTION count_events(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT gone bigint, OUT whole bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000;
  looked_at bigint := 0;
  horizon bigint;
  found_rows bigint;
  key record;
BEGIN
  gone := 0;
  whole := 0;
  FOR key IN SELECT tenant_id, conversation_id FROM leases WHERE (tenant_id, conversation_id) > (after_tenant, after_id)
    ORDER BY tenant_id, conversation_id LIMIT most LOOP
    looked_at := looked_at + 1;
    next_tenant := key.tenant_id;
    next_id := key.conversation_id;
    SELECT seq INTO horizon FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id AND (created_at >= before
      OR EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = key.tenant_id AND turns.id = events.turn_id AND turns.finished_at IS NULL))
    ORDER BY seq LIMIT 1;
    SELECT count(*) INTO found_rows FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id
      AND seq < coalesce(horizon, 9223372036854775807);
    gone := gone + found_rows;
  END LOOP;
  IF looked_at < most THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;
