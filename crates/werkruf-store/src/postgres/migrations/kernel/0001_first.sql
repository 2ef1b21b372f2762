-- The kernel's first schema: tenants, people, conversations, turns, calls, usage. SQLite has the same tables.
-- It runs with the schema first in the search path, so nothing here names the schema.
-- Every key begins with the tenant: the tables can be distributed by tenant_id, and the row-level security of `row_security.sql`
-- is answered by the same index. jsonb where people query; json, which keeps the exact text, where a program reads the value back.
-- Whole numbers are bigint. No foreign key to tenants: the tenant comes from the credential, which was read from there.

CREATE TABLE settings (
  name  text NOT NULL PRIMARY KEY,
  value text NOT NULL
);

-- budgets_version: changes with every change of the tenant's budgets.
CREATE TABLE tenants (
  id         uuid NOT NULL PRIMARY KEY,
  tenant_id  uuid NOT NULL GENERATED ALWAYS AS (id) STORED,
  slug       text COLLATE "C" NOT NULL UNIQUE,
  created_at timestamptz NOT NULL,
  budgets_version bigint NOT NULL DEFAULT 0
);

-- ---------------------------------------------------------------- people

CREATE TABLE branches (
  tenant_id uuid NOT NULL,
  id        bigint NOT NULL,
  name      text NOT NULL,
  time_zone text NOT NULL,
  PRIMARY KEY (tenant_id, id)
);

