-- The seeds' views in `public` too (`migrate --compat-views`). Only a view of ours is replaced; where another program has that name,
-- nothing is changed.
DO $$
DECLARE
  our_schema text := current_schema();
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['chats', 'tool_call', 'api_usage_by_chat'] LOOP
    IF to_regclass(format('public.%I', wanted)) IS NOT NULL AND obj_description(to_regclass(format('public.%I', wanted)), 'pg_class')
       IS DISTINCT FROM 'werkruf compatibility view' THEN
      RAISE EXCEPTION USING ERRCODE = 'duplicate_table', MESSAGE = format('public.%s exists already and belongs to another program', wanted);
    END IF;
    EXECUTE format('DROP VIEW IF EXISTS public.%I', wanted);
    EXECUTE format('CREATE VIEW public.%I WITH (security_invoker = true) AS SELECT * FROM %I.%I', wanted, our_schema, wanted);
    EXECUTE format('COMMENT ON VIEW public.%I IS ''werkruf compatibility view''', wanted);
    EXECUTE format('GRANT SELECT ON public.%I TO werkruf_operator', wanted);
  END LOOP;
  GRANT USAGE ON SCHEMA public TO werkruf_operator;
END
$$;
