-- The first schema of the knowledge search. A document is stored as its chunks.

-- change: counts the commits of a collection; a process with an index of the collection reads the rows after the change it has.
-- read_roles, write_roles: names of roles; "*" in read_roles is everybody of the tenant. trust: trusted or untrusted.
CREATE TABLE collections (
  tenant_id   TEXT NOT NULL,
  name        TEXT NOT NULL,
  change      INTEGER NOT NULL,
  created_at  TEXT NOT NULL,
  read_roles  TEXT NOT NULL DEFAULT '["*"]',
  write_roles TEXT NOT NULL DEFAULT '[]',
  trust       TEXT NOT NULL DEFAULT 'trusted',
  PRIMARY KEY (tenant_id, name)
) STRICT;

-- guessed: whether the language was detected (1) or given (0). digest: of the whole document as it was sent.
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

-- number: never used twice, so that a removed chunk is not mistaken for a later one.
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

-- The words of a chunk as numbers, for searches without an index (`src/stored_terms.rs`). Beside each other by collection, because
-- such a search reads all of them; therefore deleted with the chunk by a statement and not by a foreign key, which would need an index.
CREATE TABLE chunk_terms (
  tenant_id  TEXT NOT NULL,
  collection TEXT NOT NULL,
  chunk      INTEGER NOT NULL,
  terms      BLOB NOT NULL,
  PRIMARY KEY (tenant_id, collection, chunk)
) STRICT, WITHOUT ROWID;

-- vector: little-endian floats; NULL: the model refused this text. A chunk has one vector of each model.
CREATE TABLE chunk_vectors (
  chunk      INTEGER NOT NULL REFERENCES chunks (number) ON DELETE CASCADE,
  tenant_id  TEXT NOT NULL,
  collection TEXT NOT NULL,
  model      TEXT NOT NULL,
  vector     BLOB,
  change     INTEGER NOT NULL,
  PRIMARY KEY (chunk, model)
) STRICT;

CREATE INDEX chunk_vectors_by_change ON chunk_vectors (tenant_id, collection, change, chunk);

-- The numbers of removed chunks, without their text.
CREATE TABLE removed_chunks (
  tenant_id  TEXT NOT NULL,
  collection TEXT NOT NULL,
  change     INTEGER NOT NULL,
  chunk      INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, collection, change, chunk)
) STRICT, WITHOUT ROWID;
