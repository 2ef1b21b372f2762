-- Documents live as their chunks; nothing was ever written to the tables of the first schema.

DROP TABLE chunks;
DROP TABLE documents;

-- change: counts the commits of a collection, under the lock of this row, so that a smaller number is never seen after a greater one;
-- whoever holds an index of it reads what came after the change it knows.
CREATE TABLE collections (
  tenant_id  uuid NOT NULL,
  name       text COLLATE "C" NOT NULL,
  change     bigint NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, name)
);

-- guessed: whether the language was given or found; digest: of everything that was sent.
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

-- number: never given twice, so that what was removed cannot be taken for what came later.
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
  UNIQUE (tenant_id, id),
  UNIQUE (tenant_id, number),
  FOREIGN KEY (tenant_id, document) REFERENCES documents (tenant_id, id)
);
CREATE INDEX chunks_by_document ON chunks (tenant_id, document, position);
CREATE INDEX chunks_by_change ON chunks (tenant_id, collection, change, number);
-- After a move the numbers go on where the file's ended.
GRANT UPDATE ON SEQUENCE chunks_number_seq TO werkruf_system;

-- vector: little-endian floats; null: the model refused this text. A chunk has one vector, of one model.
CREATE TABLE chunk_vectors (
  chunk      bigint NOT NULL PRIMARY KEY,
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  model      text NOT NULL,
  vector     bytea,
  change     bigint NOT NULL,
  FOREIGN KEY (tenant_id, chunk) REFERENCES chunks (tenant_id, number) ON DELETE CASCADE
);
CREATE INDEX chunk_vectors_by_change ON chunk_vectors (tenant_id, collection, change, chunk);

-- Which chunks are gone; no word of them.
CREATE TABLE removed_chunks (
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  change     bigint NOT NULL,
  chunk      bigint NOT NULL,
  PRIMARY KEY (tenant_id, collection, change, chunk)
);

