-- Deletes rows that were kept long enough: one batch per call, each a short transaction. No index of their own: every read goes by a primary
-- key, every delete by an index that turns need anyway. Several processes may sweep at once: a deleting process locks the lease of the
-- conversation, as one that opens a turn does, and skips what another one has locked.

-- Whether everything of a turn may be deleted; null where there is no such turn. The turn ended before the given time, its message is no
-- longer recognised by its key, and no call has an unknown outcome. The user settles an unknown outcome by sending another message; where
-- the turn's own messages were deleted, that has happened.
CREATE OR REPLACE FUNCTION may_delete_turn(the_tenant uuid, the_turn uuid, before timestamptz, the_time timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT coalesce(turns.finished_at < before, false)
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.tenant_id = the_tenant AND inbox.turn_id = the_turn AND inbox.expires_at > the_time)
    AND NOT EXISTS (SELECT 1 FROM tool_calls AS call WHERE call.tenant_id = the_tenant AND call.turn_id = the_turn
      AND (call.finished_at IS NULL OR (call.error_code = 'outcome_unknown' AND call.conversation_id IS NOT NULL
        AND (turns.kind <> 'chat' OR EXISTS (SELECT 1 FROM messages AS own WHERE own.tenant_id = the_tenant
          AND own.conversation_id = call.conversation_id AND own.turn_id = the_turn))
        AND NOT message_since(the_tenant, call.conversation_id, the_turn, turns.finished_at))))
  FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = the_turn
$$;

-- Whether a turn of the conversation has not ended: the rows it may still read stay.
CREATE OR REPLACE FUNCTION has_open_turn(the_tenant uuid, the_conversation uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL)
$$;

