-- The seeds' search functions in `public` too (`migrate --compat-views`). Only a function of ours is replaced; where another program has that
-- name, nothing is changed.
DO $$
DECLARE
  our_schema text := current_schema();
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY[
    'text_search_chunks(query_text text, match_count integer, collection text)',
    'match_chunks(query_embedding text, match_count integer, collection text)',
    'match_chunks(query_embedding real[], match_count integer, collection text)'] LOOP
    IF to_regprocedure('public.' || regexp_replace(wanted, '(\(|, )[a-z_]+ ', '\1', 'g')) IS NOT NULL
       AND obj_description(to_regprocedure('public.' || regexp_replace(wanted, '(\(|, )[a-z_]+ ', '\1', 'g')), 'pg_proc')
       IS DISTINCT FROM 'werkruf compatibility function' THEN
      RAISE EXCEPTION USING ERRCODE = 'duplicate_function', MESSAGE = format('public.%s exists already and belongs to another program', wanted);
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION public.%s RETURNS TABLE (id uuid, document_id text, title text, content text, %s float8)
      LANGUAGE sql STABLE BEGIN ATOMIC SELECT * FROM %I.%s; END',
      replace(replace(wanted, 'integer,', 'integer DEFAULT 6,'), 'collection text', 'collection text DEFAULT ''default'''),
      CASE WHEN wanted LIKE 'text%' THEN 'bm25' ELSE 'similarity' END, our_schema, regexp_replace(wanted, ' (text|integer|real\[\])', '', 'g'));
    EXECUTE format('COMMENT ON FUNCTION public.%s IS ''werkruf compatibility function''', wanted);
  END LOOP;
END
$$;
