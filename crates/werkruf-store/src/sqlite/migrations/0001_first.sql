-- The first schema. JSON and times are TEXT; times are ISO 8601 UTC with milliseconds and Z.
-- No foreign key to tenants: the tenant comes from the credential, which was read from there.
-- Foreign keys are never deferred: one that failed at COMMIT would take the whole group down.

CREATE TABLE settings (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
  id         TEXT NOT NULL PRIMARY KEY,
  tenant_id  TEXT GENERATED ALWAYS AS (id) VIRTUAL,
  slug       TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL
) STRICT;

-- ---------------------------------------------------------------- people

CREATE TABLE branches (
  tenant_id TEXT NOT NULL,
  id        INTEGER NOT NULL,
  name      TEXT NOT NULL,
  time_zone TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE roles (
  tenant_id TEXT NOT NULL,
  id        INTEGER NOT NULL,
  name      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX roles_by_name ON roles (tenant_id, name);

CREATE TABLE permissions (
  tenant_id   TEXT NOT NULL,
  role_id     INTEGER NOT NULL,
  position    INTEGER NOT NULL,
  entity      TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  access      TEXT NOT NULL CHECK (access IN ('read', 'write', 'both')),
  scope       TEXT NOT NULL CHECK (scope IN ('own', 'branch', 'all')),
  PRIMARY KEY (tenant_id, role_id, position),
  FOREIGN KEY (tenant_id, role_id) REFERENCES roles (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
  tenant_id        TEXT NOT NULL,
  id               INTEGER NOT NULL,
  first_name       TEXT NOT NULL,
  last_name        TEXT NOT NULL,
  email            TEXT,
  phone            TEXT,
  whatsapp_user_id TEXT,
  external_id      TEXT,
  locale           TEXT NOT NULL,
  time_zone        TEXT,
  branch_id        INTEGER,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, branch_id) REFERENCES branches (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX users_by_external_id ON users (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX users_by_phone ON users (tenant_id, phone) WHERE phone IS NOT NULL;
CREATE INDEX users_by_whatsapp ON users (tenant_id, whatsapp_user_id) WHERE whatsapp_user_id IS NOT NULL;
CREATE INDEX users_by_branch ON users (tenant_id, branch_id);

CREATE TABLE user_roles (
  tenant_id TEXT NOT NULL,
  user_id   INTEGER NOT NULL,
  role_id   INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, user_id, role_id),
  FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id) ON DELETE CASCADE,
  FOREIGN KEY (tenant_id, role_id) REFERENCES roles (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX user_roles_by_role ON user_roles (tenant_id, role_id);

CREATE TABLE api_keys (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  user_id    TEXT,
  scopes     TEXT NOT NULL,
  name       TEXT,
  expires_at TEXT,
  created_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;

-- ---------------------------------------------------------------- workspace

CREATE TABLE requests (
  tenant_id      TEXT NOT NULL,
  id             INTEGER NOT NULL,
  title          TEXT NOT NULL,
  description    TEXT,
  status         TEXT NOT NULL,
  due_date       TEXT,
  requester_id   INTEGER NOT NULL,
  responsible_id INTEGER,
  branch_id      INTEGER,
  created_at     TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX requests_by_requester ON requests (tenant_id, requester_id);
CREATE INDEX requests_by_responsible ON requests (tenant_id, responsible_id);
CREATE INDEX requests_by_branch ON requests (tenant_id, branch_id);

CREATE TABLE tasks (
  tenant_id   TEXT NOT NULL,
  id          INTEGER NOT NULL,
  title       TEXT NOT NULL,
  description TEXT,
  status      TEXT NOT NULL,
  due_date    TEXT,
  user_id     INTEGER NOT NULL,
  branch_id   INTEGER,
  created_at  TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX tasks_by_user ON tasks (tenant_id, user_id);
CREATE INDEX tasks_by_branch ON tasks (tenant_id, branch_id);

CREATE TABLE worktimes (
  tenant_id  TEXT NOT NULL,
  id         INTEGER NOT NULL,
  user_id    INTEGER NOT NULL,
  branch_id  INTEGER,
  started_at TEXT NOT NULL,
  ended_at   TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX worktimes_by_user ON worktimes (tenant_id, user_id, started_at);
CREATE INDEX worktimes_by_branch ON worktimes (tenant_id, branch_id, started_at);

CREATE TABLE cerebro_articles (
  tenant_id TEXT NOT NULL,
  id        INTEGER NOT NULL,
  title     TEXT NOT NULL,
  content   TEXT NOT NULL,
  tags      TEXT NOT NULL DEFAULT '[]',
  branch_id INTEGER,
  PRIMARY KEY (tenant_id, id)
) STRICT;

-- ---------------------------------------------------------------- conversations

CREATE TABLE conversations (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  user_id    TEXT NOT NULL,
  channel    TEXT NOT NULL,
  assistant  TEXT NOT NULL,
  title      TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT '{}',
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX conversations_by_user ON conversations (tenant_id, user_id, id);

-- conversation_id is the stream: the conversation, or the turn where a turn has none.
CREATE TABLE leases (
  tenant_id        TEXT NOT NULL,
  conversation_id  TEXT NOT NULL,
  owner            TEXT,
  epoch            INTEGER NOT NULL,
  next_event_seq   INTEGER NOT NULL,
  next_message_seq INTEGER NOT NULL,
  expires_at       TEXT,
  PRIMARY KEY (tenant_id, conversation_id)
) STRICT, WITHOUT ROWID;

-- Clustered by conversation: a history is read whole, and its rows should share pages.
CREATE TABLE messages (
  id              TEXT NOT NULL,
  tenant_id       TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  conversation_id TEXT NOT NULL,
  content         TEXT NOT NULL,
  role            TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
  tool_calls      TEXT,
  tool_call_id    TEXT,
  tool_name       TEXT,
  status          TEXT CHECK (status IS NULL OR status IN ('pending', 'success', 'error')),
  metadata        TEXT NOT NULL DEFAULT '{}',
  seq             INTEGER,
  turn_id         TEXT,
  tokens          INTEGER,
  PRIMARY KEY (conversation_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_place ON messages (conversation_id, seq);
CREATE UNIQUE INDEX messages_by_call ON messages (conversation_id, tool_call_id) WHERE tool_call_id IS NOT NULL;

CREATE TABLE turns (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  conversation_id  TEXT,
  user_id          TEXT NOT NULL,
  kind             TEXT NOT NULL CHECK (kind IN ('chat', 'invoke', 'retry')),
  assistant        TEXT NOT NULL,
  key_id           TEXT,
  status           TEXT NOT NULL CHECK (status IN
    ('accepted', 'planning', 'acting', 'finalizing', 'completed', 'awaiting_approval', 'failed', 'canceled')),
  step             INTEGER NOT NULL DEFAULT 0,
  takeovers        INTEGER NOT NULL DEFAULT 0,
  stalled          INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
  partial          TEXT,
  error            TEXT,
  error_code       TEXT,
  message          TEXT,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  finished_at      TEXT,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX turns_by_conversation ON turns (tenant_id, conversation_id, id);
-- Small and hot: what a start must look at, however many turns are done.
CREATE INDEX turns_open ON turns (id) WHERE finished_at IS NULL;

CREATE TABLE tool_calls (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  conversation_id  TEXT,
  turn_id          TEXT NOT NULL,
  step             INTEGER NOT NULL,
  output_index     INTEGER NOT NULL,
  response_id      TEXT,
  kind             TEXT NOT NULL CHECK (kind IN ('function', 'mcp', 'web_search', 'custom')),
  tool_name        TEXT NOT NULL,
  call_id          TEXT,
  item_id          TEXT,
  status           TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'canceled')),
  request          TEXT,
  raw_arguments    TEXT,
  repairs          TEXT,
  response         TEXT,
  error            TEXT,
  error_type       TEXT,
  error_code       TEXT,
  error_detail     TEXT,
  effect           TEXT NOT NULL CHECK (effect IN ('read', 'idempotent', 'once')),
  attempt          INTEGER NOT NULL DEFAULT 0,
  cache_hit        INTEGER NOT NULL DEFAULT 0 CHECK (cache_hit IN (0, 1)),
  dedupe_key       TEXT,
  dedupe_of        TEXT,
  retry_of         TEXT,
  idempotency_key  TEXT,
  permission       TEXT,
  context          TEXT NOT NULL,
  trace_id         TEXT,
  run_id           TEXT,
  ingestion_run_id TEXT,
  workflow_id      TEXT,
  case_id          TEXT,
  meta             TEXT,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  started_at       TEXT,
  finished_at      TEXT,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, turn_id) REFERENCES turns (tenant_id, id) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX tool_calls_by_place ON tool_calls (turn_id, step, output_index);
CREATE INDEX tool_calls_by_item ON tool_calls (conversation_id, item_id) WHERE item_id IS NOT NULL;
CREATE INDEX tool_calls_by_wire_id ON tool_calls (conversation_id, call_id) WHERE call_id IS NOT NULL;
CREATE INDEX tool_calls_by_key ON tool_calls (tenant_id, dedupe_key, created_at) WHERE dedupe_key IS NOT NULL;
CREATE INDEX tool_calls_by_conversation ON tool_calls (tenant_id, conversation_id, id);
-- Reads never enter it: it answers "has anything changed the world since".
CREATE INDEX tool_calls_effects ON tool_calls (conversation_id, finished_at) WHERE effect <> 'read' AND finished_at IS NOT NULL;

CREATE TABLE call_attempts (
  tenant_id   TEXT NOT NULL,
  call_id     TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  started_at  TEXT NOT NULL,
  finished_at TEXT NOT NULL,
  status      TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'canceled')),
  error       TEXT NOT NULL,
  PRIMARY KEY (tenant_id, call_id, attempt),
  FOREIGN KEY (tenant_id, call_id) REFERENCES tool_calls (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- conversation_id is the stream, as in leases.
CREATE TABLE events (
  conversation_id TEXT NOT NULL,
  seq             INTEGER NOT NULL,
  tenant_id       TEXT NOT NULL,
  turn_id         TEXT,
  type            TEXT NOT NULL,
  data            TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  PRIMARY KEY (conversation_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
  tenant_id   TEXT NOT NULL,
  channel     TEXT NOT NULL,
  account     TEXT NOT NULL,
  external_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  turn_id     TEXT NOT NULL,
  created_at  TEXT NOT NULL,
  expires_at  TEXT NOT NULL,
  PRIMARY KEY (tenant_id, channel, account, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_by_turn ON inbox (turn_id);

CREATE TABLE outbox (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  conversation_id TEXT,
  turn_id         TEXT NOT NULL,
  part            INTEGER NOT NULL,
  channel         TEXT NOT NULL,
  account         TEXT NOT NULL,
  recipient       TEXT NOT NULL,
  body            TEXT NOT NULL,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'sending', 'sent', 'delivered', 'read', 'dead')),
  attempts        INTEGER NOT NULL DEFAULT 0,
  ambiguous       INTEGER NOT NULL DEFAULT 0 CHECK (ambiguous IN (0, 1)),
  error_code      TEXT,
  external_id     TEXT,
  next_at         TEXT,
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (turn_id, part)
) STRICT;
CREATE INDEX outbox_by_conversation ON outbox (tenant_id, conversation_id);
CREATE INDEX outbox_due ON outbox (next_at) WHERE status IN ('pending', 'sending');

CREATE TABLE approvals (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  conversation_id TEXT,
  turn_id         TEXT NOT NULL,
  call_id         TEXT NOT NULL,
  tool_name       TEXT NOT NULL,
  arguments       TEXT NOT NULL,
  arguments_digest TEXT NOT NULL,
  approver_role   TEXT NOT NULL,
  asked_by        TEXT NOT NULL,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'canceled')),
  decided_by      TEXT,
  created_at      TEXT NOT NULL,
  decided_at      TEXT,
  expires_at      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, call_id)
) STRICT;
CREATE INDEX approvals_by_conversation ON approvals (tenant_id, conversation_id);

-- ---------------------------------------------------------------- money

CREATE TABLE api_usage (
  id                TEXT NOT NULL PRIMARY KEY,
  tenant_id         TEXT NOT NULL,
  user_id           TEXT NOT NULL,
  conversation_id   TEXT,
  turn_id           TEXT,
  call_id           TEXT,
  key_id            TEXT,
  created_at        TEXT NOT NULL,
  provider          TEXT NOT NULL,
  model             TEXT NOT NULL,
  operation         TEXT NOT NULL CHECK (operation IN ('chat', 'ask_gpt', 'embedding', 'tool')),
  tokens_prompt     INTEGER NOT NULL,
  tokens_cached     INTEGER NOT NULL,
  tokens_completion INTEGER NOT NULL,
  tokens_reasoning  INTEGER NOT NULL,
  tokens_total      INTEGER NOT NULL,
  estimated         INTEGER NOT NULL CHECK (estimated IN (0, 1)),
  cost_nano_usd     INTEGER,
  cost_usd          REAL GENERATED ALWAYS AS (cost_nano_usd / 1000000000.0) VIRTUAL
) STRICT;

CREATE TABLE budgets (
  tenant_id   TEXT NOT NULL,
  id          TEXT NOT NULL,
  scope       TEXT NOT NULL CHECK (scope IN ('tenant', 'user', 'key')),
  subject     TEXT,
  period      TEXT NOT NULL CHECK (period IN ('day', 'month')),
  unit        TEXT NOT NULL CHECK (unit IN ('tokens', 'nano_usd', 'model_calls')),
  "limit"     INTEGER NOT NULL,
  created_at  TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;

CREATE TABLE provider_tokens (
  tenant_id  TEXT NOT NULL,
  provider   TEXT NOT NULL,
  account    TEXT NOT NULL,
  sealed     BLOB NOT NULL,
  expires_at TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
) STRICT;

-- ---------------------------------------------------------------- knowledge

CREATE TABLE documents (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  collection       TEXT NOT NULL,
  document_id      TEXT NOT NULL,
  title            TEXT NOT NULL,
  text             TEXT NOT NULL,
  language         TEXT,
  metadata         TEXT NOT NULL DEFAULT '{}',
  digest           TEXT NOT NULL,
  ingestion_run_id TEXT NOT NULL,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, collection, document_id)
) STRICT;

CREATE TABLE chunks (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  document        TEXT NOT NULL,
  position        INTEGER NOT NULL,
  content         TEXT NOT NULL,
  embedding       BLOB,
  embedding_model TEXT,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'embedded', 'failed')),
  created_at      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, document, position),
  FOREIGN KEY (tenant_id, document) REFERENCES documents (tenant_id, id) ON DELETE CASCADE
) STRICT;

-- ---------------------------------------------------------------- names of the seeds

CREATE VIEW chats AS SELECT * FROM conversations;
CREATE VIEW tool_call AS SELECT *, conversation_id AS chat_id FROM tool_calls;
CREATE VIEW api_usage_by_chat AS SELECT *, conversation_id AS chat_id FROM api_usage;