-- The seq below which messages may be deleted, among the first `most`; the greatest bigint where all of them may. Whole turns, so that no call
-- is ever without its result; no gap in the seqs; and the first message that stays is one of the user. capped: there may be more.
CREATE OR REPLACE FUNCTION deletable_end(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz, most bigint,
  OUT ends bigint, OUT capped boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  first_seq bigint;
  lower_end bigint;
  counted bigint := 0;
  last_turn uuid;
  last_free boolean;
  later uuid[];
  message record;
BEGIN
  ends := 9223372036854775807;
  capped := false;
  FOR message IN SELECT seq, turn_id, created_at FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation
    AND seq IS NOT NULL ORDER BY seq LOOP
    first_seq := coalesce(first_seq, message.seq);
    capped := counted = most;
    IF message.turn_id IS NULL OR message.turn_id IS DISTINCT FROM last_turn THEN
      last_turn := message.turn_id;
      -- A message without a turn was imported; its own age counts.
      last_free := coalesce(may_delete_turn(the_tenant, message.turn_id, before, the_time), message.created_at < before);
    END IF;
    IF NOT last_free OR capped THEN
      ends := message.seq;
      capped := capped AND last_free;
      EXIT;
    END IF;
    counted := counted + 1;
  END LOOP;
  WHILE first_seq IS NOT NULL AND ends <> 9223372036854775807 AND ends > first_seq LOOP
    SELECT seq INTO lower_end FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq <= ends
      AND role IN ('user', 'system') ORDER BY seq DESC LIMIT 1;
    ends := coalesce(lower_end, first_seq);
    -- A turn that awaited approval may have written its last message after later turns did. First the turns, then the messages: a
    -- join may be planned badly.
    later := ARRAY(SELECT DISTINCT turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation
      AND seq >= ends AND turn_id IS NOT NULL);
    SELECT min(seq) INTO lower_end FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq < ends
      AND turn_id = ANY (later);
    EXIT WHEN lower_end IS NULL;
    ends := lower_end;
  END LOOP;
END
$$;

-- The messages that may be deleted. Messages that have no seq are deleted together with the last of the others.
CREATE OR REPLACE FUNCTION deletable_messages(the_tenant uuid, the_conversation uuid, ends bigint, before timestamptz, the_time timestamptz)
RETURNS TABLE (message_id uuid, message_turn uuid) LANGUAGE sql STABLE AS $$
  SELECT id, turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND seq < ends
  UNION ALL
  SELECT id, turn_id FROM messages WHERE ends = 9223372036854775807 AND tenant_id = the_tenant AND conversation_id = the_conversation
    AND seq IS NULL AND coalesce(may_delete_turn(the_tenant, turn_id, before, the_time), created_at < before)
$$;

-- Ended turns with neither messages nor calls.
CREATE OR REPLACE FUNCTION empty_turns(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
  SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at < before
    AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.tenant_id = the_tenant AND tool_calls.turn_id = turns.id)
    AND id NOT IN (SELECT turn_id FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND turn_id IS NOT NULL)
    AND may_delete_turn(the_tenant, id, before, the_time)
$$;

CREATE OR REPLACE FUNCTION is_empty_conversation(the_tenant uuid, the_conversation uuid, before timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT updated_at < before AND created_at < before
    AND NOT EXISTS (SELECT 1 FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation)
  FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation
$$;

-- Deletes about `most` messages of one conversation, and every copy of their text; then the turns and the conversation that are empty.
CREATE OR REPLACE FUNCTION delete_old_messages(the_tenant uuid, the_conversation uuid, before timestamptz, the_time timestamptz, most bigint,
  OUT deleted bigint, OUT conversation_deleted boolean, OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  ends bigint;
  batch bigint := most;
  ids uuid[];
  message_turns uuid[];
BEGIN
  deleted := 0;
  conversation_deleted := false;
  more := false;
  IF NOT try_lock_lease(the_tenant, the_conversation) THEN RETURN; END IF;
  -- The caller looked without the lease; a turn may have started since. A statement of its own, so that its snapshot is newer than
  -- the lock.
  IF has_open_turn(the_tenant, the_conversation) THEN RETURN; END IF;
  -- A batch ends between two turns, and has at least one message.
  LOOP
    SELECT found.ends, found.capped INTO ends, more FROM deletable_end(the_tenant, the_conversation, before, the_time, batch) AS found;
    SELECT array_agg(message_id), array_agg(DISTINCT message_turn) INTO ids, message_turns
    FROM deletable_messages(the_tenant, the_conversation, ends, before, the_time);
    EXIT WHEN NOT more OR cardinality(ids) > 0;
    batch := batch * 2;
  END LOOP;
  IF cardinality(ids) > 0 THEN
    DELETE FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND id = ANY (ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = ANY (message_turns);
    UPDATE turns SET message = NULL, partial = NULL, client = NULL, transcript_digest = NULL, request_digest = NULL, context = NULL, inbound = NULL
    WHERE tenant_id = the_tenant AND id = ANY (message_turns);
    -- The title is the beginning of the first message. The summary is about messages, and stays while one of them does.
    UPDATE conversations SET title = coalesce((SELECT left(content, 80) FROM messages WHERE tenant_id = the_tenant
        AND conversation_id = the_conversation AND role = 'user' AND seq IS NOT NULL ORDER BY seq LIMIT 1), ''),
      summary = CASE WHEN summary_until >= ends THEN summary END, summary_until = CASE WHEN summary_until >= ends THEN summary_until END,
      summary_untrusted = CASE WHEN summary_until >= ends THEN summary_untrusted END
    WHERE tenant_id = the_tenant AND id = the_conversation;
  END IF;
  ids := ARRAY(SELECT empty_turns(the_tenant, the_conversation, before, the_time) LIMIT most);
  DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = ANY (ids);
  DELETE FROM turns WHERE tenant_id = the_tenant AND id = ANY (ids);
  more := more OR cardinality(ids) = most;
  IF NOT more AND is_empty_conversation(the_tenant, the_conversation, before) THEN
    DELETE FROM approvals WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    UPDATE contacts SET conversation_id = NULL WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
    DELETE FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation;
    conversation_deleted := true;
  END IF;
END
$$;

-- One batch over the conversations after the given one. A conversation with more than fits comes first in the next batch. next_id is null
-- after the last conversation.
CREATE OR REPLACE FUNCTION sweep_messages(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT deleted_rows bigint, OUT deleted_conversations bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_conversations constant bigint := 200;
  most_messages constant bigint := 200;
  checked bigint := 0;
  found_rows bigint;
  found_end record;
  result record;
  key record;
BEGIN
  deleted_rows := 0;
  deleted_conversations := 0;
  next_tenant := after_tenant;
  next_id := after_id;
  FOR key IN SELECT tenant_id, id, created_at FROM conversations WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most_conversations LOOP
    checked := checked + 1;
    IF key.created_at < before THEN
      found_end := deletable_end(key.tenant_id, key.id, before, the_time, CASE WHEN dry_run THEN 9223372036854775807 ELSE most_messages END);
      SELECT count(*) INTO found_rows FROM deletable_messages(key.tenant_id, key.id, found_end.ends, before, the_time);
      IF (found_rows > 0 OR found_end.capped OR EXISTS (SELECT 1 FROM empty_turns(key.tenant_id, key.id, before, the_time))
          OR is_empty_conversation(key.tenant_id, key.id, before)) AND NOT has_open_turn(key.tenant_id, key.id) THEN
        IF dry_run THEN
          deleted_rows := deleted_rows + found_rows;
        ELSE
          result := delete_old_messages(key.tenant_id, key.id, before, the_time, most_messages);
          deleted_rows := deleted_rows + result.deleted;
          deleted_conversations := deleted_conversations + result.conversation_deleted::int;
          IF result.more THEN RETURN; END IF;
        END IF;
      END IF;
    END IF;
    next_tenant := key.tenant_id;
    next_id := key.id;
    IF deleted_rows >= most_messages AND NOT dry_run THEN RETURN; END IF;
  END LOOP;
  IF checked < most_conversations THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- Deletes the calls of one turn, with attempts and approvals; returns how many. A turn outside any conversation is a stream of its own and is
-- deleted too.
CREATE OR REPLACE FUNCTION delete_old_calls(the_tenant uuid, the_conversation uuid, the_turn uuid, before timestamptz, the_time timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  deleted bigint;
BEGIN
  IF NOT try_lock_lease(the_tenant, coalesce(the_conversation, the_turn)) THEN RETURN 0; END IF;
  -- Checked once more under the lease, in a statement of its own: a turn may have started, or the message that settled an unknown
  -- outcome may just have been deleted.
  IF has_open_turn(the_tenant, the_conversation) OR NOT coalesce(may_delete_turn(the_tenant, the_turn, before, the_time), false) THEN RETURN 0; END IF;
  DELETE FROM call_attempts WHERE tenant_id = the_tenant
    AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = the_tenant AND turn_id = the_turn);
  DELETE FROM approvals WHERE tenant_id = the_tenant AND turn_id = the_turn;
  DELETE FROM tool_calls WHERE tenant_id = the_tenant AND turn_id = the_turn;
  GET DIAGNOSTICS deleted = ROW_COUNT;
  IF the_conversation IS NULL THEN
    DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_turn;
    DELETE FROM inbox WHERE tenant_id = the_tenant AND turn_id = the_turn;
    DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_turn;
    DELETE FROM turns WHERE tenant_id = the_tenant AND id = the_turn;
  END IF;
  RETURN deleted;
END
$$;

-- One batch over the turns after the given one.
CREATE OR REPLACE FUNCTION sweep_calls(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT deleted_rows bigint, OUT deleted_conversations bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_turns constant bigint := 1000;
  most_calls constant bigint := 200;
  checked bigint := 0;
  found_rows bigint;
  key record;
BEGIN
  deleted_rows := 0;
  deleted_conversations := 0;
  next_tenant := after_tenant;
  next_id := after_id;
  FOR key IN SELECT tenant_id, id, conversation_id, finished_at FROM turns WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most_turns LOOP
    checked := checked + 1;
    IF key.finished_at < before THEN
      SELECT count(*) INTO found_rows FROM tool_calls WHERE tenant_id = key.tenant_id AND turn_id = key.id;
      IF (found_rows > 0 OR key.conversation_id IS NULL) AND may_delete_turn(key.tenant_id, key.id, before, the_time)
          AND NOT has_open_turn(key.tenant_id, key.conversation_id) THEN
        IF dry_run THEN
          deleted_rows := deleted_rows + found_rows;
        ELSE
          deleted_rows := deleted_rows + delete_old_calls(key.tenant_id, key.conversation_id, key.id, before, the_time);
        END IF;
      END IF;
    END IF;
    next_tenant := key.tenant_id;
    next_id := key.id;
    IF deleted_rows >= most_calls AND NOT dry_run THEN RETURN; END IF;
  END LOOP;
  IF checked < most_turns THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- One batch of usage rows. A turn that has not ended counts its cost from them. What they used stays in the sums of their day.
CREATE OR REPLACE FUNCTION sweep_usage(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT deleted_rows bigint, OUT deleted_conversations bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000;
  checked bigint := 0;
  key record;
BEGIN
  deleted_rows := 0;
  deleted_conversations := 0;
  IF NOT dry_run THEN PERFORM lock_usage_days(); END IF;
  FOR key IN SELECT tenant_id, id, turn_id, created_at FROM api_usage WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most LOOP
    checked := checked + 1;
    next_tenant := key.tenant_id;
    next_id := key.id;
    CONTINUE WHEN key.created_at >= before OR EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = key.tenant_id AND turns.id = key.turn_id AND turns.finished_at IS NULL);
    IF dry_run THEN
      deleted_rows := deleted_rows + 1;
    ELSE
      IF NOT EXISTS (SELECT 1 FROM usage_daily WHERE usage_daily.tenant_id = key.tenant_id AND day = utc_day(key.created_at) AND complete) THEN
        PERFORM add_usage(key.tenant_id, key.created_at, key.created_at + interval '1 second', key.id);
      END IF;
      DELETE FROM api_usage WHERE tenant_id = key.tenant_id AND id = key.id;
      IF FOUND THEN deleted_rows := deleted_rows + 1; END IF;
    END IF;
  END LOOP;
  IF checked < most THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- The number, or a lower one: no turn has events on both sides of the result.
CREATE OR REPLACE FUNCTION below_turns(the_tenant uuid, the_stream uuid, the_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  moved bigint := the_seq;
BEGIN
  WHILE moved IS NOT NULL LOOP
    the_seq := moved;
    SELECT min(seq) INTO moved FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq < the_seq
      AND turn_id IN (SELECT turn_id FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq >= the_seq);
  END LOOP;
  RETURN the_seq;
END
$$;

-- The number, or a higher one: no turn has events on both sides of the result.
CREATE OR REPLACE FUNCTION above_turns(the_tenant uuid, the_stream uuid, the_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  moved bigint := the_seq;
BEGIN
  WHILE moved IS NOT NULL LOOP
    the_seq := moved;
    SELECT max(seq) + 1 INTO moved FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq >= the_seq
      AND turn_id IN (SELECT turn_id FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND seq < the_seq);
  END LOOP;
  RETURN the_seq;
END
$$;

-- The first event of a stream and the first one that stays: younger than before, of a turn that has not ended, or of a turn with such an
-- event. All events of a turn are on the same side. Null without events.
CREATE OR REPLACE FUNCTION old_events(the_tenant uuid, the_stream uuid, before timestamptz, OUT first_seq bigint, OUT first_kept bigint)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(seq), max(seq) + 1 INTO first_seq, first_kept FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream;
  IF first_seq IS NULL THEN RETURN; END IF;
  first_kept := coalesce((SELECT seq FROM events WHERE tenant_id = the_tenant AND conversation_id = the_stream AND (created_at >= before
      OR EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = the_tenant AND turns.id = events.turn_id AND turns.finished_at IS NULL))
    ORDER BY seq LIMIT 1), first_kept);
  IF first_kept > first_seq THEN first_kept := below_turns(the_tenant, the_stream, first_kept); END IF;
END
$$;

-- How many events delete_events would delete.
CREATE OR REPLACE FUNCTION count_old_events(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT deleted_rows bigint, OUT deleted_conversations bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000;
  checked bigint := 0;
  found_rows bigint;
  key record;
BEGIN
  deleted_rows := 0;
  deleted_conversations := 0;
  FOR key IN SELECT tenant_id, conversation_id FROM leases WHERE (tenant_id, conversation_id) > (after_tenant, after_id)
    ORDER BY tenant_id, conversation_id LIMIT most LOOP
    checked := checked + 1;
    next_tenant := key.tenant_id;
    next_id := key.conversation_id;
    SELECT coalesce(first_kept - first_seq, 0) INTO found_rows FROM old_events(key.tenant_id, key.conversation_id, before);
    deleted_rows := deleted_rows + found_rows;
  END LOOP;
  IF checked < most THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;

-- One batch: deletes events older than before from the beginnings of the streams after the given one. A stream with more than fits comes
-- first in the next batch; next_stream is null after the last stream. A stream never gets a gap, and the events of a turn go together.
CREATE OR REPLACE FUNCTION delete_events(before timestamptz, after_tenant uuid, after_stream uuid,
  OUT deleted bigint, OUT next_tenant uuid, OUT next_stream uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most_streams constant bigint := 200;
  most_events constant bigint := 2000;
  checked bigint := 0;
  begins bigint;
  horizon bigint;
  ends bigint;
  batch bigint;
  key record;
BEGIN
  deleted := 0;
  next_tenant := after_tenant;
  next_stream := after_stream;
  FOR key IN SELECT tenant_id, conversation_id FROM leases
    WHERE after_tenant IS NULL OR (tenant_id, conversation_id) > (after_tenant, after_stream)
    ORDER BY tenant_id, conversation_id LIMIT most_streams LOOP
    SELECT o.first_seq, o.first_kept INTO begins, horizon FROM old_events(key.tenant_id, key.conversation_id, before) AS o;
    IF begins IS NOT NULL THEN
      ends := horizon;
      IF horizon - begins > most_events - deleted THEN
        ends := below_turns(key.tenant_id, key.conversation_id, begins + most_events - deleted);
        -- A turn with more events than a batch is deleted at once, as a batch of its own.
        IF ends = begins AND deleted > 0 THEN RETURN; END IF;
        IF ends = begins THEN ends := above_turns(key.tenant_id, key.conversation_id, begins + most_events); END IF;
      END IF;
      DELETE FROM events WHERE tenant_id = key.tenant_id AND conversation_id = key.conversation_id AND seq < ends;
      GET DIAGNOSTICS batch = ROW_COUNT;
      deleted := deleted + batch;
      IF ends < horizon THEN RETURN; END IF;
    END IF;
    checked := checked + 1;
    next_tenant := key.tenant_id;
    next_stream := key.conversation_id;
  END LOOP;
  IF checked < most_streams THEN
    next_tenant := NULL;
    next_stream := NULL;
  END IF;
END
$$;