CREATE TABLE roles (
  tenant_id uuid NOT NULL,
  id        bigint NOT NULL,
  name      text NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX roles_by_name ON roles (tenant_id, name);

CREATE TABLE permissions (
  tenant_id   uuid NOT NULL,
  role_id     bigint NOT NULL,
  position    bigint NOT NULL,
  entity      text NOT NULL,
  entity_type text NOT NULL,
  access      text NOT NULL CHECK (access IN ('read', 'write', 'both')),
  scope       text NOT NULL CHECK (scope IN ('own', 'branch', 'all')),
  PRIMARY KEY (tenant_id, role_id, position),
  FOREIGN KEY (tenant_id, role_id) REFERENCES roles (tenant_id, id) ON DELETE CASCADE
);

-- token_roles: the roles of the user's last token, {"names": [...], "only": true|false}. They count until token_roles_until.
-- phone_key: the phone in its canonical form, by which a sender is found. active: a user who is not is treated as unknown; the row
-- stays, because other rows name it.
CREATE TABLE users (
  tenant_id         uuid NOT NULL,
  id                bigint NOT NULL,
  first_name        text NOT NULL,
  last_name         text NOT NULL,
  email             text,
  phone             text,
  whatsapp_user_id  text,
  external_id       text,
  locale            text NOT NULL,
  time_zone         text,
  branch_id         bigint,
  token_roles       json,
  token_roles_until timestamptz CHECK ((token_roles_until IS NULL) = (token_roles IS NULL)),
  phone_key         text,
  active            boolean NOT NULL DEFAULT true,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, branch_id) REFERENCES branches (tenant_id, id)
);
CREATE UNIQUE INDEX users_by_external_id ON users (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX users_by_phone ON users (tenant_id, phone_key) WHERE phone_key IS NOT NULL;
CREATE INDEX users_by_whatsapp ON users (tenant_id, whatsapp_user_id) WHERE whatsapp_user_id IS NOT NULL;
CREATE INDEX users_by_branch ON users (tenant_id, branch_id);

CREATE TABLE user_roles (
  tenant_id uuid NOT NULL,
  user_id   bigint NOT NULL,
  role_id   bigint NOT NULL,
  PRIMARY KEY (tenant_id, user_id, role_id),
  FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id) ON DELETE CASCADE,
  FOREIGN KEY (tenant_id, role_id) REFERENCES roles (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX user_roles_by_role ON user_roles (tenant_id, role_id);

-- The roles that a user has at a time T: those with since <= T AND T < until. A role name of the token that the tenant does not have is
-- ignored. Where no name is left, user_roles counts, unless the token allows its own roles only.
CREATE VIEW held_roles (tenant_id, user_id, role_id, since, until) WITH (security_invoker = true) AS
SELECT users.tenant_id, users.id, roles.id, '-infinity'::timestamptz, users.token_roles_until
FROM users JOIN roles ON roles.tenant_id = users.tenant_id
WHERE users.token_roles IS NOT NULL AND roles.name IN (SELECT json_array_elements_text(users.token_roles -> 'names'))
UNION ALL
SELECT user_roles.tenant_id, user_roles.user_id, user_roles.role_id,
  CASE WHEN (users.token_roles ->> 'only')::boolean OR EXISTS (
    SELECT 1 FROM roles WHERE roles.tenant_id = users.tenant_id
      AND roles.name IN (SELECT json_array_elements_text(users.token_roles -> 'names')))
  THEN users.token_roles_until ELSE '-infinity'::timestamptz END, 'infinity'::timestamptz
FROM user_roles JOIN users ON users.tenant_id = user_roles.tenant_id AND users.id = user_roles.user_id;

CREATE TABLE api_keys (
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  digest     text NOT NULL UNIQUE,
  user_id    text,
  scopes     text NOT NULL,
  name       text,
  expires_at timestamptz,
  created_at timestamptz NOT NULL,
  last_used_at timestamptz,
  allow_ips    text,
  safety_mode  text,
  collection   text,
  replaced_by  uuid,
  root_id      uuid,
  PRIMARY KEY (tenant_id, id)
);
-- Sessions of the console look a key up on every request.
CREATE INDEX api_keys_by_id ON api_keys (id);

-- How many requests or turns the processes together have taken in a minute. A row is worth a minute at most, so it need not survive a crash.
CREATE UNLOGGED TABLE rate_windows (
  tenant_id    uuid NOT NULL,
  subject      text NOT NULL,
  window_start timestamptz NOT NULL,
  taken        bigint NOT NULL,
  PRIMARY KEY (tenant_id, subject)
);

-- Sign-in to the console. link: a link that works once, and then becomes a session. digest: of the token in the link or in the cookie. key_id: the key
-- that the session stands for; null: the operator, as long as the operator's key has the digest operator_digest.
CREATE TABLE console_sessions (
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  digest     text NOT NULL UNIQUE,
  link       boolean NOT NULL,
  key_id     uuid,
  operator_digest text CHECK ((operator_digest IS NULL) <> (key_id IS NULL)),
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX console_sessions_expiring ON console_sessions (expires_at);

-- ---------------------------------------------------------------- conversations

CREATE TABLE conversations (
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  user_id    text NOT NULL,
  channel    text NOT NULL,
  assistant  text NOT NULL,
  title      text NOT NULL,
  state      jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  -- Summary of the messages that are no longer sent to the model, and the seq up to which it reaches.
  summary       text,
  summary_until bigint,
  -- The untrusted results that the summary covers, as a JSON array.
  summary_untrusted text,
  -- What a client of /v1/conversations stores with it.
  metadata      jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 85);
CREATE INDEX conversations_by_user ON conversations (tenant_id, user_id, id);

-- conversation_id is the id of the stream: the conversation, or the turn where a turn has no conversation. Every commit updates a row
-- here, so the table has no further index and free space in each page: the update stays on its page. last_write: id of the newest
-- write that was committed under this lease. read_until: some process has readers of the stream, and says so again before then.
CREATE TABLE leases (
  tenant_id        uuid NOT NULL,
  conversation_id  uuid NOT NULL,
  owner            text,
  epoch            bigint NOT NULL,
  next_event_seq   bigint NOT NULL,
  next_message_seq bigint NOT NULL,
  expires_at       timestamptz,
  last_write       uuid,
  read_until       timestamptz,
  PRIMARY KEY (tenant_id, conversation_id)
) WITH (fillfactor = 50);

CREATE TABLE messages (
  id              uuid NOT NULL,
  tenant_id       uuid NOT NULL,
  created_at      timestamptz NOT NULL,
  conversation_id uuid NOT NULL,
  content         text NOT NULL,
  role            text NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
  tool_calls      jsonb,
  tool_call_id    text,
  tool_name       text,
  status          text CHECK (status IS NULL OR status IN ('pending', 'success', 'error')),
  metadata        jsonb NOT NULL DEFAULT '{}',
  seq             bigint,
  turn_id         uuid,
  tokens          bigint,
  PRIMARY KEY (tenant_id, conversation_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX messages_by_place ON messages (tenant_id, conversation_id, seq);
CREATE UNIQUE INDEX messages_by_call ON messages (tenant_id, conversation_id, tool_call_id) WHERE tool_call_id IS NOT NULL;
CREATE INDEX messages_awaited ON messages (tenant_id, tool_call_id) WHERE status = 'pending';
CREATE INDEX messages_waiting ON messages (tenant_id, conversation_id) WHERE status = 'pending';

-- client: the request of an OpenAI client. transcript_digest: digest of the transcript that this client has after the turn. request_digest: digest of the
-- request, so that the same request is recognised. credential: names the credential of the request. context: what the request says about the calls,
-- for a turn that another process continues.
CREATE TABLE turns (
  tenant_id        uuid NOT NULL,
  id               uuid NOT NULL,
  conversation_id  uuid,
  user_id          text NOT NULL,
  kind             text NOT NULL CHECK (kind IN ('chat', 'invoke', 'retry')),
  assistant        text NOT NULL,
  key_id           uuid,
  status           text NOT NULL CHECK (status IN
    ('accepted', 'planning', 'acting', 'finalizing', 'completed', 'awaiting_approval', 'failed', 'canceled')),
  step             bigint NOT NULL DEFAULT 0,
  takeovers        bigint NOT NULL DEFAULT 0,
  stalled          bigint NOT NULL DEFAULT 0,
  cancel_requested boolean NOT NULL DEFAULT false,
  partial          text,
  error            json,
  error_code       text,
  message          text,
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  finished_at      timestamptz,
  client           json,
  transcript_digest text,
  request_digest   text,
  credential       text NOT NULL DEFAULT '',
  context          json,
  inbound          json,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, conversation_id) REFERENCES conversations (tenant_id, id) ON DELETE CASCADE
) WITH (fillfactor = 85);
CREATE INDEX turns_by_conversation ON turns (tenant_id, conversation_id, id);
CREATE INDEX turns_by_transcript_digest ON turns (tenant_id, user_id, transcript_digest) WHERE transcript_digest IS NOT NULL;
CREATE INDEX turns_by_request ON turns (tenant_id, user_id, request_digest) WHERE request_digest IS NOT NULL;
-- Small however many turns have ended: the search for work reads it.
CREATE INDEX turns_open ON turns (id) WHERE finished_at IS NULL;
-- Nearly empty: the turns that were given up because they stopped the server.
CREATE INDEX turns_poison ON turns (finished_at) WHERE error_code = 'poison';
-- The queued and the running turns of one conversation.
CREATE INDEX turns_open_by_conversation ON turns (tenant_id, conversation_id, id) WHERE finished_at IS NULL;

CREATE TABLE tool_calls (
  tenant_id        uuid NOT NULL,
  id               uuid NOT NULL,
  conversation_id  uuid,
  turn_id          uuid NOT NULL,
  step             bigint NOT NULL,
  output_index     bigint NOT NULL,
  response_id      text,
  kind             text NOT NULL CHECK (kind IN ('function', 'mcp', 'web_search', 'custom')),
  runner           text NOT NULL CHECK (runner IN ('server', 'provider', 'client')),
  tool_name        text NOT NULL,
  call_id          text,
  item_id          text,
  status           text NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'canceled')),
  request          jsonb,
  raw_arguments    text,
  repairs          jsonb,
  response         jsonb,
  error            text,
  error_type       text,
  error_code       text,
  error_detail     jsonb,
  effect           text NOT NULL CHECK (effect IN ('read', 'idempotent', 'once')),
  attempt          bigint NOT NULL DEFAULT 0,
  cache_hit        boolean NOT NULL DEFAULT false,
  cancel_requested boolean NOT NULL DEFAULT false,
  dedupe_key       text,
  dedupe_of        uuid,
  retry_of         uuid,
  idempotency_key  text,
  permission       json,
  context          json NOT NULL,
  trace_id         text,
  run_id           text,
  ingestion_run_id text,
  workflow_id      text,
  case_id          text,
  meta             json,
  taint            json,
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  started_at       timestamptz,
  finished_at      timestamptz,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, turn_id) REFERENCES turns (tenant_id, id) ON DELETE CASCADE
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX tool_calls_by_place ON tool_calls (tenant_id, turn_id, step, output_index);
CREATE INDEX tool_calls_by_item ON tool_calls (tenant_id, conversation_id, item_id) WHERE item_id IS NOT NULL;
CREATE INDEX tool_calls_by_key ON tool_calls (tenant_id, dedupe_key, created_at) WHERE dedupe_key IS NOT NULL;
CREATE INDEX tool_calls_by_conversation ON tool_calls (tenant_id, conversation_id, id);
CREATE INDEX tool_calls_retries ON tool_calls (tenant_id, retry_of) WHERE retry_of IS NOT NULL;
-- Reads are not in it: it answers whether a call of the conversation has had an effect since a time.
CREATE INDEX tool_calls_effects ON tool_calls (tenant_id, conversation_id, finished_at) WHERE effect <> 'read' AND finished_at IS NOT NULL;

CREATE TABLE call_attempts (
  tenant_id   uuid NOT NULL,
  call_id     uuid NOT NULL,
  attempt     bigint NOT NULL,
  started_at  timestamptz NOT NULL,
  finished_at timestamptz NOT NULL,
  status      text NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'canceled')),
  error       json NOT NULL,
  PRIMARY KEY (tenant_id, call_id, attempt),
  FOREIGN KEY (tenant_id, call_id) REFERENCES tool_calls (tenant_id, id) ON DELETE CASCADE
);

