-- The kernel's first schema: tenants, people, keys, conversations, turns, calls, events, leases, channels, usage rows and sealed tokens.
--
-- JSON and times are TEXT; times are ISO 8601 UTC with milliseconds and Z.
-- No table has a foreign key to tenants: the tenant comes from the credential, and the credential was read from the database.
-- Foreign keys are never deferred: one that failed at COMMIT would roll back the whole group of writes.
-- For an IN list of three values or more, SQLite builds and drops a table for each row that it checks. Tables that every turn writes
-- spell such a CHECK with OR.
-- Each commit writes every page it has touched. A turn costs as many page writes as its rows have b-trees, times the pages in each.

CREATE TABLE settings (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- budgets_version: changes with every change of the tenant's budgets.
CREATE TABLE tenants (
  id         TEXT NOT NULL PRIMARY KEY,
  tenant_id  TEXT GENERATED ALWAYS AS (id) VIRTUAL,
  slug       TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL,
  budgets_version INTEGER NOT NULL DEFAULT 0
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

-- token_roles: the roles in the user's latest token, {"names": [...], "only": 0|1}, which count until token_roles_until.
-- NULL: no token named roles, and user_roles counts. phone_key: the phone in its canonical form, by which a sender is found.
-- active: a user who is not is treated as unknown; the row stays, because other rows name it.
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
  token_roles      TEXT CHECK (token_roles IS NULL OR json_valid(token_roles)),
  token_roles_until TEXT CHECK ((token_roles_until IS NULL) = (token_roles IS NULL)),
  phone_key        TEXT,
  active           INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, branch_id) REFERENCES branches (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX users_by_external_id ON users (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX users_by_phone ON users (tenant_id, phone_key) WHERE phone_key IS NOT NULL;
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

-- The roles a user holds at a time T: those with since <= T AND T < until. A name in the token that the tenant has no role for is
-- ignored. Where no name is left, user_roles counts, unless the token allows the named roles only.
CREATE VIEW held_roles (tenant_id, user_id, role_id, since, until) AS
SELECT users.tenant_id, users.id, roles.id, '', users.token_roles_until
FROM users JOIN roles ON roles.tenant_id = users.tenant_id
WHERE users.token_roles IS NOT NULL AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names'))
UNION ALL
SELECT user_roles.tenant_id, user_roles.user_id, user_roles.role_id,
  CASE WHEN json_extract(users.token_roles, '$.only') OR EXISTS (
    SELECT 1 FROM roles WHERE roles.tenant_id = users.tenant_id
      AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names')))
  THEN users.token_roles_until ELSE '' END, '~'
FROM user_roles JOIN users ON users.tenant_id = user_roles.tenant_id AND users.id = user_roles.user_id;

-- last_used_at: written at most once a minute. allow_ips: networks, separated by commas; NULL allows every address.
-- root_id: the first key of a series of rotations; NULL in the row of that key.
CREATE TABLE api_keys (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  user_id    TEXT,
  scopes     TEXT NOT NULL,
  name       TEXT,
  expires_at TEXT,
  created_at TEXT NOT NULL,
  last_used_at TEXT,
  allow_ips    TEXT,
  safety_mode  TEXT,
  collection   TEXT,
  replaced_by  TEXT,
  root_id      TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT;
-- Sessions of the console look a key up on every request.
CREATE INDEX api_keys_by_id ON api_keys (id);

-- Sign-in to the console. link: a link that works once, and then becomes a session. digest: of the token in the link or in the cookie. key_id: the key
-- that the session stands for; NULL: the operator, as long as the operator's key has the digest operator_digest.
CREATE TABLE console_sessions (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  link       INTEGER NOT NULL CHECK (link IN (0, 1)),
  key_id     TEXT,
  operator_digest TEXT CHECK ((operator_digest IS NULL) <> (key_id IS NULL)),
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX console_sessions_expiring ON console_sessions (expires_at);

-- ---------------------------------------------------------------- conversations

-- updated_at: when a message or the state was last written. state and summary may be long and come last: a list reads the columns before them only.
-- summary: the messages up to the seq summary_until, in short; the model gets the summary in their place.
-- summary_untrusted: a JSON array of the untrusted results among them. metadata: what a client of /v1/conversations stores with it.
CREATE TABLE conversations (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  user_id    TEXT NOT NULL,
  channel    TEXT NOT NULL,
  assistant  TEXT NOT NULL,
  title      TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT '{}',
  summary    TEXT,
  summary_until INTEGER,
  summary_untrusted TEXT,
  metadata   TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX conversations_by_user ON conversations (tenant_id, user_id, id);

-- conversation_id is the id of the stream: of the conversation, or of the turn where a turn has no conversation.
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

-- Clustered by conversation: a history is read as a whole, and its rows should share pages.
CREATE TABLE messages (
  id              TEXT NOT NULL,
  tenant_id       TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  conversation_id TEXT NOT NULL,
  content         TEXT NOT NULL,
  role            TEXT NOT NULL CHECK (role = 'user' OR role = 'assistant' OR role = 'tool' OR role = 'system'),
  tool_calls      TEXT,
  tool_call_id    TEXT,
  tool_name       TEXT,
  status          TEXT CHECK (status IS NULL OR status = 'pending' OR status = 'success' OR status = 'error'),
  metadata        TEXT NOT NULL DEFAULT '{}',
  seq             INTEGER,
  turn_id         TEXT,
  tokens          INTEGER,
  PRIMARY KEY (conversation_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_place ON messages (conversation_id, seq);
CREATE UNIQUE INDEX messages_by_call ON messages (conversation_id, tool_call_id) WHERE tool_call_id IS NOT NULL;
CREATE INDEX messages_awaited ON messages (tenant_id, tool_call_id) WHERE status = 'pending';
CREATE INDEX messages_waiting ON messages (conversation_id) WHERE status = 'pending';

-- client: the request of an OpenAI client that started the turn. request_digest: digest of that request, so that the same request is recognized.
-- transcript_digest: digest of the transcript that the client has after the turn.
-- credential: names the credential of the request. context: what the request says about the calls, for a turn that another process continues.
CREATE TABLE turns (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  conversation_id  TEXT,
  user_id          TEXT NOT NULL,
  kind             TEXT NOT NULL CHECK (kind = 'chat' OR kind = 'invoke' OR kind = 'retry'),
  assistant        TEXT NOT NULL,
  key_id           TEXT,
  status           TEXT NOT NULL
    CHECK (status = 'accepted' OR status = 'planning' OR status = 'acting' OR status = 'finalizing'
      OR status = 'completed' OR status = 'awaiting_approval' OR status = 'failed' OR status = 'canceled'),
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
  client           TEXT,
  transcript_digest TEXT,
  request_digest   TEXT,
  credential       TEXT NOT NULL DEFAULT '',
  context          TEXT,
  inbound          TEXT,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX turns_by_conversation ON turns (tenant_id, conversation_id, id);
CREATE INDEX turns_by_transcript_digest ON turns (tenant_id, user_id, transcript_digest) WHERE transcript_digest IS NOT NULL;
CREATE INDEX turns_by_request ON turns (tenant_id, user_id, request_digest) WHERE request_digest IS NOT NULL;
-- Small and hot: a start of the process reads only this, however many turns have ended.
CREATE INDEX turns_open ON turns (id) WHERE finished_at IS NULL;
-- Nearly empty: the turns that were given up because they stopped the server.
CREATE INDEX turns_poison ON turns (finished_at) WHERE error_code = 'poison';

CREATE TABLE tool_calls (
  tenant_id        TEXT NOT NULL,
  id               TEXT NOT NULL,
  conversation_id  TEXT,
  turn_id          TEXT NOT NULL,
  step             INTEGER NOT NULL,
  output_index     INTEGER NOT NULL,
  response_id      TEXT,
  kind             TEXT NOT NULL CHECK (kind = 'function' OR kind = 'mcp' OR kind = 'web_search' OR kind = 'custom'),
  runner           TEXT NOT NULL CHECK (runner = 'server' OR runner = 'provider' OR runner = 'client'),
  tool_name        TEXT NOT NULL,
  call_id          TEXT,
  item_id          TEXT,
  status           TEXT NOT NULL
    CHECK (status = 'queued' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'timeout' OR status = 'canceled'),
  request          TEXT,
  raw_arguments    TEXT,
  repairs          TEXT,
  response         TEXT,
  error            TEXT,
  error_type       TEXT,
  error_code       TEXT,
  error_detail     TEXT,
  effect           TEXT NOT NULL CHECK (effect = 'read' OR effect = 'idempotent' OR effect = 'once'),
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
  taint            TEXT,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  started_at       TEXT,
  finished_at      TEXT,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, turn_id) REFERENCES turns (tenant_id, id) ON DELETE CASCADE
) STRICT;
-- The tenant is first, as in the reference to turns: without it, deleting a turn scans all calls of the tenant.
CREATE UNIQUE INDEX tool_calls_by_place ON tool_calls (tenant_id, turn_id, step, output_index);
CREATE INDEX tool_calls_by_item ON tool_calls (conversation_id, item_id) WHERE item_id IS NOT NULL;
-- A dedupe key counts inside its conversation only, where the rows next to it are on the same page.
CREATE INDEX tool_calls_by_key ON tool_calls (conversation_id, dedupe_key, created_at) WHERE dedupe_key IS NOT NULL;
CREATE INDEX tool_calls_by_conversation ON tool_calls (tenant_id, conversation_id, id);
-- Without reads: the index answers whether a call had an effect since a given time.
CREATE INDEX tool_calls_effects ON tool_calls (conversation_id, finished_at) WHERE effect <> 'read' AND finished_at IS NOT NULL;

CREATE INDEX tool_calls_retries ON tool_calls (tenant_id, retry_of) WHERE retry_of IS NOT NULL;

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

-- conversation_id is the id of the stream, as in leases. The table has a rowid, so rows are stored in the order of their arrival, and the
-- events of all turns in one commit share the last page.
CREATE TABLE events (
  conversation_id TEXT NOT NULL,
  seq             INTEGER NOT NULL,
  tenant_id       TEXT NOT NULL,
  turn_id         TEXT,
  type            TEXT NOT NULL,
  data            TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  PRIMARY KEY (conversation_id, seq)
) STRICT;

-- turn_id: NULL where the item started no turn.
CREATE TABLE inbox (
  tenant_id   TEXT NOT NULL,
  channel     TEXT NOT NULL,
  account     TEXT NOT NULL,
  external_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  turn_id     TEXT,
  created_at  TEXT NOT NULL,
  expires_at  TEXT NOT NULL,
  PRIMARY KEY (tenant_id, channel, account, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_by_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX inbox_expiring ON inbox (expires_at) WHERE turn_id IS NULL;

-- approver_roles: a JSON array; each of these roles may decide. asked_by, decided_by: people. retried_by: who retried the call of asked_by. asked_key, decided_key: their credentials.
-- server_label: the server that the model's provider would call.
CREATE TABLE approvals (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  conversation_id TEXT,
  turn_id         TEXT NOT NULL,
  call_id         TEXT NOT NULL,
  tool_name       TEXT NOT NULL,
  server_label    TEXT,
  arguments       TEXT NOT NULL,
  arguments_digest TEXT NOT NULL,
  approver_roles  TEXT NOT NULL,
  taint           TEXT,
  asked_by        TEXT NOT NULL,
  asked_key       TEXT NOT NULL,
  retried_by      TEXT,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'canceled')),
  decided_by      TEXT,
  decided_key     TEXT,
  created_at      TEXT NOT NULL,
  decided_at      TEXT,
  expires_at      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, call_id)
) STRICT;
CREATE INDEX approvals_by_conversation ON approvals (tenant_id, conversation_id);
CREATE INDEX approvals_by_turn ON approvals (tenant_id, turn_id);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';

-- ---------------------------------------------------------------- channels

-- What the server sends. recipient: the address at the channel. Rows of one lane leave in the order of their ids. next_at: when the row is due; for
-- a row that is being sent, until when the result must be known. owner: the process that sends it.
CREATE TABLE outbox (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  channel         TEXT NOT NULL,
  account         TEXT NOT NULL,
  recipient       TEXT NOT NULL,
  lane            TEXT NOT NULL,
  user_id         TEXT,
  conversation_id TEXT,
  turn_id         TEXT,
  approval_id     TEXT,
  part            INTEGER NOT NULL,
  status          TEXT NOT NULL
    CHECK (status = 'pending' OR status = 'sending' OR status = 'sent' OR status = 'delivered' OR status = 'read' OR status = 'dead'
      OR status = 'held'),
  repeatable      INTEGER NOT NULL CHECK (repeatable IN (0, 1)),
  ambiguous       INTEGER NOT NULL DEFAULT 0 CHECK (ambiguous IN (0, 1)),
  attempts        INTEGER NOT NULL DEFAULT 0,
  error_code      TEXT,
  error           TEXT,
  external_id     TEXT,
  owner           TEXT,
  next_at         TEXT NOT NULL,
  first_at        TEXT,
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  body            TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;
-- The parts of a turn. Notifications to programs and requests for approval are no parts.
CREATE UNIQUE INDEX outbox_by_part ON outbox (tenant_id, turn_id, channel, part)
  WHERE turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook';
-- Small however many rows were sent: the search for the oldest open row of a lane reads it.
CREATE INDEX outbox_open ON outbox (tenant_id, lane, status, id) WHERE status = 'pending' OR status = 'sending';
CREATE INDEX outbox_by_status ON outbox (tenant_id, status, id);
-- What was tried and given up: nearly empty, and alerts look at it every few seconds.
CREATE INDEX outbox_dead ON outbox (tenant_id) WHERE status = 'dead' AND attempts > 0;
CREATE INDEX outbox_by_external_id ON outbox (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX outbox_by_approval ON outbox (tenant_id, approval_id) WHERE approval_id IS NOT NULL;
-- Notifications that arrived are deleted after a time.
CREATE INDEX outbox_arrived ON outbox (updated_at) WHERE channel = 'webhook' AND status = 'sent';
CREATE INDEX outbox_by_conversation ON outbox (tenant_id, conversation_id) WHERE conversation_id IS NOT NULL;

-- One row for each lane with open rows. next_at: not later than when its oldest open row is due.
CREATE TABLE outbox_lanes (
  tenant_id TEXT NOT NULL,
  lane      TEXT NOT NULL,
  next_at   TEXT NOT NULL,
  channel   TEXT NOT NULL,
  account   TEXT NOT NULL,
  PRIMARY KEY (tenant_id, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_lanes_due ON outbox_lanes (channel, account, next_at);

-- People whom a channel knows. person: the user id, or the address of a sender who is no user. last_inbound_at: when the person wrote last.
-- noticed_at: when the person last got a notice that is sent once per time span.
CREATE TABLE contacts (
  tenant_id       TEXT NOT NULL,
  channel         TEXT NOT NULL,
  account         TEXT NOT NULL,
  person          TEXT NOT NULL,
  user_id         TEXT,
  address         TEXT NOT NULL,
  conversation_id TEXT,
  last_inbound_at TEXT,
  noticed_at      TEXT,
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  PRIMARY KEY (tenant_id, channel, account, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX contacts_by_user ON contacts (tenant_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX contacts_by_conversation ON contacts (tenant_id, conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX contacts_of_nobody ON contacts (updated_at) WHERE user_id IS NULL AND conversation_id IS NULL;

-- What the operator was told. tenant_id: the nil id where the alert is about the server. once: it is told once and never ends. source: the process
-- that sees the condition, where only one can see it; seen_at: when it last did. detail: the fields of the notification.
CREATE TABLE alerts (
  tenant_id   TEXT NOT NULL,
  id          TEXT NOT NULL,
  kind        TEXT NOT NULL,
  subject     TEXT NOT NULL,
  once        INTEGER NOT NULL CHECK (once IN (0, 1)),
  source      TEXT,
  detail      TEXT NOT NULL,
  opened_at   TEXT NOT NULL,
  seen_at     TEXT NOT NULL,
  resolved_at TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX alerts_by_subject ON alerts (tenant_id, kind, subject) WHERE once OR resolved_at IS NULL;
CREATE INDEX alerts_open ON alerts (id) WHERE resolved_at IS NULL AND NOT once;

-- The definitions of tools that other servers bring, as the operator knows them. tenant_id is the nil id: they belong to the installation. The columns
-- changed_*: what the server offers instead; the tool is disabled until the operator accepts it.
CREATE TABLE tool_pins (
  tenant_id          TEXT NOT NULL,
  name               TEXT NOT NULL,
  server             TEXT NOT NULL,
  digest             TEXT NOT NULL,
  definition         TEXT NOT NULL,
  accepted_at        TEXT NOT NULL,
  changed_digest     TEXT,
  changed_definition TEXT,
  changed_at         TEXT,
  PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

-- What a person may use at another server: the tokens of the person, encrypted. A server is named as in the configuration.
CREATE TABLE connections (
  tenant_id  TEXT NOT NULL,
  user_id    TEXT NOT NULL,
  server     TEXT NOT NULL,
  sealed     BLOB NOT NULL,
  expires_at TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, user_id, server)
) STRICT;
CREATE INDEX connections_by_server ON connections (server, updated_at);

-- Links that connect a person with a server. digest: of the token of the link; once the link was opened, of the state that comes back with the
-- answer. browser: the digest of the cookie of the browser that opened the link. sealed: what the answer needs, encrypted.
-- tries, opening_until: how often somebody tried to open the link, and until when somebody is trying.
CREATE TABLE connection_requests (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  user_id    TEXT NOT NULL,
  server     TEXT NOT NULL,
  scope      TEXT,
  digest     TEXT NOT NULL UNIQUE,
  opened     INTEGER NOT NULL CHECK (opened IN (0, 1)),
  browser    TEXT CHECK ((browser IS NULL) = (opened = 0)),
  sealed     BLOB,
  tries      INTEGER NOT NULL DEFAULT 0,
  opening_until TEXT,
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX connection_requests_expiring ON connection_requests (expires_at);
CREATE INDEX connection_requests_by_user ON connection_requests (tenant_id, user_id);

-- ---------------------------------------------------------------- usage and tokens

-- Small rows under ids that grow: without a rowid one b-tree holds both. counted_on: the day whose budgets count the request; NULL: that of created_at.
-- cost_usd: cost_nano_usd in dollars, written with it. It is no generated column, because PRAGMA table_info does not list those.
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
  operation         TEXT NOT NULL
    CHECK (operation = 'chat' OR operation = 'ask_gpt' OR operation = 'embedding' OR operation = 'tool'),
  tokens_prompt     INTEGER NOT NULL,
  tokens_cached     INTEGER NOT NULL,
  tokens_completion INTEGER NOT NULL,
  tokens_reasoning  INTEGER NOT NULL,
  tokens_total      INTEGER NOT NULL,
  estimated         INTEGER NOT NULL CHECK (estimated IN (0, 1)),
  cost_nano_usd     INTEGER,
  request_id        TEXT,
  started_at        TEXT,
  took_ms           INTEGER,
  tool_name         TEXT,
  assistant         TEXT,
  counted_on        TEXT,
  cost_usd          REAL
) STRICT, WITHOUT ROWID;
CREATE INDEX api_usage_by_time ON api_usage (tenant_id, created_at);

-- subject: a user, key or assistant; NULL: each of them has the budget for itself. settled: the usage rows of processes that did not know the new budget yet
-- are counted.
CREATE TABLE budgets (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  scope      TEXT NOT NULL CHECK (scope IN ('tenant', 'user', 'key', 'assistant')),
  subject    TEXT,
  period     TEXT NOT NULL CHECK (period IN ('day', 'month')),
  unit       TEXT NOT NULL CHECK (unit IN ('tokens', 'nano_usd', 'model_calls')),
  max_amount INTEGER NOT NULL,
  configured INTEGER NOT NULL CHECK (configured IN (0, 1)),
  created_at TEXT NOT NULL,
  settled    INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)),
  PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX budgets_by_name ON budgets (tenant_id, scope, coalesce(subject, ''), period, unit);

-- The counters. used: the sum of the usage rows that count. reserved: the sum of the reservations. period_start: the first day, in UTC.
CREATE TABLE budget_periods (
  tenant_id    TEXT NOT NULL,
  budget_id    TEXT NOT NULL,
  subject      TEXT NOT NULL,
  period_start TEXT NOT NULL,
  used         INTEGER NOT NULL,
  reserved     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, budget_id, subject, period_start),
  FOREIGN KEY (tenant_id, budget_id) REFERENCES budgets (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_periods_by_start ON budget_periods (period_start, tenant_id);

-- The worst cases of requests in progress, one row per request and counter. Few rows: no other index pays for its writes.
CREATE TABLE budget_reservations (
  tenant_id    TEXT NOT NULL,
  id           TEXT NOT NULL,
  budget_id    TEXT NOT NULL,
  subject      TEXT NOT NULL,
  period_start TEXT NOT NULL,
  amount       INTEGER NOT NULL,
  turn_id      TEXT,
  expires_at   TEXT NOT NULL,
  PRIMARY KEY (tenant_id, id, budget_id, subject, period_start)
) STRICT, WITHOUT ROWID;

-- What the requests of a day used, per user, model and tool. Rows of a day that is complete have all its requests; other rows have those whose
-- usage rows were deleted. They outlive the usage rows.
CREATE TABLE usage_daily (
  tenant_id         TEXT NOT NULL,
  day               TEXT NOT NULL,
  user_id           TEXT NOT NULL,
  model             TEXT NOT NULL,
  tool_name         TEXT NOT NULL,
  complete          INTEGER NOT NULL CHECK (complete IN (0, 1)),
  calls             INTEGER NOT NULL,
  tokens_prompt     INTEGER NOT NULL,
  tokens_cached     INTEGER NOT NULL,
  tokens_completion INTEGER NOT NULL,
  tokens_reasoning  INTEGER NOT NULL,
  tokens_total      INTEGER NOT NULL,
  cost_nano_usd     INTEGER NOT NULL,
  unpriced_calls    INTEGER NOT NULL,
  estimated_calls   INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, day, user_id, model, tool_name)
) STRICT, WITHOUT ROWID;

-- The audit log: one chain of entries per tenant, and one for the server under the nil id. hash covers the hash of the entry before and
-- all columns but salt, before and after; the digests of before and after are salted. person: the user whose erasure blanks the values.
CREATE TABLE audit_entries (
  tenant_id     TEXT NOT NULL,
  seq           INTEGER NOT NULL,
  at            TEXT NOT NULL,
  user_id       TEXT,
  key_id        TEXT,
  operator      INTEGER NOT NULL CHECK (operator IN (0, 1)),
  address       TEXT,
  action        TEXT NOT NULL,
  subject       TEXT NOT NULL,
  person        TEXT,
  salt          TEXT,
  before        TEXT,
  after         TEXT,
  before_digest TEXT,
  after_digest  TEXT,
  hash          TEXT NOT NULL,
  PRIMARY KEY (tenant_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_entries_by_person ON audit_entries (tenant_id, person) WHERE person IS NOT NULL;

-- The end of each chain. signature: over seq, count and hash, with the key that key_name names.
CREATE TABLE audit_heads (
  tenant_id TEXT NOT NULL PRIMARY KEY,
  seq       INTEGER NOT NULL,
  hash      TEXT NOT NULL,
  count     INTEGER NOT NULL,
  key_name  TEXT,
  signature TEXT
) STRICT, WITHOUT ROWID;

-- Tokens of providers, encrypted. tenant_id is the nil id where a token belongs to the installation.
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

-- The owner that fetches a token at the moment; other owners wait for that token.
CREATE TABLE provider_claims (
  tenant_id  TEXT NOT NULL,
  provider   TEXT NOT NULL,
  account    TEXT NOT NULL,
  owner      TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
) STRICT;

-- ---------------------------------------------------------------- views with the names that existing reports use

CREATE VIEW chats AS SELECT * FROM conversations;
CREATE VIEW tool_call AS SELECT *, conversation_id AS chat_id FROM tool_calls;
CREATE VIEW api_usage_by_chat AS SELECT *, conversation_id AS chat_id FROM api_usage;
