-- The first schema of the knowledge base: documents, their chunks and the vectors of these.

-- change: number of the collection's newest commit, counted under the lock of this row, so that a smaller number never appears after a
-- greater one. An index in memory reads the rows with a greater change than the one it knows.
-- read_roles, write_roles: names of roles; "*" in read_roles is everybody of the tenant. trust: trusted or untrusted.
CREATE TABLE collections (
  tenant_id   uuid NOT NULL,
  name        text COLLATE "C" NOT NULL,
  change      bigint NOT NULL,
  created_at  timestamptz NOT NULL,
  read_roles  json NOT NULL DEFAULT '["*"]',
  write_roles json NOT NULL DEFAULT '[]',
  trust       text NOT NULL DEFAULT 'trusted',
  PRIMARY KEY (tenant_id, name)
);

-- guessed: whether the language was guessed from the text or given. digest: of everything that was sent.
CREATE TABLE documents (
  tenant_id        uuid NOT NULL,
  id               uuid NOT NULL,
  collection       text COLLATE "C" NOT NULL,
  document_id      text COLLATE "C" NOT NULL,
  title            text NOT NULL,
  language         text,
  guessed          boolean NOT NULL,
  metadata         json NOT NULL DEFAULT '{}',
  digest           text NOT NULL,
  version          bigint NOT NULL,
  ingestion_run_id text NOT NULL,
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, collection, document_id),
  FOREIGN KEY (tenant_id, collection) REFERENCES collections (tenant_id, name)
);

-- number: never given twice, so that a removed chunk cannot be taken for a later one. lexemes: the words of title, heading and content,
-- written by the trigger set_chunk_lexemes. They have no index: behind row-level security PostgreSQL would not use one, because the
-- operator @@ is not leakproof; and a GIN index keeps words of rows that were deleted.
CREATE TABLE chunks (
  number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  document   uuid NOT NULL,
  position   bigint NOT NULL,
  heading    text NOT NULL,
  content    text NOT NULL,
  change     bigint NOT NULL,
  lexemes    tsvector NOT NULL,
  UNIQUE (tenant_id, id),
  UNIQUE (tenant_id, number),
  FOREIGN KEY (tenant_id, document) REFERENCES documents (tenant_id, id)
);
CREATE INDEX chunks_by_document ON chunks (tenant_id, document, position);
CREATE INDEX chunks_by_change ON chunks (tenant_id, collection, change, number);
-- After `werkruf move` the numbers continue where those of the file ended.
GRANT UPDATE ON SEQUENCE chunks_number_seq TO werkruf_system;

-- The words of a chunk as numbers, for searches of a server that has no index yet (`src/stored_terms.rs`), which read all rows of a
-- collection. Deleted with the chunk by remove_document.
CREATE TABLE chunk_terms (
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  chunk      bigint NOT NULL,
  terms      bytea NOT NULL,
  PRIMARY KEY (tenant_id, collection, chunk)
);
ALTER TABLE chunk_terms ALTER COLUMN terms SET STATISTICS 0;

-- Little-endian floats as numbers. A generated column is computed with this function: it is part of the table and never changes.
CREATE FUNCTION floats_of(vector bytea) RETURNS real[] LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT RETURN (
  SELECT array_agg(CASE
      WHEN raw.exponent = 0 THEN sign * raw.fraction * 2.0::float8 ^ (-149)
      ELSE sign * (8388608 + raw.fraction) * 2.0::float8 ^ (raw.exponent - 150) END ORDER BY at)::real[]
  FROM generate_series(0, octet_length(vector) / 4 - 1) AS at,
    LATERAL (SELECT CASE WHEN get_byte(vector, at * 4 + 3) > 127 THEN -1 ELSE 1 END AS sign,
      (get_byte(vector, at * 4 + 3) & 127) * 2 + (get_byte(vector, at * 4 + 2) >> 7) AS exponent,
      (get_byte(vector, at * 4 + 2) & 127) * 65536 + get_byte(vector, at * 4 + 1) * 256 + get_byte(vector, at * 4) AS fraction) AS raw);

-- vector: little-endian floats; null: the model refused this text. A chunk has one vector of each model, so that two servers with
-- different models do not replace each other's.
CREATE TABLE chunk_vectors (
  chunk      bigint NOT NULL,
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  model      text NOT NULL,
  vector     bytea,
  change     bigint NOT NULL,
  floats     real[] GENERATED ALWAYS AS (floats_of(vector)) STORED,
  PRIMARY KEY (chunk, model),
  FOREIGN KEY (tenant_id, chunk) REFERENCES chunks (tenant_id, number) ON DELETE CASCADE
);
CREATE INDEX chunk_vectors_by_change ON chunk_vectors (tenant_id, collection, change, chunk);

-- The numbers of removed chunks, without their text.
CREATE TABLE removed_chunks (
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  change     bigint NOT NULL,
  chunk      bigint NOT NULL,
  PRIMARY KEY (tenant_id, collection, change, chunk)
);

-- Which process has which chunks embedded, so that several on one database do not pay for the same vector. A claim counts by the
-- database's clock: once it has expired, any process may take it. A claim holds only a number, so it needs no tenant and keeps no text.
CREATE TABLE embedding_claims (
  chunk bigint NOT NULL PRIMARY KEY,
  owner uuid NOT NULL,
  until timestamptz NOT NULL
);
CREATE INDEX embedding_claims_by_owner ON embedding_claims (owner);

-- Statistics are samples of the values themselves, and would keep sentences of documents that were deleted.
ALTER TABLE chunks ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN heading SET STATISTICS 0, ALTER COLUMN lexemes SET STATISTICS 0;
ALTER TABLE documents ALTER COLUMN title SET STATISTICS 0;
