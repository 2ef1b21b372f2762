-- Leases of streams.
-- A function that changes a conversation locks its lease first, so that two of them never deadlock. Functions run with the rights of the
-- caller, behind row-level security. Error codes of our own: WK001 fenced, WK002 busy, WK003 moved ("what id").

-- Locks the lease of a stream, and creates the row where it is missing.
CREATE OR REPLACE FUNCTION lock_lease(the_tenant uuid, the_stream uuid) RETURNS leases LANGUAGE plpgsql AS $$
DECLARE
  lease leases;
BEGIN
  SELECT * INTO lease FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES (the_tenant, the_stream, 0, 1, 1)
    ON CONFLICT (tenant_id, conversation_id) DO NOTHING;
    SELECT * INTO lease FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE;
  END IF;
  RETURN lease;
END
$$;

-- Locks the lease where no other transaction has it locked at this moment; false where one has. A lease that has no row is free.
CREATE OR REPLACE FUNCTION try_lock_lease(the_tenant uuid, the_stream uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN true; END IF;
  RETURN NOT EXISTS (SELECT 1 FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream);
END
$$;

-- Claims the lease of a turn that had started before. A transaction that holds the lease's lock is not waited for.
CREATE OR REPLACE FUNCTION take_over(the_tenant uuid, the_turn uuid, the_owner text, ttl interval, is_retry boolean, OUT the_stream uuid, OUT claimed_epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
  lease leases;
  waited boolean;
BEGIN
  SELECT coalesce(conversation_id, id) INTO the_stream FROM turns WHERE tenant_id = the_tenant AND id = the_turn AND finished_at IS NULL;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  SELECT * INTO lease FROM leases WHERE tenant_id = the_tenant AND conversation_id = the_stream FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy'; END IF;
  SELECT status = 'awaiting_approval' INTO waited FROM turns WHERE tenant_id = the_tenant AND id = the_turn AND finished_at IS NULL;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('turn %s', the_turn); END IF;
  -- A turn that awaited approval starts like any other: no turn may come between a call and its result in an abandoned turn.
  IF lease.owner IS NOT NULL AND (waited OR NOT (lease.owner IN (the_owner, '') OR lease.expires_at <= clock_timestamp())) THEN
    RAISE EXCEPTION USING ERRCODE = 'WK002', MESSAGE = 'busy';
  END IF;
  -- A lease that still has an owner was lost by a task, not released: that counts as a takeover. From here on a crash counts
  -- as one too, also for a turn that awaited approval.
  UPDATE turns SET status = CASE WHEN waited THEN 'acting' ELSE status END,
    takeovers = takeovers + lost.times, stalled = stalled + lost.times
  FROM (SELECT CASE WHEN lease.owner <> '' AND NOT (is_retry AND lease.owner = the_owner) THEN 1 ELSE 0 END AS times) AS lost
  WHERE tenant_id = the_tenant AND id = the_turn AND (waited OR lost.times > 0);
  UPDATE leases SET owner = the_owner, epoch = epoch + 1, expires_at = clock_timestamp() + ttl
  WHERE tenant_id = the_tenant AND conversation_id = the_stream RETURNING epoch INTO claimed_epoch;
END
$$;

-- Releases the lease without ending the turn.
CREATE OR REPLACE FUNCTION release_lease(the_tenant uuid, the_stream uuid, the_owner text, the_epoch bigint, is_retry boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE leases SET owner = '' WHERE tenant_id = the_tenant AND conversation_id = the_stream AND epoch = the_epoch
    AND (owner = the_owner OR (is_retry AND owner = ''));
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = 'fenced'; END IF;
END
$$;
