-- Budgets. A transaction locks counters after the lease and before usage rows and reservations, all of them at once and in one order: so no two
-- deadlock, and whoever has locked a counter alone changes its reservations and the usage rows that it counts. Counters, claims and changes are
-- JSON lists: {budget_id, subject, period_start, ...}. What every turn calls is plpgsql, which keeps its plans.

-- Budgets change one after another. Locked before counters; the rows of `budgets` come after them.
CREATE OR REPLACE FUNCTION lock_budgets() RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '.budgets', 0))
$$;

CREATE OR REPLACE FUNCTION budget_amount(the_unit text, tokens bigint, cost bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE the_unit WHEN 'tokens' THEN tokens WHEN 'nano_usd' THEN coalesce(cost, 0) ELSE 1 END
$$;

-- The first day of the period that a day is in, and of the period after it.
CREATE OR REPLACE FUNCTION budget_start(the_period text, the_day date) RETURNS date LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE the_period WHEN 'day' THEN the_day ELSE the_day - extract(day FROM the_day)::int + 1 END
$$;

CREATE OR REPLACE FUNCTION budget_end(the_period text, the_start date) RETURNS date LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE the_period WHEN 'day' THEN the_start + 1 ELSE (the_start + interval '1 month')::date END
$$;

CREATE OR REPLACE FUNCTION utc_date(the_time timestamptz) RETURNS date LANGUAGE sql IMMUTABLE AS $$
  SELECT (the_time AT TIME ZONE 'UTC')::date
$$;

-- Whose counter of a budget counts a usage row; null: none.
CREATE OR REPLACE FUNCTION budget_subject(b budgets, the_user text, the_key uuid, the_assistant text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT found FROM (SELECT CASE b.scope WHEN 'tenant' THEN '' WHEN 'user' THEN nullif(the_user, '') WHEN 'key' THEN the_key::text
    ELSE nullif(the_assistant, '') END AS found) AS named
  WHERE b.subject IS NULL OR b.subject = found
$$;

-- What usage rows of a period have used that the counters of a budget do not have. One statement, so that rows and counters are of one moment.
-- Calls of tools with a price are no model requests.
CREATE OR REPLACE FUNCTION uncounted(b budgets, the_start date) RETURNS TABLE (of_subject text, used bigint) LANGUAGE sql STABLE AS $$
  SELECT sums.subject, sums.used - coalesce(p.used, 0) FROM (
    SELECT budget_subject(b, user_id, key_id, assistant) AS subject, sum(budget_amount(b.unit, tokens_total, cost_nano_usd))::bigint AS used
    FROM api_usage WHERE tenant_id = b.tenant_id AND created_at >= (the_start - 1)::timestamp AT TIME ZONE 'UTC'
      AND created_at < (budget_end(b.period, the_start) + 2)::timestamp AT TIME ZONE 'UTC'
      AND coalesce(counted_on, utc_date(created_at)) >= the_start AND coalesce(counted_on, utc_date(created_at)) < budget_end(b.period, the_start)
      AND operation <> 'tool'
    GROUP BY 1) AS sums
  LEFT JOIN budget_periods AS p ON p.tenant_id = b.tenant_id AND p.budget_id = b.id AND p.subject = sums.subject AND p.period_start = the_start
  WHERE sums.subject IS NOT NULL AND sums.used > coalesce(p.used, 0)
$$;

-- Locks a counter, and makes the row where it is missing. When the budget was made, everybody who had used something got one. A period that was over
-- then has none.
CREATE OR REPLACE FUNCTION lock_counter(b budgets, the_subject text, the_start date) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM budget_periods WHERE tenant_id = b.tenant_id AND budget_id = b.id AND subject = the_subject AND period_start = the_start FOR UPDATE;
  IF FOUND OR budget_end(b.period, the_start) <= utc_date(b.created_at) THEN RETURN; END IF;
  -- The wait for the lock may have ended with the deletion of the budget; then there is nothing to lock.
  INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved)
  SELECT tenant_id, id, the_subject, the_start, 0, 0 FROM budgets WHERE tenant_id = b.tenant_id AND id = b.id FOR KEY SHARE
  ON CONFLICT (tenant_id, budget_id, subject, period_start) DO NOTHING;
  PERFORM 1 FROM budget_periods WHERE tenant_id = b.tenant_id AND budget_id = b.id AND subject = the_subject AND period_start = the_start FOR UPDATE;
END
$$;

-- Locks counters. Those of a budget that was deleted are skipped.
CREATE OR REPLACE FUNCTION lock_counters(the_tenant uuid, counters jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  item record;
BEGIN
  FOR item IN
    SELECT b, key.subject, key.period_start
    FROM (SELECT DISTINCT * FROM jsonb_to_recordset(counters) AS k (budget_id uuid, subject text, period_start date)) AS key
    JOIN budgets AS b ON b.tenant_id = the_tenant AND b.id = key.budget_id
    ORDER BY array_position(ARRAY['tenant', 'user', 'key', 'assistant'], b.scope), key.subject COLLATE "C", b.period, b.unit, b.id, key.period_start
  LOOP
    PERFORM lock_counter(item.b, item.subject, item.period_start);
  END LOOP;
END
$$;

-- The first claim that has no room, with the counter as it is; null where all have. changes: what the same transaction changes before. less: what a
-- usage row among the changes has used of the claim already.
CREATE OR REPLACE FUNCTION refused_claim(the_tenant uuid, claims jsonb, changes jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT jsonb_build_object('claim', n - 1, 'used', p.used + c.used - claim.less, 'reserved', p.reserved + c.reserved)
  FROM jsonb_array_elements(claims) WITH ORDINALITY AS list (item, n)
  CROSS JOIN LATERAL jsonb_to_record(item) AS claim (budget_id uuid, subject text, period_start date, most bigint, amount bigint, less bigint)
  JOIN budget_periods AS p ON p.tenant_id = the_tenant AND p.budget_id = claim.budget_id AND p.subject = claim.subject AND p.period_start = claim.period_start
  CROSS JOIN LATERAL (SELECT coalesce(sum(x.used), 0)::bigint AS used, coalesce(sum(x.reserved), 0)::bigint AS reserved
    FROM jsonb_to_recordset(changes) AS x (budget_id uuid, subject text, period_start date, used bigint, reserved bigint)
    WHERE x.budget_id = claim.budget_id AND x.subject = claim.subject AND x.period_start = claim.period_start) AS c
  WHERE p.used::numeric + c.used + p.reserved + c.reserved + claim.amount - claim.less > claim.most ORDER BY n LIMIT 1);
END
$$;

-- Writes each counter once.
CREATE OR REPLACE FUNCTION change_counters(the_tenant uuid, changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE budget_periods AS p SET used = p.used + c.used, reserved = greatest(p.reserved + c.reserved, 0)
  FROM (SELECT budget_id, subject, period_start, coalesce(sum(used), 0)::bigint AS used, coalesce(sum(reserved), 0)::bigint AS reserved
    FROM jsonb_to_recordset(changes) AS x (budget_id uuid, subject text, period_start date, used bigint, reserved bigint) GROUP BY 1, 2, 3) AS c
  WHERE p.tenant_id = the_tenant AND p.budget_id = c.budget_id AND p.subject = c.subject AND p.period_start = c.period_start
    AND (c.used <> 0 OR c.reserved <> 0);
END
$$;

-- Stores a reservation whose claims have room, and returns the changes of their counters.
CREATE OR REPLACE FUNCTION put_reservation(the_tenant uuid, the_turn uuid, reservation jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  changes jsonb;
BEGIN
  WITH claims AS (
    SELECT claim.* FROM jsonb_to_recordset(reservation -> 'claims') AS claim (budget_id uuid, subject text, period_start date, amount bigint, less bigint)
    JOIN budget_periods USING (budget_id, subject, period_start) WHERE tenant_id = the_tenant AND claim.amount > claim.less
  ), stored AS (
    INSERT INTO budget_reservations (tenant_id, id, budget_id, subject, period_start, amount, turn_id, expires_at)
    SELECT the_tenant, (reservation ->> 'id')::uuid, budget_id, subject, period_start, claims.amount - less, the_turn, (reservation ->> 'expires_at')::timestamptz
    FROM claims RETURNING budget_id, subject, period_start, amount
  )
  SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', budget_id, 'subject', subject, 'period_start', period_start, 'reserved', amount)), '[]') INTO changes FROM stored;
  RETURN changes;
END
$$;

-- Deletes reservations whose counters are locked, and returns the changes of these.
CREATE OR REPLACE FUNCTION drop_reservations(the_tenant uuid, the_ids uuid[], the_turn uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  changes jsonb;
BEGIN
  WITH ended AS (
    DELETE FROM budget_reservations WHERE tenant_id = the_tenant AND (id = ANY (the_ids) OR turn_id = the_turn)
    RETURNING budget_id, subject, period_start, amount
  )
  SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', budget_id, 'subject', subject, 'period_start', period_start, 'reserved', -amount)), '[]') INTO changes FROM ended;
  RETURN changes;
END
$$;

CREATE OR REPLACE FUNCTION counters_of_reservations(the_tenant uuid, the_ids uuid[], the_turn uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', budget_id, 'subject', subject, 'period_start', period_start, 'reserved', -amount)), '[]')
  FROM budget_reservations WHERE tenant_id = the_tenant AND (id = ANY (the_ids) OR turn_id = the_turn));
END
$$;

-- What usage rows that are about to be written change: the difference to the estimate that a row replaces, on the day that this one counts on.
CREATE OR REPLACE FUNCTION usage_changes(the_tenant uuid, items jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', c.budget_id, 'subject', c.subject,
    'period_start', CASE WHEN old.id IS NULL THEN c.period_start ELSE budget_start(c.period, coalesce(old.counted_on, utc_date(old.created_at))) END,
    'used', CASE WHEN old.id IS NULL THEN budget_amount(c.unit, u.tokens_total, u.cost_nano_usd)
      WHEN old.estimated THEN budget_amount(c.unit, u.tokens_total, u.cost_nano_usd) - budget_amount(c.unit, old.tokens_total, old.cost_nano_usd)
      ELSE 0 END)), '[]')
  FROM jsonb_to_recordset(items) AS u (id uuid, tokens_total bigint, cost_nano_usd bigint, counted_in jsonb)
  CROSS JOIN LATERAL jsonb_to_recordset(u.counted_in) AS c (budget_id uuid, subject text, period text, period_start date, unit text)
  -- With a limit the row is always found by its key, however large the table is.
  LEFT JOIN LATERAL (SELECT * FROM api_usage WHERE tenant_id = the_tenant AND api_usage.id = u.id LIMIT 1) AS old ON true);
END
$$;

-- Writes usage rows and counts them, ends their reservations and, with `releases`, all of the turn, then reserves. Returns the claim that has no
-- room, and then, if `whole`, has written nothing.
CREATE OR REPLACE FUNCTION write_usage(the_tenant uuid, the_user text, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb,
  releases boolean, reservation jsonb, whole boolean)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  ended constant uuid[] := ARRAY(SELECT (item ->> 'reservation')::uuid FROM jsonb_array_elements(items) AS list (item) WHERE item ? 'reservation');
  released constant uuid := CASE WHEN releases THEN the_turn END;
  claims constant jsonb := coalesce(reservation -> 'claims', '[]');
  budgeted constant boolean := releases OR reservation IS NOT NULL OR cardinality(ended) > 0 OR jsonb_path_exists(items, '$[*].counted_in');
  changes jsonb;
  refused jsonb;
BEGIN
  IF budgeted THEN
    PERFORM lock_counters(the_tenant, usage_changes(the_tenant, items) || counters_of_reservations(the_tenant, ended, released) || claims);
    -- Read again: now nobody else changes them.
    changes := usage_changes(the_tenant, items);
    refused := refused_claim(the_tenant, claims, changes || counters_of_reservations(the_tenant, ended, released));
    IF whole AND refused IS NOT NULL THEN RETURN refused; END IF;
    changes := changes || drop_reservations(the_tenant, ended, released);
    IF refused IS NULL AND reservation IS NOT NULL THEN changes := changes || put_reservation(the_tenant, the_turn, reservation); END IF;
    PERFORM change_counters(the_tenant, changes);
  END IF;
  INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model, operation,
    tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd, request_id, started_at, took_ms,
    tool_name, assistant, counted_on)
  SELECT id, the_tenant, the_user, the_conversation, the_turn, call_id, key_id, the_time, provider, model, operation,
    tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd, request_id, started_at, took_ms,
    tool_name, assistant, counted_on
  FROM jsonb_to_recordset(items) AS u (id uuid, call_id uuid, key_id uuid, provider text, model text, operation text,
    tokens_prompt bigint, tokens_cached bigint, tokens_completion bigint, tokens_reasoning bigint, tokens_total bigint,
    estimated boolean, cost_nano_usd bigint, request_id text, started_at timestamptz, took_ms bigint, tool_name text, assistant text, counted_on date)
  -- A request of a tool has an estimated row while it is in progress; the final tokens replace the estimate.
  ON CONFLICT (tenant_id, id) DO UPDATE SET model = excluded.model, request_id = excluded.request_id, took_ms = excluded.took_ms,
    tokens_prompt = excluded.tokens_prompt, tokens_cached = excluded.tokens_cached, tokens_completion = excluded.tokens_completion,
    tokens_reasoning = excluded.tokens_reasoning, tokens_total = excluded.tokens_total, estimated = excluded.estimated, cost_nano_usd = excluded.cost_nano_usd
    WHERE api_usage.estimated;
  RETURN refused;
END
$$;

-- Reserves for a request outside the commits of a turn. A second attempt finds what the first one stored.
CREATE OR REPLACE FUNCTION reserve_budgets(the_tenant uuid, the_user text, the_conversation uuid, the_turn uuid, the_time timestamptz, items jsonb,
  reservation jsonb, is_retry boolean)
RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF is_retry AND (EXISTS (SELECT 1 FROM budget_reservations WHERE tenant_id = the_tenant AND id = (reservation ->> 'id')::uuid)
    OR EXISTS (SELECT 1 FROM api_usage WHERE tenant_id = the_tenant AND id = (items #>> '{0,id}')::uuid))
  THEN RETURN NULL; END IF;
  RETURN write_usage(the_tenant, the_user, the_conversation, the_turn, the_time, items, false, reservation, true);
END
$$;

-- The refusal of a write that was committed already; null where its reservation was stored, or nothing was to be reserved.
CREATE OR REPLACE FUNCTION refused_before(the_tenant uuid, reservation jsonb) RETURNS jsonb LANGUAGE sql AS $$
  SELECT coalesce(refused_claim(the_tenant, reservation -> 'claims', '[]'), jsonb_build_object('claim', 0, 'used', 0, 'reserved', 0))
  WHERE jsonb_path_exists(reservation, '$.claims[*].amount ? (@ > 0)')
    AND NOT EXISTS (SELECT 1 FROM budget_reservations WHERE tenant_id = the_tenant AND id = (reservation ->> 'id')::uuid)
$$;

-- What deleting a usage row changes.
CREATE OR REPLACE FUNCTION deletion_changes(the_tenant uuid, the_row uuid) RETURNS jsonb LANGUAGE sql AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', p.budget_id, 'subject', p.subject, 'period_start', p.period_start,
    'used', -budget_amount(b.unit, u.tokens_total, u.cost_nano_usd))), '[]')
  FROM api_usage AS u JOIN budgets AS b ON b.tenant_id = the_tenant
  JOIN budget_periods AS p ON p.tenant_id = the_tenant AND p.budget_id = b.id AND p.subject = budget_subject(b, u.user_id, u.key_id, u.assistant)
    AND p.period_start = budget_start(b.period, coalesce(u.counted_on, utc_date(u.created_at)))
  WHERE u.tenant_id = the_tenant AND u.id = the_row
$$;

-- Deletes the usage row, and ends the reservation, of a request that was never sent.
CREATE OR REPLACE FUNCTION drop_usage(the_tenant uuid, the_row uuid, the_reservation uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_counters(the_tenant, deletion_changes(the_tenant, the_row) || counters_of_reservations(the_tenant, ARRAY[the_reservation], NULL));
  PERFORM change_counters(the_tenant, deletion_changes(the_tenant, the_row) || drop_reservations(the_tenant, ARRAY[the_reservation], NULL));
  DELETE FROM api_usage WHERE tenant_id = the_tenant AND id = the_row;
END
$$;

-- Counts the usage rows from before every process knew the budget, in the periods that begin on these days. Rows that are counted meanwhile change
-- nothing about them, so the counters are locked afterwards.
CREATE OR REPLACE FUNCTION settle_budget(the_tenant uuid, the_budget uuid, starts date[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  b budgets;
  changes jsonb;
BEGIN
  PERFORM lock_budgets();
  SELECT * INTO b FROM budgets WHERE tenant_id = the_tenant AND id = the_budget;
  IF NOT FOUND OR b.settled THEN RETURN; END IF;
  SELECT coalesce(jsonb_agg(jsonb_build_object('budget_id', the_budget, 'subject', found.of_subject, 'period_start', the_start, 'used', found.used)), '[]')
  INTO changes FROM unnest(starts) AS s (the_start) CROSS JOIN LATERAL uncounted(b, the_start) AS found;
  IF b.scope = 'tenant' OR b.subject IS NOT NULL THEN
    -- A budget for one counter always has it.
    changes := changes || jsonb_build_object('budget_id', the_budget, 'subject', coalesce(b.subject, ''), 'period_start', starts[1], 'used', 0);
  END IF;
  PERFORM lock_counters(the_tenant, changes);
  PERFORM change_counters(the_tenant, changes);
END
$$;

-- Releases expired reservations of all tenants. Returns how many there were.
CREATE OR REPLACE FUNCTION release_expired(the_time timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  the_tenant uuid;
  ids uuid[];
  released bigint := 0;
BEGIN
  FOR the_tenant, ids IN
    SELECT tenant_id, array_agg(DISTINCT id) FROM budget_reservations WHERE expires_at <= the_time GROUP BY tenant_id ORDER BY tenant_id
  LOOP
    PERFORM lock_counters(the_tenant, counters_of_reservations(the_tenant, ids, NULL));
    -- While this waited for the counters, a turn may have been continued and have reserved again under its id.
    SELECT coalesce(array_agg(DISTINCT id), '{}') INTO ids FROM budget_reservations WHERE tenant_id = the_tenant AND id = ANY (ids) AND expires_at <= the_time;
    released := released + cardinality(ids);
    PERFORM change_counters(the_tenant, drop_reservations(the_tenant, ids, NULL));
  END LOOP;
  RETURN released;
END
$$;
