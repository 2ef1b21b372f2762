-- The outbox and the contacts of channels.
-- Whoever makes a row open writes its lane in the same transaction. A lane is deleted under its lock, by a statement that began after the lock
-- was taken and found no open row. So no open row is ever without a lane; a lane may be due too early, which the next claim corrects.

-- How far the clock of the database is ahead of a process that takes this for the time. Less than a second harms nothing and may be the time
-- that the request took.
CREATE OR REPLACE FUNCTION clock_difference(of_process timestamptz) RETURNS interval LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN abs(extract(epoch FROM difference)) < 1 THEN interval '0' ELSE date_trunc('milliseconds', difference) END
  FROM (SELECT clock_timestamp() - of_process AS difference) AS measured
$$;

-- The lane of a row, as lock_lanes takes it.
CREATE OR REPLACE FUNCTION lane_of(the_row outbox) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_build_object('lane', the_row.lane, 'channel', the_row.channel, 'account', the_row.account)
$$;

-- Locks the lanes of these objects in one order, and creates those that are missing; due not later than the time.
CREATE OR REPLACE FUNCTION lock_lanes(the_tenant uuid, the_lanes jsonb, due timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox_lanes AS known (tenant_id, lane, next_at, channel, account)
  SELECT the_tenant, lane, due, min(channel), min(account) FROM jsonb_to_recordset(the_lanes) AS list (lane text, channel text, account text)
  GROUP BY lane ORDER BY lane COLLATE "C"
  ON CONFLICT (tenant_id, lane) DO UPDATE SET next_at = least(known.next_at, excluded.next_at);
END
$$;

-- The row that a lane waits for: the one that is being sent, else the oldest pending one.
CREATE OR REPLACE FUNCTION outbox_head(the_tenant uuid, the_lane text) RETURNS SETOF outbox LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT * FROM outbox WHERE tenant_id = the_tenant AND lane = the_lane AND status = 'sending' ORDER BY id LIMIT 1;
  IF NOT FOUND THEN
    RETURN QUERY SELECT * FROM outbox WHERE tenant_id = the_tenant AND lane = the_lane AND status = 'pending' ORDER BY id LIMIT 1;
  END IF;
END
$$;

-- Writes when a locked lane is due next, or deletes it when it has no open row.
CREATE OR REPLACE FUNCTION refresh_lane(the_tenant uuid, the_lane text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  due timestamptz;
BEGIN
  SELECT next_at INTO due FROM outbox_head(the_tenant, the_lane);
  IF due IS NULL THEN
    DELETE FROM outbox_lanes WHERE tenant_id = the_tenant AND lane = the_lane;
  ELSE
    UPDATE outbox_lanes SET next_at = due WHERE tenant_id = the_tenant AND lane = the_lane AND next_at <> due;
  END IF;
END
$$;

-- Writes rows, each with the next part of its turn and channel. Lanes first: a writer that waits for one has written no row yet.
CREATE OR REPLACE FUNCTION put_outbox(the_tenant uuid, the_time timestamptz, items jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox_lanes AS known (tenant_id, lane, next_at, channel, account)
  SELECT the_tenant, item ->> 'lane', min((item ->> 'next_at')::timestamptz), min(item ->> 'channel'), min(item ->> 'account') FROM jsonb_array_elements(items) AS list (item)
  WHERE item ->> 'dead' IS NULL GROUP BY item ->> 'lane' ORDER BY (item ->> 'lane') COLLATE "C"
  ON CONFLICT (tenant_id, lane) DO UPDATE SET next_at = least(known.next_at, excluded.next_at);
  INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, user_id, conversation_id, turn_id, approval_id, part, status,
    repeatable, error_code, next_at, created_at, updated_at, body)
  SELECT the_tenant, id, channel, account, recipient, lane, user_id, conversation_id, turn_id, approval_id,
    CASE WHEN is_part THEN row_number() OVER (PARTITION BY is_part, turn_id, channel ORDER BY n) + coalesce((
      SELECT max(written.part) FROM outbox AS written WHERE written.tenant_id = the_tenant AND written.turn_id = new.turn_id
        AND written.channel = new.channel AND written.turn_id IS NOT NULL AND written.approval_id IS NULL AND written.channel <> 'webhook'), 0)
      ELSE 1 END,
    CASE WHEN dead IS NULL THEN 'pending' ELSE 'dead' END, repeatable, dead, next_at, the_time, the_time, body::json
  FROM (
    SELECT row.*, n, turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook' AS is_part
    FROM jsonb_array_elements(items) WITH ORDINALITY AS list (item, n),
      jsonb_to_record(item) AS row (id uuid, channel text, account text, recipient text, lane text, user_id text, conversation_id uuid,
        turn_id uuid, approval_id uuid, repeatable boolean, dead text, next_at timestamptz, body text)
  ) AS new;
END
$$;

-- Later parts of the row's turn die with it.
CREATE OR REPLACE FUNCTION kill_later_parts(dead outbox, the_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF dead.turn_id IS NULL OR dead.approval_id IS NOT NULL OR dead.channel = 'webhook' THEN RETURN; END IF;
  UPDATE outbox SET status = 'dead', error_code = 'earlier_part_dead', updated_at = the_time
  WHERE tenant_id = dead.tenant_id AND turn_id = dead.turn_id AND channel = dead.channel AND lane = dead.lane AND part > dead.part
    AND status = 'pending' AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook';
END
$$;

-- Parts of the row's turn become pending again: the later ones that died with it and, with earlier, the dead ones before it.
CREATE OR REPLACE FUNCTION revive_parts(the_row outbox, earlier boolean, the_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF the_row.turn_id IS NULL OR the_row.approval_id IS NOT NULL OR the_row.channel = 'webhook' THEN RETURN; END IF;
  UPDATE outbox SET status = 'pending', attempts = 0, error_code = NULL, error = NULL, external_id = NULL, first_at = NULL, next_at = the_time,
    updated_at = the_time
  WHERE tenant_id = the_row.tenant_id AND turn_id = the_row.turn_id AND channel = the_row.channel AND lane = the_row.lane AND status = 'dead'
    AND ((part > the_row.part AND error_code = 'earlier_part_dead') OR (part < the_row.part AND earlier))
    AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook';
END
$$;

-- Locks the lane of a row, together with the lanes of what is announced about it: whoever needs several lanes locks them in one order.
-- Returns whether the lane of the row exists.
CREATE OR REPLACE FUNCTION lock_lane_of(the_row outbox, the_time timestamptz, doc jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF doc ? 'announce' THEN
    PERFORM lock_lanes(the_row.tenant_id, (doc -> 'announce') || lane_of(the_row), the_time);
    RETURN true;
  END IF;
  PERFORM 1 FROM outbox_lanes WHERE tenant_id = the_row.tenant_id AND lane = the_row.lane FOR UPDATE;
  RETURN FOUND;
END
$$;

-- Takes the oldest open row of lanes that are due. error_code: the code with which the row is to be settled as dead, null where it is to be sent.
-- A claim whose answer was lost returns its rows once more.
-- What the process is sending already stays claimed. The clock of the database decides what is due.
CREATE OR REPLACE FUNCTION claim_outbox(the_owner text, the_channel text, the_account text, the_time timestamptz, process_until timestamptz,
  process_clock timestamptz, being_sent uuid[], most bigint, max_attempts bigint, max_age interval, is_retry boolean)
RETURNS SETOF outbox LANGUAGE plpgsql AS $$
DECLARE
  difference constant interval := clock_difference(process_clock);
  due_time constant timestamptz := the_time + difference;
  claimed_until constant timestamptz := process_until + difference;
  due record;
  head outbox;
  give_up text;
BEGIN
  IF is_retry THEN
    RETURN QUERY SELECT known.* FROM outbox_lanes AS lanes JOIN outbox AS known ON known.tenant_id = lanes.tenant_id AND known.lane = lanes.lane
      WHERE known.status = 'sending' AND known.owner = the_owner AND known.updated_at = the_time
        AND lanes.channel = the_channel AND lanes.account = the_account;
    IF FOUND THEN RETURN; END IF;
  END IF;
  FOR due IN SELECT tenant_id, lane FROM outbox_lanes WHERE channel = the_channel AND account = the_account AND next_at <= due_time
    ORDER BY next_at LIMIT most FOR UPDATE SKIP LOCKED LOOP
    SELECT * INTO head FROM outbox_head(due.tenant_id, due.lane);
    IF FOUND AND head.next_at <= due_time AND head.id = ANY (being_sent) THEN
      UPDATE outbox SET next_at = claimed_until WHERE tenant_id = head.tenant_id AND id = head.id;
    ELSIF FOUND AND head.next_at <= due_time THEN
      give_up := CASE
        WHEN head.status = 'pending' THEN NULL
        WHEN head.repeatable AND (head.attempts >= max_attempts OR due_time - head.first_at >= max_age) THEN 'attempts_exhausted'
        WHEN NOT head.repeatable AND head.ambiguous THEN 'outcome_unknown' END;
      UPDATE outbox SET status = 'sending', attempts = attempts + CASE WHEN give_up IS NULL THEN 1 ELSE 0 END, error_code = give_up,
        ambiguous = ambiguous OR (head.status = 'sending' AND NOT repeatable), owner = the_owner, next_at = claimed_until,
        first_at = coalesce(first_at, due_time), updated_at = the_time
      WHERE tenant_id = head.tenant_id AND id = head.id RETURNING * INTO head;
      IF FOUND THEN RETURN NEXT head; END IF;
    END IF;
    PERFORM refresh_lane(due.tenant_id, due.lane);
  END LOOP;
END
$$;

-- Writes what became of a sending; false where the row is not being sent by this owner in this attempt.
CREATE OR REPLACE FUNCTION settle_outbox(doc jsonb, is_retry boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  the_row outbox;
BEGIN
  SELECT * INTO the_row FROM outbox WHERE tenant_id = the_tenant AND id = (doc ->> 'id')::uuid;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM lock_lane_of(the_row, the_time, doc);
  UPDATE outbox SET status = doc ->> 'status', error_code = doc ->> 'code',
    next_at = coalesce((doc ->> 'next_at')::timestamptz + clock_difference((doc ->> 'clock')::timestamptz), next_at),
    error = doc ->> 'message', external_id = CASE doc ->> 'status' WHEN 'sent' THEN doc ->> 'external_id' ELSE external_id END,
    owner = CASE doc ->> 'status' WHEN 'sending' THEN owner END, updated_at = the_time
  WHERE tenant_id = the_tenant AND id = the_row.id AND status = 'sending' AND attempts = (doc ->> 'attempt')::bigint
    AND owner = doc ->> 'owner';
  IF NOT FOUND THEN
    -- Settled by an attempt whose answer was lost.
    RETURN EXISTS (SELECT 1 FROM outbox WHERE is_retry AND tenant_id = the_tenant AND id = the_row.id AND status = doc ->> 'status'
      AND attempts = (doc ->> 'attempt')::bigint AND updated_at = the_time);
  END IF;
  IF doc ->> 'status' = 'dead' THEN
    PERFORM kill_later_parts(the_row, the_time);
    IF doc ? 'announce' THEN PERFORM put_outbox(the_tenant, the_time, doc -> 'announce'); END IF;
  END IF;
  PERFORM refresh_lane(the_tenant, the_row.lane);
  RETURN true;
END
$$;

-- Applies a delivery report to the row that it names, by the row's id or by the channel's; no row where none matches, or where the inbox has the
-- report. A status only moves forward.
CREATE OR REPLACE FUNCTION report_outbox(doc jsonb, is_retry boolean) RETURNS SETOF outbox LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  the_status constant text := doc ->> 'status';
  -- The statuses from which a row moves forward to the reported one.
  earlier constant text[] := CASE the_status WHEN 'sent' THEN ARRAY['pending', 'held', 'sending']
    WHEN 'delivered' THEN ARRAY['pending', 'held', 'sending', 'sent'] WHEN 'read' THEN ARRAY['pending', 'held', 'sending', 'sent', 'delivered'] END;
  the_row outbox;
  locked boolean;
BEGIN
  IF NOT put_inbox(the_tenant, the_time, doc -> 'inbox', NULL) AND NOT (is_retry AND EXISTS (SELECT 1 FROM inbox WHERE tenant_id = the_tenant
    AND channel = doc #>> '{inbox,channel}' AND account = doc #>> '{inbox,account}' AND external_id = doc #>> '{inbox,external_id}'
    AND created_at = the_time)) THEN RETURN; END IF;
  SELECT * INTO the_row FROM outbox WHERE tenant_id = the_tenant AND id = (doc ->> 'outbox_id')::uuid
    AND channel = doc ->> 'channel' AND account = doc ->> 'account';
  IF NOT FOUND THEN
    SELECT * INTO the_row FROM outbox WHERE tenant_id = the_tenant AND external_id = doc ->> 'external_id'
      AND channel = doc ->> 'channel' AND account = doc ->> 'account' LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
  END IF;
  locked := lock_lane_of(the_row, the_time, doc);
  IF NOT locked AND (doc ? 'resend' OR the_row.status = 'dead') THEN
    PERFORM lock_lanes(the_tenant, jsonb_build_array(lane_of(the_row)), the_time);
    locked := true;
  END IF;
  IF the_status <> 'failed' THEN
    -- A row that was given up in doubt, or whose other sending failed, did arrive after all, and its later parts follow.
    UPDATE outbox SET status = the_status, external_id = doc ->> 'external_id', error_code = NULL, error = NULL, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = the_row.id AND status = 'dead'
      AND (error_code = 'outcome_unknown' OR external_id <> doc ->> 'external_id');
    IF FOUND THEN
      PERFORM lock_lanes(the_tenant, jsonb_build_array(lane_of(the_row)), the_time);
      locked := true;
      PERFORM revive_parts(the_row, false, the_time);
    ELSE
      UPDATE outbox SET status = the_status, external_id = coalesce(external_id, doc ->> 'external_id'), error_code = NULL, error = NULL,
        owner = NULL, updated_at = the_time
      WHERE tenant_id = the_tenant AND id = the_row.id AND status = ANY (earlier);
    END IF;
  ELSE
    -- A report about another sending of the row does not count.
    UPDATE outbox SET status = CASE WHEN doc ? 'resend' THEN 'pending' ELSE 'dead' END, body = coalesce((doc ->> 'resend')::json, body),
      -- A dead row keeps the id of the sending that failed: another one may have arrived.
      external_id = CASE WHEN doc ? 'resend' THEN NULL ELSE doc ->> 'external_id' END, error_code = doc ->> 'code', error = doc ->> 'message',
      next_at = coalesce((doc ->> 'resend_at')::timestamptz, the_time), owner = NULL, updated_at = the_time
    WHERE tenant_id = the_tenant AND id = the_row.id AND status IN ('sending', 'sent')
      AND (external_id IS NULL OR external_id = doc ->> 'external_id');
    IF FOUND AND NOT doc ? 'resend' THEN
      PERFORM kill_later_parts(the_row, the_time);
      IF doc ? 'announce' THEN PERFORM put_outbox(the_tenant, the_time, doc -> 'announce'); END IF;
    END IF;
  END IF;
  IF locked THEN PERFORM refresh_lane(the_tenant, the_row.lane); END IF;
  RETURN QUERY SELECT * FROM outbox WHERE tenant_id = the_tenant AND id = the_row.id;
END
$$;

-- A dead row becomes pending, and so do the dead parts of its turn before it and the later ones that died with it.
CREATE OR REPLACE FUNCTION retry_outbox(the_tenant uuid, the_id uuid, the_time timestamptz, is_retry boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  the_row outbox;
BEGIN
  SELECT * INTO the_row FROM outbox WHERE tenant_id = the_tenant AND id = the_id;
  IF NOT FOUND THEN RETURN false; END IF;
  IF the_row.status <> 'dead' THEN RETURN is_retry AND the_row.status = 'pending' AND the_row.updated_at = the_time; END IF;
  PERFORM lock_lanes(the_tenant, jsonb_build_array(lane_of(the_row)), the_time);
  UPDATE outbox SET status = 'pending', attempts = 0, error_code = NULL, error = NULL, external_id = NULL, first_at = NULL, next_at = the_time,
    updated_at = the_time
  WHERE tenant_id = the_tenant AND id = the_id AND status = 'dead';
  IF FOUND THEN
    PERFORM revive_parts(the_row, true, the_time);
    PERFORM refresh_lane(the_tenant, the_row.lane);
    RETURN true;
  END IF;
  PERFORM refresh_lane(the_tenant, the_row.lane);
  RETURN false;
END
$$;

-- Rows that a restore holds become pending: one and the held parts of its turn before it, or all. known: an earlier attempt, whose answer was
-- lost, has released them.
CREATE OR REPLACE FUNCTION release_outbox(the_tenant uuid, the_id uuid, the_time timestamptz, is_retry boolean,
  OUT released bigint, OUT known boolean)
LANGUAGE plpgsql AS $$
DECLARE
  ids uuid[] := ARRAY(SELECT id FROM outbox WHERE tenant_id = the_tenant AND status = 'held' AND (the_id IS NULL OR id = the_id));
BEGIN
  known := false;
  IF the_id IS NOT NULL THEN
    ids := ids || ARRAY(SELECT earlier.id FROM outbox AS named JOIN outbox AS earlier ON earlier.tenant_id = the_tenant
        AND earlier.turn_id = named.turn_id AND earlier.channel = named.channel AND earlier.lane = named.lane AND earlier.part < named.part
      WHERE named.tenant_id = the_tenant AND named.id = ANY (ids) AND named.approval_id IS NULL AND named.channel <> 'webhook'
        AND earlier.status = 'held' AND earlier.approval_id IS NULL);
  END IF;
  PERFORM lock_lanes(the_tenant, coalesce((SELECT jsonb_agg(DISTINCT lane_of(outbox)) FROM outbox WHERE tenant_id = the_tenant AND id = ANY (ids)),
    '[]'), the_time);
  UPDATE outbox SET status = 'pending', attempts = 0, first_at = NULL, next_at = the_time, updated_at = the_time
  WHERE tenant_id = the_tenant AND status = 'held' AND id = ANY (ids);
  GET DIAGNOSTICS released = ROW_COUNT;
  IF released = 0 AND is_retry THEN
    SELECT count(*) INTO released FROM outbox WHERE tenant_id = the_tenant AND status = 'pending' AND attempts = 0 AND updated_at = the_time
      AND (the_id IS NULL OR id = the_id);
    known := true;
  END IF;
END
$$;

-- Records an inbound item that starts no turn. With a notice, the rows are written only if the person got none for that long.
CREATE OR REPLACE FUNCTION record_inbound(doc jsonb, is_retry boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  notice constant jsonb := doc -> 'notice';
BEGIN
  IF NOT put_inbox(the_tenant, the_time, doc -> 'inbox', NULL) THEN
    RETURN EXISTS (SELECT 1 FROM inbox WHERE is_retry AND tenant_id = the_tenant AND channel = doc #>> '{inbox,channel}'
      AND account = doc #>> '{inbox,account}' AND external_id = doc #>> '{inbox,external_id}' AND created_at = the_time);
  END IF;
  IF notice IS NOT NULL THEN
    INSERT INTO contacts AS known (tenant_id, channel, account, person, address, noticed_at, created_at, updated_at)
    VALUES (the_tenant, notice ->> 'channel', notice ->> 'account', notice ->> 'person', notice ->> 'address', the_time, the_time, the_time)
    ON CONFLICT (tenant_id, channel, account, person) DO UPDATE SET noticed_at = excluded.noticed_at, updated_at = excluded.updated_at
    WHERE known.noticed_at IS NULL OR known.noticed_at <= (notice ->> 'since')::timestamptz;
    IF NOT FOUND THEN RETURN true; END IF;
  END IF;
  IF doc ? 'rows' THEN PERFORM put_outbox(the_tenant, the_time, doc -> 'rows'); END IF;
  RETURN true;
END
$$;

-- The conversation of a contact; both are created where they are missing. The row of the contact is locked, so two first messages get one.
CREATE OR REPLACE FUNCTION put_contact(doc jsonb) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  the_conversation uuid;
BEGIN
  INSERT INTO contacts AS known (tenant_id, channel, account, person, user_id, address, last_inbound_at, created_at, updated_at)
  VALUES (the_tenant, doc ->> 'channel', doc ->> 'account', doc ->> 'user_id', doc ->> 'user_id', doc ->> 'address',
    (doc ->> 'inbound_at')::timestamptz, the_time, the_time)
  ON CONFLICT (tenant_id, channel, account, person) DO UPDATE SET user_id = excluded.user_id, address = excluded.address,
    last_inbound_at = greatest(known.last_inbound_at, excluded.last_inbound_at), updated_at = excluded.updated_at
  RETURNING conversation_id INTO the_conversation;
  IF the_conversation IS NOT NULL THEN RETURN the_conversation; END IF;
  the_conversation := (doc ->> 'conversation_id')::uuid;
  INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
  VALUES (the_conversation, the_tenant, doc ->> 'user_id', doc ->> 'channel', doc ->> 'assistant', doc ->> 'title', '{}', the_time, the_time);
  UPDATE contacts SET conversation_id = the_conversation WHERE tenant_id = the_tenant AND channel = doc ->> 'channel'
    AND account = doc ->> 'account' AND person = doc ->> 'user_id';
  RETURN the_conversation;
END
$$;

-- Deletes what was or will be sent to a person or about the person's turns, and the person's contacts. Reports have the external id of their row
-- at the beginning of their own. The name of a lane contains an address.
CREATE OR REPLACE FUNCTION erase_outbox(the_tenant uuid, the_user text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  the_conversations constant uuid[] := ARRAY(SELECT id FROM conversations WHERE tenant_id = the_tenant AND user_id = the_user);
  the_turns constant uuid[] := ARRAY(SELECT id FROM turns WHERE tenant_id = the_tenant
    AND (user_id = the_user OR conversation_id = ANY (the_conversations)));
  -- What was sent to these before the person was a user has no user.
  the_addresses constant text[] := ARRAY(SELECT address FROM contacts WHERE tenant_id = the_tenant AND user_id = the_user
    UNION SELECT unnest(ARRAY[phone_key, whatsapp_user_id]) FROM users WHERE tenant_id = the_tenant AND id::text = the_user);
  ids uuid[];
  the_lane text;
BEGIN
  DELETE FROM inbox USING outbox WHERE outbox.tenant_id = the_tenant AND outbox.user_id = the_user AND outbox.external_id IS NOT NULL
    AND inbox.tenant_id = the_tenant AND inbox.channel = outbox.channel AND inbox.account = outbox.account AND inbox.turn_id IS NULL
    AND starts_with(inbox.external_id, outbox.external_id || ':');
  ids := ARRAY(SELECT id FROM outbox WHERE tenant_id = the_tenant
    AND (user_id = the_user OR turn_id = ANY (the_turns) OR conversation_id = ANY (the_conversations)
      OR (user_id IS NULL AND channel <> 'webhook' AND recipient = ANY (the_addresses))));
  -- In a statement of its own, before the rows: a claim takes its locks in this order too.
  PERFORM 1 FROM outbox_lanes WHERE tenant_id = the_tenant AND lane IN (SELECT lane FROM outbox WHERE tenant_id = the_tenant AND id = ANY (ids))
    ORDER BY lane COLLATE "C" FOR UPDATE;
  FOR the_lane IN WITH deleted AS (DELETE FROM outbox WHERE tenant_id = the_tenant AND id = ANY (ids) RETURNING lane)
    SELECT DISTINCT lane FROM deleted ORDER BY lane LOOP
    PERFORM 1 FROM outbox_lanes WHERE tenant_id = the_tenant AND lane = the_lane FOR UPDATE;
    IF FOUND THEN PERFORM refresh_lane(the_tenant, the_lane); END IF;
  END LOOP;
  DELETE FROM contacts WHERE tenant_id = the_tenant
    AND (user_id = the_user OR person = the_user OR (user_id IS NULL AND address = ANY (the_addresses)));
END
$$;

-- One batch of rows that were sent or are dead.
CREATE OR REPLACE FUNCTION sweep_outbox(before timestamptz, the_time timestamptz, after_tenant uuid, after_id uuid, dry_run boolean,
  OUT deleted_rows bigint, OUT deleted_conversations bigint, OUT next_tenant uuid, OUT next_id uuid)
LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000;
  checked bigint := 0;
  key record;
BEGIN
  deleted_rows := 0;
  deleted_conversations := 0;
  FOR key IN SELECT tenant_id, id, status, created_at FROM outbox WHERE (tenant_id, id) > (after_tenant, after_id)
    ORDER BY tenant_id, id LIMIT most LOOP
    checked := checked + 1;
    next_tenant := key.tenant_id;
    next_id := key.id;
    CONTINUE WHEN key.created_at >= before OR key.status IN ('pending', 'sending', 'held');
    IF NOT dry_run THEN
      DELETE FROM outbox WHERE tenant_id = key.tenant_id AND id = key.id AND status NOT IN ('pending', 'sending', 'held');
    END IF;
    IF dry_run OR FOUND THEN deleted_rows := deleted_rows + 1; END IF;
  END LOOP;
  IF checked < most THEN
    next_tenant := NULL;
    next_id := NULL;
  END IF;
END
$$;
