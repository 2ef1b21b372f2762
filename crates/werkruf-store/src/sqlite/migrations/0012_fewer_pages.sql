-- Each commit writes every page it has touched, so what a turn costs is how many trees, and how many pages of each, its rows lie in.

-- Views and triggers of the operator's own may name what is built anew; they mean the new table as soon as it has the name.
PRAGMA legacy_alter_table = ON;

-- Rows in the order they come: the turns of one commit share the last page, where each had one of its own.
CREATE TABLE events_as_they_come (
  conversation_id TEXT NOT NULL,
  seq             INTEGER NOT NULL,
  tenant_id       TEXT NOT NULL,
  turn_id         TEXT,
  type            TEXT NOT NULL,
  data            TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  PRIMARY KEY (conversation_id, seq)
) STRICT;
INSERT INTO events_as_they_come SELECT * FROM events;
DROP TABLE events;
ALTER TABLE events_as_they_come RENAME TO events;

-- Small rows under ids that grow: one tree holds both.
DROP VIEW api_usage_by_chat;
CREATE TABLE api_usage_by_id (
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
  cost_usd          REAL GENERATED ALWAYS AS (cost_nano_usd / 1000000000.0) VIRTUAL
) STRICT, WITHOUT ROWID;
INSERT INTO api_usage_by_id SELECT id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model, operation,
  tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd FROM api_usage;
DROP TABLE api_usage;
ALTER TABLE api_usage_by_id RENAME TO api_usage;
CREATE VIEW api_usage_by_chat AS SELECT *, conversation_id AS chat_id FROM api_usage;

-- A key is known inside its conversation only, and there its neighbours are on the same page.
DROP INDEX tool_calls_by_key;
CREATE INDEX tool_calls_by_key ON tool_calls (conversation_id, dedupe_key, created_at) WHERE dedupe_key IS NOT NULL;
-- Nothing is found by it: which ids are taken, the messages say.
DROP INDEX tool_calls_by_wire_id;

-- A list of three words and more is a table that SQLite builds and drops for every row it checks. The rules stay as they are, spelled
-- out, and no row is touched: https://sqlite.org/lang_altertable.html section 7.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
  'role IN (''user'', ''assistant'', ''tool'', ''system'')',
  '(role = ''user'' OR role = ''assistant'' OR role = ''tool'' OR role = ''system'')')
  WHERE type = 'table' AND name = 'messages';
UPDATE sqlite_schema SET sql = replace(sql,
  'status IN (''pending'', ''success'', ''error'')',
  '(status = ''pending'' OR status = ''success'' OR status = ''error'')')
  WHERE type = 'table' AND name = 'messages';
UPDATE sqlite_schema SET sql = replace(sql,
  'kind IN (''chat'', ''invoke'', ''retry'')',
  '(kind = ''chat'' OR kind = ''invoke'' OR kind = ''retry'')')
  WHERE type = 'table' AND name = 'turns';
UPDATE sqlite_schema SET sql = replace(sql,
  'status IN
    (''accepted'', ''planning'', ''acting'', ''finalizing'', ''completed'', ''awaiting_approval'', ''failed'', ''canceled'')',
  '(status = ''accepted'' OR status = ''planning'' OR status = ''acting'' OR status = ''finalizing'' OR status = ''completed'' OR status = ''awaiting_approval'' OR status = ''failed'' OR status = ''canceled'')')
  WHERE type = 'table' AND name = 'turns';
UPDATE sqlite_schema SET sql = replace(sql,
  'kind IN (''function'', ''mcp'', ''web_search'', ''custom'')',
  '(kind = ''function'' OR kind = ''mcp'' OR kind = ''web_search'' OR kind = ''custom'')')
  WHERE type = 'table' AND name = 'tool_calls';
UPDATE sqlite_schema SET sql = replace(sql,
  'status IN (''queued'', ''running'', ''succeeded'', ''failed'', ''timeout'', ''canceled'')',
  '(status = ''queued'' OR status = ''running'' OR status = ''succeeded'' OR status = ''failed'' OR status = ''timeout'' OR status = ''canceled'')')
  WHERE type = 'table' AND name = 'tool_calls';
UPDATE sqlite_schema SET sql = replace(sql,
  'effect IN (''read'', ''idempotent'', ''once'')',
  '(effect = ''read'' OR effect = ''idempotent'' OR effect = ''once'')')
  WHERE type = 'table' AND name = 'tool_calls';
PRAGMA writable_schema = RESET;
PRAGMA legacy_alter_table = OFF;