-- The number of the next change. Holds the collection until the transaction ends.
CREATE FUNCTION next_change(the_tenant uuid, the_collection text, remembered bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  this bigint;
BEGIN
  UPDATE collections SET change = change + 1 WHERE tenant_id = the_tenant AND name = the_collection RETURNING change INTO this;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('collection %s', the_collection); END IF;
  DELETE FROM removed_chunks WHERE tenant_id = the_tenant AND collection = the_collection AND change < this - remembered;
  RETURN this;
END
$$;

-- Takes a document out and remembers its chunks' numbers.
CREATE FUNCTION forget_document(the_tenant uuid, the_collection text, the_document uuid, this bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO removed_chunks (tenant_id, collection, change, chunk)
  SELECT the_tenant, the_collection, this, number FROM chunks WHERE tenant_id = the_tenant AND document = the_document;
  DELETE FROM chunks WHERE tenant_id = the_tenant AND document = the_document;
  DELETE FROM documents WHERE tenant_id = the_tenant AND id = the_document;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('document %s', the_document); END IF;
END
$$;

-- New documents come, changed ones are replaced, unchanged ones left alone. One that is there under the very id it brings was written by
-- an earlier try of the same batch, and is counted as that try counted it.
CREATE FUNCTION add_documents(doc jsonb, remembered bigint, OUT accepted bigint, OUT replaced bigint, OUT unchanged bigint, OUT written bigint)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_collection constant text := doc ->> 'collection';
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  this bigint;
  given record;
  known record;
BEGIN
  accepted := 0;
  replaced := 0;
  unchanged := 0;
  written := 0;
  INSERT INTO collections (tenant_id, name, change, created_at) VALUES (the_tenant, the_collection, 0, the_time) ON CONFLICT DO NOTHING;
  -- Before the first look: what another server just wrote must be seen.
  PERFORM 1 FROM collections WHERE tenant_id = the_tenant AND name = the_collection FOR UPDATE;
  FOR given IN SELECT * FROM jsonb_to_recordset(doc -> 'documents') AS d (id uuid, document_id text, title text, language text,
    guessed boolean, metadata text, digest text, chunks jsonb) LOOP
    SELECT id, digest, version, created_at INTO known FROM documents
    WHERE tenant_id = the_tenant AND collection = the_collection AND document_id = given.document_id;
    IF known.id IS NOT NULL AND known.digest = given.digest AND known.id <> given.id THEN
      unchanged := unchanged + 1;
      CONTINUE;
    END IF;
    IF known.id = given.id THEN
      accepted := accepted + CASE WHEN known.version = 1 THEN 1 ELSE 0 END;
      replaced := replaced + CASE WHEN known.version = 1 THEN 0 ELSE 1 END;
      written := written + jsonb_array_length(given.chunks);
      CONTINUE;
    END IF;
    this := coalesce(this, next_change(the_tenant, the_collection, remembered));
    IF known.id IS NULL THEN
      accepted := accepted + 1;
    ELSE
      PERFORM forget_document(the_tenant, the_collection, known.id, this);
      replaced := replaced + 1;
    END IF;
    INSERT INTO documents (tenant_id, id, collection, document_id, title, language, guessed, metadata, digest, version, ingestion_run_id,
      created_at, updated_at)
    VALUES (the_tenant, given.id, the_collection, given.document_id, given.title, given.language, given.guessed, given.metadata::json,
      given.digest, coalesce(known.version, 0) + 1, doc ->> 'ingestion_run_id', coalesce(known.created_at, the_time), the_time);
    INSERT INTO chunks (tenant_id, id, collection, document, position, heading, content, change)
    SELECT the_tenant, (piece ->> 'id')::uuid, the_collection, given.id, place - 1, piece ->> 'heading', piece ->> 'content', this
    FROM jsonb_array_elements(given.chunks) WITH ORDINALITY AS pieces (piece, place) ORDER BY place;
    written := written + jsonb_array_length(given.chunks);
  END LOOP;
END
$$;

-- Whether there was such a document; after a try whose end was not heard, none is left because of it.
CREATE FUNCTION delete_document(the_tenant uuid, the_collection text, the_document text, remembered bigint, again boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  known uuid;
BEGIN
  PERFORM 1 FROM collections WHERE tenant_id = the_tenant AND name = the_collection FOR UPDATE;
  SELECT id INTO known FROM documents WHERE tenant_id = the_tenant AND collection = the_collection AND document_id = the_document;
  IF known IS NULL THEN RETURN again; END IF;
  PERFORM forget_document(the_tenant, the_collection, known, next_change(the_tenant, the_collection, remembered));
  RETURN true;
END
$$;

-- Keeps vectors of chunks that are still there; how many. Collections are held in one order, so that two batches never wait for each other.
CREATE FUNCTION put_vectors(the_model text, numbers bigint[], vectors bytea[], remembered bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  shelf record;
  this bigint;
  stored bigint;
  kept bigint := 0;
BEGIN
  FOR shelf IN SELECT DISTINCT tenant_id, collection FROM chunks WHERE number = ANY (numbers) ORDER BY tenant_id, collection LOOP
    this := next_change(shelf.tenant_id, shelf.collection, remembered);
    INSERT INTO chunk_vectors (chunk, tenant_id, collection, model, vector, change)
    SELECT chunks.number, chunks.tenant_id, chunks.collection, the_model, given.vector, this
    FROM unnest(numbers, vectors) AS given (number, vector) JOIN chunks ON chunks.number = given.number
    WHERE chunks.tenant_id = shelf.tenant_id AND chunks.collection = shelf.collection
    ON CONFLICT (chunk) DO UPDATE SET model = excluded.model, vector = excluded.vector, change = excluded.change;
    GET DIAGNOSTICS stored = ROW_COUNT;
    kept := kept + stored;
  END LOOP;
  RETURN kept;
END
$$;