-- conversation_id is the id of the stream, as in leases.
CREATE TABLE events (
  conversation_id uuid NOT NULL,
  seq             bigint NOT NULL,
  tenant_id       uuid NOT NULL,
  turn_id         uuid,
  type            text NOT NULL,
  data            json NOT NULL,
  created_at      timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, conversation_id, seq)
);

-- turn_id: null where the item started no turn.
CREATE TABLE inbox (
  tenant_id   uuid NOT NULL,
  channel     text NOT NULL,
  account     text NOT NULL,
  external_id text NOT NULL,
  fingerprint text NOT NULL,
  turn_id     uuid,
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, channel, account, external_id)
);
CREATE INDEX inbox_by_turn ON inbox (tenant_id, turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX inbox_expiring ON inbox (expires_at) WHERE turn_id IS NULL;

CREATE TABLE approvals (
  tenant_id        uuid NOT NULL,
  id               uuid NOT NULL,
  conversation_id  uuid,
  turn_id          uuid NOT NULL,
  call_id          uuid NOT NULL,
  tool_name        text NOT NULL,
  server_label    text,
  arguments        json NOT NULL,
  arguments_digest text NOT NULL,
  approver_roles   json NOT NULL,
  taint            json,
  asked_by         text NOT NULL,
  asked_key        text NOT NULL,
  retried_by       text,
  status           text NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'canceled')),
  decided_by       text,
  decided_key      text,
  created_at       timestamptz NOT NULL,
  decided_at       timestamptz,
  expires_at       timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, call_id)
);
CREATE INDEX approvals_by_conversation ON approvals (tenant_id, conversation_id);
CREATE INDEX approvals_by_turn ON approvals (tenant_id, turn_id);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';

