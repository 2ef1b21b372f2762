-- Documents, chunks and vectors.

-- The number of the next change. Locks the collection until the transaction ends.
CREATE OR REPLACE FUNCTION next_change(the_tenant uuid, the_collection text, kept_changes bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  new_change bigint;
BEGIN
  UPDATE collections SET change = change + 1 WHERE tenant_id = the_tenant AND name = the_collection RETURNING change INTO new_change;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('collection %s', the_collection); END IF;
  DELETE FROM removed_chunks WHERE tenant_id = the_tenant AND collection = the_collection AND change < new_change - kept_changes;
  RETURN new_change;
END
$$;

-- Removes a document, and keeps the numbers of its chunks in removed_chunks.
CREATE OR REPLACE FUNCTION remove_document(the_tenant uuid, the_collection text, the_document uuid, new_change bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO removed_chunks (tenant_id, collection, change, chunk)
  SELECT the_tenant, the_collection, new_change, number FROM chunks WHERE tenant_id = the_tenant AND document = the_document;
  DELETE FROM chunk_terms WHERE tenant_id = the_tenant AND collection = the_collection
    AND chunk IN (SELECT number FROM chunks WHERE tenant_id = the_tenant AND document = the_document);
  DELETE FROM chunks WHERE tenant_id = the_tenant AND document = the_document;
  DELETE FROM documents WHERE tenant_id = the_tenant AND id = the_document;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WK003', MESSAGE = format('document %s', the_document); END IF;
END
$$;

-- New documents are added, changed ones replaced, unchanged ones left alone. A document that is stored under the very id that it brings was
-- written by an earlier attempt of the same batch, and is counted as that attempt counted it.
CREATE OR REPLACE FUNCTION add_documents(doc jsonb, kept_changes bigint, OUT accepted bigint, OUT replaced bigint, OUT unchanged bigint, OUT written bigint)
LANGUAGE plpgsql AS $$
DECLARE
  the_tenant constant uuid := (doc ->> 'tenant_id')::uuid;
  the_collection constant text := doc ->> 'collection';
  the_time constant timestamptz := (doc ->> 'now')::timestamptz;
  new_change bigint;
  given record;
  known record;
BEGIN
  accepted := 0;
  replaced := 0;
  unchanged := 0;
  written := 0;
  INSERT INTO collections (tenant_id, name, change, created_at) VALUES (the_tenant, the_collection, 0, the_time) ON CONFLICT DO NOTHING;
  -- Before the first read: what another process has just written must be visible.
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
    new_change := coalesce(new_change, next_change(the_tenant, the_collection, kept_changes));
    IF known.id IS NULL THEN
      accepted := accepted + 1;
    ELSE
      PERFORM remove_document(the_tenant, the_collection, known.id, new_change);
      replaced := replaced + 1;
    END IF;
    INSERT INTO documents (tenant_id, id, collection, document_id, title, language, guessed, metadata, digest, version, ingestion_run_id,
      created_at, updated_at)
    VALUES (the_tenant, given.id, the_collection, given.document_id, given.title, given.language, given.guessed, given.metadata::json,
      given.digest, coalesce(known.version, 0) + 1, doc ->> 'ingestion_run_id', coalesce(known.created_at, the_time), the_time);
    WITH new_chunks AS (
      INSERT INTO chunks (tenant_id, id, collection, document, position, heading, content, change)
      SELECT the_tenant, (chunk ->> 'id')::uuid, the_collection, given.id, place - 1, chunk ->> 'heading', chunk ->> 'content', new_change
      FROM jsonb_array_elements(given.chunks) WITH ORDINALITY AS list (chunk, place) ORDER BY place
      RETURNING number, position
    )
    INSERT INTO chunk_terms (tenant_id, collection, chunk, terms)
    SELECT the_tenant, the_collection, number, coalesce(decode(given.chunks -> position::int ->> 'terms', 'hex'), '') FROM new_chunks;
    written := written + jsonb_array_length(given.chunks);
  END LOOP;
END
$$;

-- Whether there was such a document; after an attempt whose answer was lost, it is missing because of that attempt.
CREATE OR REPLACE FUNCTION delete_document(the_tenant uuid, the_collection text, the_document text, kept_changes bigint, is_retry boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  known uuid;
BEGIN
  PERFORM 1 FROM collections WHERE tenant_id = the_tenant AND name = the_collection FOR UPDATE;
  SELECT id INTO known FROM documents WHERE tenant_id = the_tenant AND collection = the_collection AND document_id = the_document;
  IF known IS NULL THEN RETURN is_retry; END IF;
  PERFORM remove_document(the_tenant, the_collection, known, next_change(the_tenant, the_collection, kept_changes));
  RETURN true;
END
$$;

-- Stores vectors of chunks that still exist; returns how many. Collections are locked in one order, so that two batches never deadlock.
CREATE OR REPLACE FUNCTION put_vectors(the_model text, numbers bigint[], vectors bytea[], kept_changes bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  target record;
  new_change bigint;
  stored bigint;
  total bigint := 0;
BEGIN
  FOR target IN SELECT DISTINCT tenant_id, collection FROM chunks WHERE number = ANY (numbers) ORDER BY tenant_id, collection LOOP
    new_change := next_change(target.tenant_id, target.collection, kept_changes);
    INSERT INTO chunk_vectors (chunk, tenant_id, collection, model, vector, change)
    SELECT chunks.number, chunks.tenant_id, chunks.collection, the_model, given.vector, new_change
    FROM unnest(numbers, vectors) AS given (number, vector) JOIN chunks ON chunks.number = given.number
    WHERE chunks.tenant_id = target.tenant_id AND chunks.collection = target.collection
    ON CONFLICT (chunk, model) DO UPDATE SET vector = excluded.vector, change = excluded.change;
    GET DIAGNOSTICS stored = ROW_COUNT;
    total := total + stored;
  END LOOP;
  RETURN total;
END
$$;

-- Claims up to `most` chunks after this number that have no vector of the model and that no process has claimed. Processes run this one after the other, for
-- milliseconds: each sees every earlier claim.
CREATE OR REPLACE FUNCTION claim_unembedded(the_model text, the_owner uuid, for_ms bigint, after bigint, most bigint)
RETURNS TABLE (number bigint, tenant_id uuid, collection text, title text, heading text, content text) LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE embedding_claims IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM embedding_claims AS claim WHERE claim.until < clock_timestamp();
  RETURN QUERY
  WITH claimed AS (
    INSERT INTO embedding_claims (chunk, owner, until)
    SELECT c.number, the_owner, clock_timestamp() + make_interval(secs => for_ms / 1000.0) FROM chunks AS c
    WHERE c.number > after AND NOT EXISTS (SELECT 1 FROM chunk_vectors AS v WHERE v.chunk = c.number AND v.model = the_model)
      AND NOT EXISTS (SELECT 1 FROM embedding_claims AS claim WHERE claim.chunk = c.number)
    ORDER BY c.number LIMIT most
    RETURNING chunk
  )
  SELECT c.number, c.tenant_id, c.collection, d.title, c.heading, c.content
  FROM claimed JOIN chunks AS c ON c.number = claimed.chunk JOIN documents AS d ON d.tenant_id = c.tenant_id AND d.id = c.document
  ORDER BY c.number;
END
$$;
