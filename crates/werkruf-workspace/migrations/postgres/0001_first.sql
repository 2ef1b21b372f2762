-- The workspace's first schema: the tables of the seeds' demonstration tools.

CREATE TABLE requests (
  tenant_id      uuid NOT NULL,
  id             bigint NOT NULL,
  title          text NOT NULL,
  description    text,
  status         text NOT NULL,
  due_date       date,
  requester_id   bigint NOT NULL,
  responsible_id bigint,
  branch_id      bigint,
  created_at     timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX requests_by_requester ON requests (tenant_id, requester_id);
CREATE INDEX requests_by_responsible ON requests (tenant_id, responsible_id);
CREATE INDEX requests_by_branch ON requests (tenant_id, branch_id);

CREATE TABLE tasks (
  tenant_id   uuid NOT NULL,
  id          bigint NOT NULL,
  title       text NOT NULL,
  description text,
  status      text NOT NULL,
  due_date    date,
  user_id     bigint NOT NULL,
  branch_id   bigint,
  created_at  timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX tasks_by_user ON tasks (tenant_id, user_id);
CREATE INDEX tasks_by_branch ON tasks (tenant_id, branch_id);

CREATE TABLE worktimes (
  tenant_id  uuid NOT NULL,
  id         bigint NOT NULL,
  user_id    bigint NOT NULL,
  branch_id  bigint,
  started_at timestamptz NOT NULL,
  ended_at   timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX worktimes_by_user ON worktimes (tenant_id, user_id, started_at);
CREATE INDEX worktimes_by_branch ON worktimes (tenant_id, branch_id, started_at);

CREATE TABLE cerebro_articles (
  tenant_id uuid NOT NULL,
  id        bigint NOT NULL,
  title     text NOT NULL,
  content   text NOT NULL,
  tags      json NOT NULL DEFAULT '[]',
  branch_id bigint,
  PRIMARY KEY (tenant_id, id)
);
