-- Daily sums of usage rows. A day is rolled up once, when it is over; what retention deletes of another day is added to its sums.
-- Both take one lock, so that no row is added twice.

CREATE OR REPLACE FUNCTION utc_day(the_time timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT to_char(the_time AT TIME ZONE 'UTC', 'YYYY-MM-DD')
$$;

CREATE OR REPLACE FUNCTION lock_usage_days() RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '.usage_daily', 0))
$$;

-- Adds the usage rows of a time inside a day to the sums of that day, or one of them. The caller knows that the day is not complete.
CREATE OR REPLACE FUNCTION add_usage(the_tenant uuid, first_time timestamptz, end_time timestamptz, the_row uuid) RETURNS void LANGUAGE sql AS $$
  INSERT INTO usage_daily (tenant_id, day, user_id, model, tool_name, complete, calls, tokens_prompt, tokens_cached, tokens_completion,
    tokens_reasoning, tokens_total, cost_nano_usd, unpriced_calls, estimated_calls)
  SELECT tenant_id, utc_day(first_time), user_id, model, coalesce(tool_name, ''), false, count(*), sum(tokens_prompt), sum(tokens_cached),
    sum(tokens_completion), sum(tokens_reasoning), sum(tokens_total), coalesce(sum(cost_nano_usd), 0), count(*) - count(cost_nano_usd),
    count(*) FILTER (WHERE estimated)
  FROM api_usage WHERE tenant_id = the_tenant AND created_at >= first_time AND created_at < end_time AND (the_row IS NULL OR id = the_row)
  GROUP BY 1, 2, 3, 4, 5
  ON CONFLICT (tenant_id, day, user_id, model, tool_name) DO UPDATE SET calls = usage_daily.calls + excluded.calls,
    tokens_prompt = usage_daily.tokens_prompt + excluded.tokens_prompt, tokens_cached = usage_daily.tokens_cached + excluded.tokens_cached,
    tokens_completion = usage_daily.tokens_completion + excluded.tokens_completion,
    tokens_reasoning = usage_daily.tokens_reasoning + excluded.tokens_reasoning,
    tokens_total = usage_daily.tokens_total + excluded.tokens_total, cost_nano_usd = usage_daily.cost_nano_usd + excluded.cost_nano_usd,
    unpriced_calls = usage_daily.unpriced_calls + excluded.unpriced_calls,
    estimated_calls = usage_daily.estimated_calls + excluded.estimated_calls
$$;

-- Rolls up the next day of every tenant that has one before the given time. Returns how many days these were.
CREATE OR REPLACE FUNCTION roll_up_usage(until timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  the_tenant uuid := '00000000-0000-0000-0000-000000000000';
  last_day text;
  first_time timestamptz;
  rolled_up bigint := 0;
BEGIN
  PERFORM lock_usage_days();
  LOOP
    SELECT tenant_id INTO the_tenant FROM api_usage WHERE tenant_id > the_tenant ORDER BY tenant_id LIMIT 1;
    EXIT WHEN NOT FOUND;
    SELECT day INTO last_day FROM usage_daily WHERE tenant_id = the_tenant AND complete ORDER BY day DESC LIMIT 1;
    SELECT date_trunc('day', created_at, 'UTC') INTO first_time FROM api_usage WHERE tenant_id = the_tenant
      AND created_at >= coalesce((last_day::date + 1)::timestamp AT TIME ZONE 'UTC', '-infinity') AND created_at < until
    ORDER BY created_at LIMIT 1;
    CONTINUE WHEN first_time IS NULL;
    PERFORM add_usage(the_tenant, first_time, first_time + interval '24 hours', NULL);
    UPDATE usage_daily SET complete = true WHERE tenant_id = the_tenant AND day = utc_day(first_time);
    rolled_up := rolled_up + 1;
  END LOOP;
  RETURN rolled_up;
END
$$;