-- Equal calls outside any conversation: which of them runs, before it has a row in tool_calls. Once it has one, that row decides.
CREATE TABLE dedupe_claims (
  tenant_id  uuid NOT NULL,
  dedupe_key text NOT NULL,
  call_id    uuid NOT NULL,
  claimed_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, dedupe_key)
);
CREATE INDEX dedupe_claims_by_age ON dedupe_claims (tenant_id, claimed_at);

-- ---------------------------------------------------------------- channels

-- What the server sends. recipient: the address at the channel. Rows of one lane leave in the order of their ids. next_at: when the row is due; for
-- a row that is being sent, until when the result must be known. owner: the process that sends it.
CREATE TABLE outbox (
  tenant_id       uuid NOT NULL,
  id              uuid NOT NULL,
  channel         text NOT NULL,
  account         text NOT NULL,
  recipient       text NOT NULL,
  lane            text NOT NULL,
  user_id         text,
  conversation_id uuid,
  turn_id         uuid,
  approval_id     uuid,
  part            bigint NOT NULL,
  status          text NOT NULL CHECK (status IN ('pending', 'sending', 'sent', 'delivered', 'read', 'dead', 'held')),
  repeatable      boolean NOT NULL,
  ambiguous       boolean NOT NULL DEFAULT false,
  attempts        bigint NOT NULL DEFAULT 0,
  error_code      text,
  error           text,
  external_id     text,
  owner           text,
  next_at         timestamptz NOT NULL,
  first_at        timestamptz,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  body            json NOT NULL,
  PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 85);
