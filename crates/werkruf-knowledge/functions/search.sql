-- The seeds' `text_search_chunks` and `match_chunks`, for programs that query the database. The server searches with its own index
-- (`src/index.rs`) and needs none of this; the rankings of both may differ. Functions show the rows that row-level security shows the
-- caller; a caller who sees several tenants gets the best of all of them.

-- The configuration of PostgreSQL's text search for a language code such as `de-AT`; `simple`, which has no stems, for any other.
CREATE OR REPLACE FUNCTION search_configuration(language text) RETURNS regconfig LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  CASE lower(substring(language from '^[^-_]*'))
    WHEN 'ar' THEN 'pg_catalog.arabic'::regconfig WHEN 'ca' THEN 'pg_catalog.catalan' WHEN 'da' THEN 'pg_catalog.danish'
    WHEN 'de' THEN 'pg_catalog.german' WHEN 'el' THEN 'pg_catalog.greek' WHEN 'en' THEN 'pg_catalog.english'
    WHEN 'es' THEN 'pg_catalog.spanish' WHEN 'eu' THEN 'pg_catalog.basque' WHEN 'fi' THEN 'pg_catalog.finnish'
    WHEN 'fr' THEN 'pg_catalog.french' WHEN 'ga' THEN 'pg_catalog.irish' WHEN 'hi' THEN 'pg_catalog.hindi'
    WHEN 'hu' THEN 'pg_catalog.hungarian' WHEN 'hy' THEN 'pg_catalog.armenian' WHEN 'id' THEN 'pg_catalog.indonesian'
    WHEN 'it' THEN 'pg_catalog.italian' WHEN 'lt' THEN 'pg_catalog.lithuanian' WHEN 'nb' THEN 'pg_catalog.norwegian'
    WHEN 'ne' THEN 'pg_catalog.nepali' WHEN 'nl' THEN 'pg_catalog.dutch' WHEN 'nn' THEN 'pg_catalog.norwegian'
    WHEN 'no' THEN 'pg_catalog.norwegian' WHEN 'pt' THEN 'pg_catalog.portuguese' WHEN 'ro' THEN 'pg_catalog.romanian'
    WHEN 'ru' THEN 'pg_catalog.russian' WHEN 'sr' THEN 'pg_catalog.serbian' WHEN 'sv' THEN 'pg_catalog.swedish'
    WHEN 'ta' THEN 'pg_catalog.tamil' WHEN 'tr' THEN 'pg_catalog.turkish' WHEN 'yi' THEN 'pg_catalog.yiddish'
    ELSE 'pg_catalog.simple' END;

-- The words of a chunk, in the language of its document. A row trigger, so that `werkruf move` fills them too. Title and heading are cut,
-- because a tsvector holds 1 MB at most and a longer one would refuse the document.
CREATE OR REPLACE FUNCTION set_chunk_lexemes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  SELECT to_tsvector(search_configuration(documents.language),
    concat_ws(E'\n', left(documents.title, 2000), left(NEW.heading, 2000), NEW.content)) INTO NEW.lexemes
  FROM documents WHERE documents.tenant_id = NEW.tenant_id AND documents.id = NEW.document;
  RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER set_chunk_lexemes BEFORE INSERT ON chunks
  FOR EACH ROW EXECUTE FUNCTION set_chunk_lexemes();

-- A query that any of its words satisfies, so that a question in a sentence finds something; the more of the words, the better the rank.
-- A query that excludes words stays as it is: an excluded word joined by OR would match nearly every chunk.
CREATE OR REPLACE FUNCTION search_query(configuration regconfig, query_text text) RETURNS tsquery LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  CASE WHEN strpos(websearch_to_tsquery(configuration, query_text)::text, '!') > 0 THEN websearch_to_tsquery(configuration, query_text)
    ELSE replace(websearch_to_tsquery(configuration, query_text)::text, ' & ', ' | ')::tsquery END;

-- Search by words. bm25 is the name that the seeds give the score; the score is that of ts_rank_cd.
CREATE OR REPLACE FUNCTION text_search_chunks(query_text text, match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, bm25 float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH queries AS MATERIALIZED (
    SELECT configuration, search_query(configuration, query_text) AS query
    FROM (SELECT DISTINCT search_configuration(documents.language) AS configuration FROM documents
          WHERE documents.collection = text_search_chunks.collection) AS used
  )
  SELECT chunks.id, documents.document_id, documents.title, chunks.content, ts_rank_cd(chunks.lexemes, queries.query)::float8
  FROM queries JOIN documents ON search_configuration(documents.language) = queries.configuration
  JOIN chunks ON chunks.tenant_id = documents.tenant_id AND chunks.document = documents.id
  WHERE documents.collection = text_search_chunks.collection AND chunks.lexemes @@ queries.query
  ORDER BY 5 DESC, documents.document_id, chunks.position
  LIMIT greatest(match_count, 0);
END
$$;

-- The cosine where pgvector is not installed.
CREATE OR REPLACE FUNCTION cosine_of(first real[], second real[]) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT RETURN (
  SELECT sum(a::float8 * b) / nullif(sqrt(sum(a::float8 * a)) * sqrt(sum(b::float8 * b)), 0) FROM unnest(first, second) AS pair (a, b));

-- Search by vector: the cosine with every vector of the collection's newest model, by pgvector where it is installed.
CREATE OR REPLACE FUNCTION match_chunks(query_embedding real[], match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, similarity float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  extension_schema text := (SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector');
  cosine text := CASE WHEN extension_schema IS NULL THEN 'cosine_of(vectors.floats, $1)'
    ELSE format('1 - (vectors.floats::%1$I.vector OPERATOR(%1$I.<=>) $1::%1$I.vector)', extension_schema) END;
  size bigint;
BEGIN
  SELECT cardinality(floats) INTO size FROM chunk_vectors AS vectors
    WHERE vectors.collection = match_chunks.collection AND floats IS NOT NULL ORDER BY change DESC LIMIT 1;
  IF size <> coalesce(cardinality(query_embedding), 0) THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
      MESSAGE = format('the embedding has %s dimensions, those of collection %s have %s', coalesce(cardinality(query_embedding), 0), collection, size);
  END IF;
  RETURN QUERY EXECUTE format('
    SELECT chunks.id, documents.document_id, documents.title, chunks.content, found.similarity
    FROM (
      SELECT vectors.tenant_id, vectors.chunk, %s AS similarity
      FROM collections AS owned, LATERAL (
        SELECT newest.model FROM chunk_vectors AS newest WHERE newest.tenant_id = owned.tenant_id AND newest.collection = owned.name
        ORDER BY newest.change DESC LIMIT 1) AS newest
      JOIN chunk_vectors AS vectors ON vectors.model = newest.model
      WHERE owned.name = $3 AND vectors.tenant_id = owned.tenant_id AND vectors.collection = owned.name
        AND cardinality(vectors.floats) = cardinality($1)
    ) AS found
    JOIN chunks ON chunks.tenant_id = found.tenant_id AND chunks.number = found.chunk
    JOIN documents ON documents.tenant_id = chunks.tenant_id AND documents.id = chunks.document
    WHERE found.similarity = found.similarity
    ORDER BY round(found.similarity::numeric, 6) DESC, documents.document_id, chunks.position
    LIMIT greatest($2, 0)', cosine)
  USING query_embedding, match_count, match_chunks.collection;
END
$$;

-- As the seeds call it: '[0.123, -0.456, …]'.
CREATE OR REPLACE FUNCTION match_chunks(query_embedding text, match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, similarity float8) LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT * FROM match_chunks(translate(query_embedding, '[]', '{}')::real[], match_count, collection);
END;
