-- Conversations, and equal calls outside any conversation.

-- Deletes a conversation and everything in it; its usage rows stay. A conversation that only awaits approvals may be deleted.
CREATE OR REPLACE FUNCTION delete_conversation(the_tenant uuid, the_conversation uuid, is_retry boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation FOR UPDATE;
  PERFORM 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL
    AND status <> 'awaiting_approval' LIMIT 1;
  IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy'; END IF;
  DELETE FROM inbox WHERE tenant_id = the_tenant
    AND turn_id IN (SELECT id FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation);
  DELETE FROM outbox WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  UPDATE contacts SET conversation_id = NULL WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM approvals WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM call_attempts WHERE tenant_id = the_tenant
    AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = the_tenant AND conversation_id = the_conversation);
  DELETE FROM tool_calls WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM events WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation;
  DELETE FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation;
  -- After an attempt whose answer was lost, the row is missing because of that attempt.
  RETURN FOUND OR is_retry;
END
$$;

-- The call that runs among equal ones: the given one, one whose row is running, or one that claimed the key within the window.
CREATE OR REPLACE FUNCTION claim_dedupe_key(the_tenant uuid, the_key text, the_call uuid, claim_window interval) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
  leader uuid;
BEGIN
  INSERT INTO dedupe_claims (tenant_id, dedupe_key, call_id, claimed_at) VALUES (the_tenant, the_key, the_call, clock_timestamp())
  ON CONFLICT (tenant_id, dedupe_key) DO UPDATE SET call_id = excluded.call_id, claimed_at = excluded.claimed_at
  WHERE dedupe_claims.claimed_at < excluded.claimed_at - claim_window
    OR EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.tenant_id = the_tenant AND tool_calls.id = dedupe_claims.call_id AND status <> 'running')
  RETURNING call_id INTO leader;
  IF leader IS NULL THEN
    RETURN (SELECT call_id FROM dedupe_claims WHERE tenant_id = the_tenant AND dedupe_key = the_key);
  END IF;
  DELETE FROM dedupe_claims WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM dedupe_claims WHERE tenant_id = the_tenant AND claimed_at < clock_timestamp() - claim_window * 6
    ORDER BY claimed_at LIMIT 10 FOR UPDATE SKIP LOCKED));
  SELECT id INTO leader FROM tool_calls
  WHERE tenant_id = the_tenant AND dedupe_key = the_key AND status = 'running' ORDER BY created_at LIMIT 1;
  RETURN coalesce(leader, the_call);
END
$$;

-- Refuses while a turn of the conversation has not ended. The lock makes turns that start at the same time wait.
CREATE OR REPLACE FUNCTION check_idle(the_tenant uuid, the_conversation uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_conversation FOR UPDATE;
  PERFORM 1 FROM turns WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND finished_at IS NULL LIMIT 1;
  IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy'; END IF;
END
$$;

-- Messages that belong to no turn. After an attempt whose answer was lost they may be there already.
CREATE OR REPLACE FUNCTION append_items(the_tenant uuid, the_conversation uuid, doc jsonb, the_time timestamptz, is_retry boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  first_seq bigint;
BEGIN
  PERFORM check_idle(the_tenant, the_conversation);
  PERFORM 1 FROM conversations WHERE tenant_id = the_tenant AND id = the_conversation;
  IF NOT FOUND THEN RETURN false; END IF;
  IF is_retry AND EXISTS (SELECT 1 FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation
      AND id = (doc -> 'messages' -> 0 ->> 'id')::uuid) THEN
    RETURN true;
  END IF;
  UPDATE messages SET content = result ->> 'content', status = result ->> 'status', tokens = NULL,
    metadata = coalesce((result ->> 'metadata')::jsonb, metadata)
  FROM jsonb_array_elements(doc -> 'results') AS result
  WHERE messages.tenant_id = the_tenant AND messages.conversation_id = the_conversation
    AND messages.tool_call_id = result ->> 'tool_call_id' AND messages.status = 'pending';
  UPDATE leases SET next_message_seq = next_message_seq + jsonb_array_length(doc -> 'messages')
  WHERE tenant_id = the_tenant AND conversation_id = the_conversation
  RETURNING next_message_seq - jsonb_array_length(doc -> 'messages') INTO first_seq;
  PERFORM put_messages(the_tenant, the_conversation, NULL, the_time, doc -> 'messages', first_seq);
  PERFORM touch_conversation(the_tenant, the_conversation, the_time);
  RETURN true;
END
$$;

-- Changes messages outside turns: all of them, or none.
CREATE OR REPLACE FUNCTION edit_messages(the_tenant uuid, the_conversation uuid, edits jsonb, is_retry boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  edit record;
BEGIN
  PERFORM check_idle(the_tenant, the_conversation);
  FOR edit IN SELECT * FROM jsonb_to_recordset(edits) AS e (id uuid, change text, content text, tool_calls text, metadata text) LOOP
    IF edit.change = 'delete' THEN
      DELETE FROM messages WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND id = edit.id;
    ELSIF edit.change = 'replace' THEN
      UPDATE messages SET content = edit.content, tool_calls = edit.tool_calls::jsonb, metadata = edit.metadata::jsonb, tokens = NULL
      WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND id = edit.id;
    ELSE
      UPDATE messages SET content = '', status = 'pending', metadata = '{}', tokens = NULL
      WHERE tenant_id = the_tenant AND conversation_id = the_conversation AND id = edit.id;
    END IF;
    -- After an attempt whose answer was lost, a row may be missing because of that attempt.
    IF NOT FOUND AND NOT is_retry THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('message %s', edit.id); END IF;
  END LOOP;
END
$$;