-- The parts of a turn. Notifications to programs and requests for approval are no parts.
CREATE UNIQUE INDEX outbox_by_part ON outbox (tenant_id, turn_id, channel, part)
  WHERE turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook';
-- Small however many rows were sent: the search for the oldest open row of a lane reads it.
CREATE INDEX outbox_open ON outbox (tenant_id, lane, status, id) WHERE status IN ('pending', 'sending');
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
  tenant_id uuid NOT NULL,
  lane      text NOT NULL,
  next_at   timestamptz NOT NULL,
  channel   text NOT NULL,
  account   text NOT NULL,
  PRIMARY KEY (tenant_id, lane)
) WITH (fillfactor = 50);
CREATE INDEX outbox_lanes_due ON outbox_lanes (channel, account, next_at);

-- People whom a channel knows. person: the user id, or the address of a sender who is no user. last_inbound_at: when the person wrote last.
-- noticed_at: when the person last got a notice that is sent once per time span.
CREATE TABLE contacts (
  tenant_id       uuid NOT NULL,
  channel         text NOT NULL,
  account         text NOT NULL,
  person          text NOT NULL,
  user_id         text,
  address         text NOT NULL,
  conversation_id uuid,
  last_inbound_at timestamptz,
  noticed_at      timestamptz,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, channel, account, person)
);
CREATE INDEX contacts_by_user ON contacts (tenant_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX contacts_by_conversation ON contacts (tenant_id, conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX contacts_of_nobody ON contacts (updated_at) WHERE user_id IS NULL AND conversation_id IS NULL;

-- What the operator was told. tenant_id: the nil id where the alert is about the server. once: it is told once and never ends. source: the process
-- that sees the condition, where only one can see it; seen_at: when it last did. detail: the fields of the notification.
CREATE TABLE alerts (
  tenant_id   uuid NOT NULL,
  id          uuid NOT NULL,
  kind        text NOT NULL,
  subject     text NOT NULL,
  once        boolean NOT NULL,
  source      text,
  detail      json NOT NULL,
  opened_at   timestamptz NOT NULL,
  seen_at     timestamptz NOT NULL,
  resolved_at timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX alerts_by_subject ON alerts (tenant_id, kind, subject) WHERE once OR resolved_at IS NULL;
CREATE INDEX alerts_open ON alerts (id) WHERE resolved_at IS NULL AND NOT once;

-- The definitions of tools that other servers bring, as the operator knows them. tenant_id is the nil id: they belong to the installation. The columns
-- changed_*: what the server offers instead; the tool is disabled until the operator accepts it.
CREATE TABLE tool_pins (
  tenant_id          uuid NOT NULL,
  name               text NOT NULL,
  server             text NOT NULL,
  digest             text NOT NULL,
  definition         text NOT NULL,
  accepted_at        timestamptz NOT NULL,
  changed_digest     text,
  changed_definition text,
  changed_at         timestamptz,
  PRIMARY KEY (tenant_id, name)
);

-- What a person may use at another server: the tokens of the person, encrypted. A server is named as in the configuration.
CREATE TABLE connections (
  tenant_id  uuid NOT NULL,
  user_id    text NOT NULL,
  server     text NOT NULL,
  sealed     bytea NOT NULL,
  expires_at timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, user_id, server)
);
CREATE INDEX connections_by_server ON connections (server, updated_at);

-- Links that connect a person with a server. digest: of the token of the link; once the link was opened, of the state that comes back with the
-- answer. browser: the digest of the cookie of the browser that opened the link. sealed: what the answer needs, encrypted.
-- tries, opening_until: how often somebody tried to open the link, and until when somebody is trying.
CREATE TABLE connection_requests (
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  user_id    text NOT NULL,
  server     text NOT NULL,
  scope      text,
  digest     text NOT NULL UNIQUE,
  opened     boolean NOT NULL,
  browser    text CHECK ((browser IS NULL) = (NOT opened)),
  sealed     bytea,
  tries      bigint NOT NULL DEFAULT 0,
  opening_until timestamptz,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX connection_requests_expiring ON connection_requests (expires_at);
CREATE INDEX connection_requests_by_user ON connection_requests (tenant_id, user_id);

-- ---------------------------------------------------------------- usage and provider tokens

-- counted_on: the day whose budgets count the request; null: that of created_at.
CREATE TABLE api_usage (
  id                uuid NOT NULL,
  tenant_id         uuid NOT NULL,
  user_id           text NOT NULL,
  conversation_id   uuid,
  turn_id           uuid,
  call_id           uuid,
  key_id            uuid,
  created_at        timestamptz NOT NULL,
  provider          text NOT NULL,
  model             text NOT NULL,
  operation         text NOT NULL CHECK (operation IN ('chat', 'ask_gpt', 'embedding', 'tool')),
  tokens_prompt     bigint NOT NULL,
  tokens_cached     bigint NOT NULL,
  tokens_completion bigint NOT NULL,
  tokens_reasoning  bigint NOT NULL,
  tokens_total      bigint NOT NULL,
  estimated         boolean NOT NULL,
  cost_nano_usd     bigint,
  request_id        text,
  started_at        timestamptz,
  took_ms           bigint,
  tool_name         text,
  assistant         text,
  counted_on        date,
  cost_usd          double precision GENERATED ALWAYS AS (cost_nano_usd::double precision / 1000000000.0) STORED,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX api_usage_by_turn ON api_usage (tenant_id, turn_id);
CREATE INDEX api_usage_by_time ON api_usage (tenant_id, created_at);

-- subject: a user, key or assistant; null: each of them has the budget for itself. settled: the usage rows of processes that did not know the new budget yet
-- are counted.
CREATE TABLE budgets (
  tenant_id  uuid NOT NULL,
  id         uuid NOT NULL,
  scope      text NOT NULL CHECK (scope IN ('tenant', 'user', 'key', 'assistant')),
  subject    text,
  period     text NOT NULL CHECK (period IN ('day', 'month')),
  unit       text NOT NULL CHECK (unit IN ('tokens', 'nano_usd', 'model_calls')),
  max_amount bigint NOT NULL,
  configured boolean NOT NULL,
  created_at timestamptz NOT NULL,
  settled    boolean NOT NULL DEFAULT false,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX budgets_by_name ON budgets (tenant_id, scope, coalesce(subject, ''), period, unit);

-- The counters. used: the sum of the usage rows that count. reserved: the sum of the reservations. period_start: the first day, in UTC.
CREATE TABLE budget_periods (
  tenant_id    uuid NOT NULL,
  budget_id    uuid NOT NULL,
  subject      text COLLATE "C" NOT NULL,
  period_start date NOT NULL,
  used         bigint NOT NULL,
  reserved     bigint NOT NULL,
  PRIMARY KEY (tenant_id, budget_id, subject, period_start),
  FOREIGN KEY (tenant_id, budget_id) REFERENCES budgets (tenant_id, id) ON DELETE CASCADE
) WITH (fillfactor = 50);
CREATE INDEX budget_periods_by_start ON budget_periods (period_start, tenant_id);

-- The worst cases of requests in progress, one row per request and counter. Whoever changes a row has locked its counter.
CREATE TABLE budget_reservations (
  tenant_id    uuid NOT NULL,
  id           uuid NOT NULL,
  budget_id    uuid NOT NULL,
  subject      text NOT NULL,
  period_start date NOT NULL,
  amount       bigint NOT NULL,
  turn_id      uuid,
  expires_at   timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, id, budget_id, subject, period_start)
);
CREATE INDEX budget_reservations_by_turn ON budget_reservations (tenant_id, turn_id) WHERE turn_id IS NOT NULL;

-- What the requests of a day used, per user, model and tool. Rows of a day that is complete have all its requests; other rows have those whose
-- usage rows were deleted. They outlive the usage rows.
CREATE TABLE usage_daily (
  tenant_id         uuid NOT NULL,
  day               text COLLATE "C" NOT NULL,
  user_id           text NOT NULL,
  model             text NOT NULL,
  tool_name         text NOT NULL,
  complete          boolean NOT NULL,
  calls             bigint NOT NULL,
  tokens_prompt     bigint NOT NULL,
  tokens_cached     bigint NOT NULL,
  tokens_completion bigint NOT NULL,
  tokens_reasoning  bigint NOT NULL,
  tokens_total      bigint NOT NULL,
  cost_nano_usd     bigint NOT NULL,
  unpriced_calls    bigint NOT NULL,
  estimated_calls   bigint NOT NULL,
  PRIMARY KEY (tenant_id, day, user_id, model, tool_name)
);

-- sealed: the token, encrypted with WERKRUF_SECRET_KEY. tenant_id is the nil id where the row belongs to the installation.
CREATE TABLE provider_tokens (
  tenant_id  uuid NOT NULL,
  provider   text NOT NULL,
  account    text NOT NULL,
  sealed     bytea NOT NULL,
  expires_at timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
);

-- Which process is fetching a token.
CREATE TABLE provider_claims (
  tenant_id  uuid NOT NULL,
  provider   text NOT NULL,
  account    text NOT NULL,
  owner      uuid NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, provider, account)
);

-- ---------------------------------------------------------------- audit log

-- The audit log: one chain of entries per tenant, and one for the server under the nil id. hash covers the hash of the entry before and
-- all columns but salt, before and after; the digests of before and after are salted. person: the user whose erasure blanks the values. The server's
-- roles may add and read entries only; `blank_audit_values` blanks.
CREATE TABLE audit_entries (
  tenant_id     uuid NOT NULL,
  seq           bigint NOT NULL,
  at            timestamptz NOT NULL,
  user_id       text,
  key_id        uuid,
  operator      boolean NOT NULL,
  address       text,
  action        text NOT NULL,
  subject       text NOT NULL,
  person        text,
  salt          text,
  before        text,
  after         text,
  before_digest text,
  after_digest  text,
  hash          text NOT NULL,
  PRIMARY KEY (tenant_id, seq)
);
CREATE INDEX audit_entries_by_person ON audit_entries (tenant_id, person) WHERE person IS NOT NULL;

-- The end of each chain. signature: over seq, count and hash, with the key that key_name names.
CREATE TABLE audit_heads (
  tenant_id uuid NOT NULL PRIMARY KEY,
  seq       bigint NOT NULL,
  hash      text NOT NULL,
  count     bigint NOT NULL,
  key_name  text,
  signature text
);

-- ---------------------------------------------------------------- names of the seeds

CREATE VIEW chats WITH (security_invoker = true) AS SELECT * FROM conversations;
CREATE VIEW tool_call WITH (security_invoker = true) AS SELECT *, conversation_id AS chat_id FROM tool_calls;
CREATE VIEW api_usage_by_chat WITH (security_invoker = true) AS SELECT *, conversation_id AS chat_id FROM api_usage;
