-- Which server is having which chunks embedded, so that several on one database do not pay for the same vector. A claim counts by the
-- database's clock: one that is not renewed is anybody's. It names nothing but a number, so it needs no tenant and outlives no one's text.
CREATE TABLE embedding_claims (
  chunk bigint NOT NULL PRIMARY KEY,
  owner uuid NOT NULL,
  until timestamptz NOT NULL
);
CREATE INDEX embedding_claims_by_owner ON embedding_claims (owner);

-- Takes chunks that have no vector of the model and that nobody has claimed, `most` at a time. Servers come one by one, for
-- milliseconds: each sees every claim that was made before.
CREATE FUNCTION claim_unembedded(the_model text, the_owner uuid, for_ms bigint, most bigint)
RETURNS TABLE (number bigint, tenant_id uuid, collection text, title text, heading text, content text) LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE embedding_claims IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM embedding_claims AS claim WHERE claim.until < clock_timestamp();
  RETURN QUERY
  WITH claimed AS (
    INSERT INTO embedding_claims (chunk, owner, until)
    SELECT c.number, the_owner, clock_timestamp() + make_interval(secs => for_ms / 1000.0) FROM chunks AS c
    WHERE NOT EXISTS (SELECT 1 FROM chunk_vectors AS v WHERE v.chunk = c.number AND v.model = the_model)
      AND NOT EXISTS (SELECT 1 FROM embedding_claims AS claim WHERE claim.chunk = c.number)
    ORDER BY c.number LIMIT most
    RETURNING chunk
  )
  SELECT c.number, c.tenant_id, c.collection, d.title, c.heading, c.content
  FROM claimed JOIN chunks AS c ON c.number = claimed.chunk JOIN documents AS d ON d.tenant_id = c.tenant_id AND d.id = c.document
  ORDER BY c.number;
END
$$;

-- Statistics are samples of the values themselves, and would keep sentences of documents that were deleted.
ALTER TABLE chunks ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN heading SET STATISTICS 0;
ALTER TABLE documents ALTER COLUMN title SET STATISTICS 0;
ALTER TABLE vocabulary ALTER COLUMN word SET STATISTICS 0, ALTER COLUMN stem_de SET STATISTICS 0, ALTER COLUMN stem_en SET STATISTICS 0,
  ALTER COLUMN stem_es SET STATISTICS 0, ALTER COLUMN flat SET STATISTICS 0, ALTER COLUMN own_part SET STATISTICS 0;
