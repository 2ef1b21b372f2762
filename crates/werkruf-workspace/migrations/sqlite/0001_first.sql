-- The workspace's first schema: requests, tasks, working times and articles.

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
