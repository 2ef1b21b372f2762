-- Documents live as their chunks; nothing was ever written to the tables of the first schema.

DROP TABLE chunks;
DROP TABLE documents;

-- change: counts the commits of a collection; whoever holds an index of it reads what came after the change it knows.
CREATE TABLE collections (
  tenant_id  TEXT NOT NULL,
  name       TEXT NOT NULL,
  change     INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, name)
) STRICT;

-- guessed: whether the language was given or found; digest: of everything that was sent.
CREATE TABLE documents (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  collection       TEXT NOT NULL,
  document_id      TEXT NOT NULL,
  title            TEXT NOT NULL,
  language         TEXT,
  guessed          INTEGER NOT NULL CHECK (guessed IN (0, 1)),
  metadata         TEXT NOT NULL DEFAULT '{}',
  digest           TEXT NOT NULL,
  version          INTEGER NOT NULL,
  ingestion_run_id TEXT NOT NULL,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, collection, document_id),
  FOREIGN KEY (tenant_id, collection) REFERENCES collections (tenant_id, name)
) STRICT;

-- number: never given twice, so that what was removed cannot be taken for what came later.
CREATE TABLE chunks (
  number     INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL UNIQUE,
  collection TEXT NOT NULL,
  document   TEXT NOT NULL,
  position   INTEGER NOT NULL,
  heading    TEXT NOT NULL,
  content    TEXT NOT NULL,
  change     INTEGER NOT NULL,
  FOREIGN KEY (tenant_id, document) REFERENCES documents (tenant_id, id)
) STRICT;

CREATE INDEX chunks_by_document ON chunks (tenant_id, document, position);
CREATE INDEX chunks_by_change ON chunks (tenant_id, collection, change, number);

-- vector: little-endian floats; null: the model refused this text. A chunk has one vector, of one model.
CREATE TABLE chunk_vectors (
  chunk      INTEGER PRIMARY KEY REFERENCES chunks (number) ON DELETE CASCADE,
  tenant_id  TEXT NOT NULL,
  collection TEXT NOT NULL,
  model      TEXT NOT NULL,
  vector     BLOB,
  change     INTEGER NOT NULL
) STRICT;

CREATE INDEX chunk_vectors_by_change ON chunk_vectors (tenant_id, collection, change, chunk);

-- Which chunks are gone; no word of them.
CREATE TABLE removed_chunks (
  tenant_id  TEXT NOT NULL,
  collection TEXT NOT NULL,
  change     INTEGER NOT NULL,
  chunk      INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, collection, change, chunk)
) STRICT, WITHOUT ROWID;
