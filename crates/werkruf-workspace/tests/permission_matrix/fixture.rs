//! The rows of two tenants as import batches, and calls with the permission check of the call pipeline.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{Cancel, Clock, Deadline, Invocation, NoModels, NoProgress, NoResults, Scope, State, ToolContext, ToolObject};
use werkruf_store::import::{Import, parse_batch};
use werkruf_store::{Module, Modules, People, SqliteStore};
use werkruf_workspace::{SCHEMA, WorkspaceModule};

const MODULES: Modules = &[SCHEMA];

use crate::rules::VisibleRows;

/// Two tenants with the same ids and different rows.
pub struct Dataset {
    pub tenants: Vec<(&'static str, Value)>,
}

fn permissions(scope: &str) -> Value {
    let entities = [
        ("table_requests", "table"),
        ("table_tasks", "table"),
        ("page_worktracker", "page"),
        ("cerebro", "cerebro"),
        ("table_users", "table"),
    ];
    entities.iter().map(|(entity, kind)| json!({"entity": entity, "entity_type": kind, "access": "read", "scope": scope})).collect()
}

fn user(id: i64, branch: i64, roles: &[i64]) -> Value {
    json!({
        "id": id, "first_name": format!("First{id}"), "last_name": format!("Last{id}"), "email": format!("u{id}@x.example"),
        "locale": "en-US", "time_zone": "Europe/Berlin", "branch_id": branch, "role_ids": roles
    })
}

fn tenant(name: &str, offset: i64) -> Value {
    let users = [
        (1, 1, vec![1]),
        (2, 1, vec![2]),
        (3, 1, vec![3]),
        (4, 2, vec![3]),
        (5, 2, vec![4]),
        (6, 2, vec![4, 3]),
        (7, 2, vec![2]),
        (8, 1, vec![]),
        (9, 1, vec![3]),
    ];
    let (mut requests, mut tasks, mut worktimes) = (Vec::new(), Vec::new(), Vec::new());
    let statuses = ["open", "in_progress", "done", "cancelled"];
    for at in 0..36_i64 {
        let (requester, responsible) = (at % 9 + 1, (at % 4 != 0).then_some((at * 5) % 9 + 1));
        // Every third row is in a branch that may differ from the user's own branch.
        let branch = if at % 3 == 0 {
            at % 2 + 1
        } else if [4, 5, 6, 7].contains(&requester) {
            2
        } else {
            1
        };
        let status = statuses[usize::try_from(at % 4).unwrap()];
        let due = (at % 5 != 0).then(|| format!("2026-03-{:02}", 10 + at % 3));
        let created = format!("2026-03-01T{:02}:{:02}:00Z", at % 24, at);
        requests.push(json!({
            "id": offset + at, "title": format!("{name} request {at}"), "status": status, "due_date": due, "requester_id": requester,
            "responsible_id": responsible, "branch_id": branch, "created_at": created
        }));
        let status = if status == "cancelled" { "improval" } else { status };
        tasks.push(json!({
            "id": offset + at, "title": format!("{name} task {at}"), "status": status, "due_date": due, "user_id": requester, "branch_id": branch,
            "created_at": created
        }));
        let day = 9 + at % 4;
        worktimes.push(json!({
            "id": offset + at, "user_id": requester, "branch_id": branch, "started_at": format!("2026-03-{day:02}T07:{:02}:00Z", at),
            "ended_at": format!("2026-03-{day:02}T09:00:00Z")
        }));
    }
    let articles = [
        (1, None, "wifi", "notfall"),
        (2, Some(1), "wifi", "it"),
        (3, Some(2), "wifi", "notfall"),
        (4, None, "fire", "notfall"),
        (5, Some(2), "fire", "it"),
    ];
    let branches: Vec<Value> = [1, 2].map(|id| json!({"id": id, "name": format!("Branch {id}"), "time_zone": "Europe/Berlin"})).into();
    json!({
        "tenant": name,
        "branches": branches,
        "roles": [
            {"id": 1, "name": "admin", "permissions": permissions("all")},
            {"id": 2, "name": "lead", "permissions": permissions("branch")},
            {"id": 3, "name": "employee", "permissions": permissions("own")},
            {"id": 4, "name": "guest", "permissions": [{"entity": "cerebro", "entity_type": "cerebro", "access": "read", "scope": "own"}]}
        ],
        "users": users.iter().map(|(id, branch, roles)| user(*id, *branch, roles)).collect::<Vec<_>>(),
        "requests": requests, "tasks": tasks, "worktimes": worktimes,
        "cerebro_articles": articles.map(|(id, branch, topic, tag)| json!({
            "id": offset + id, "title": format!("{name} article {id}"), "content": format!("About {topic}."), "tags": [tag], "branch_id": branch
        }))
    })
}

impl Dataset {
    pub fn new() -> Self {
        Self { tenants: vec![("alpha", tenant("alpha", 0)), ("beta", tenant("beta", 1000))] }
    }

    pub fn rows(&self, tenant: &str, table: &str) -> &[Value] {
        let (_, data) = self.tenants.iter().find(|(name, _)| *name == tenant).unwrap();
        data[table].as_array().unwrap()
    }

    /// A copy in which every hidden row is changed in all fields that a tool could show, and the number of changed rows.
    pub fn alter(&self, visible: &VisibleRows) -> (Self, usize) {
        let mut altered = 0;
        let mut tenants = self.tenants.clone();
        for (tenant, data) in &mut tenants {
            for table in ["requests", "tasks", "worktimes", "cerebro_articles", "users"] {
                for row in data[table].as_array_mut().unwrap() {
                    if visible.contains(tenant, table, row["id"].as_i64().unwrap()) {
                        continue;
                    }
                    altered += 1;
                    match table {
                        "requests" | "tasks" => {
                            row["title"] = json!("altered");
                            row["status"] = json!(if row["status"] == "done" { "open" } else { "done" });
                            row["due_date"] = json!("2026-03-11");
                            row["created_at"] = json!("2026-03-09T00:00:00Z");
                        }
                        "worktimes" => row["ended_at"] = json!("2026-03-14T20:00:00Z"),
                        "cerebro_articles" => {
                            row["content"] = json!("wifi wifi wifi fire");
                            row["tags"] = json!(["notfall", "it"]);
                        }
                        _ => row["email"] = json!("altered@x.example"),
                    }
                }
            }
        }
        (Self { tenants }, altered)
    }
}

pub struct Fixture {
    store: Arc<SqliteStore>,
    tools: Vec<Arc<dyn ToolObject>>,
    clock: Clock,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub async fn open(dataset: &Dataset) -> Self {
        let clock = Clock::system(0);
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, MODULES).unwrap();
        for (_, data) in &dataset.tenants {
            let batch = parse_batch(&data.to_string(), MODULES, |_| true).unwrap();
            store.import(batch, clock.new_id(), clock.now()).await.unwrap().unwrap();
        }
        Self { tools: Arc::new(WorkspaceModule::new(store.clone(), clock.clone())).tools(), store, clock, _folder: folder }
    }

    /// Checks the permission over all roles like the call pipeline, then calls the tool. A failure is returned as code and message.
    pub async fn call(&self, tenant: &str, caller: i64, tool: &str, args: Value) -> Result<Value, (String, String)> {
        let tenant_id = self.store.tenant(tenant.to_owned()).await.unwrap().unwrap().id;
        let principal = self.store.principal(tenant_id, caller.to_string()).await.unwrap().unwrap();
        let tool = self.tools.iter().find(|known| known.spec().name == tool).unwrap();
        let args = tool.normalize(args).unwrap();
        let grant = match &tool.spec().permission {
            None => Scope::Own,
            Some(need) => principal.grant(need).ok_or_else(|| ("permission_denied".to_owned(), String::new()))?,
        };
        let mut context = ToolContext::new(tenant_id, "trace".into(), self.clock.new_id(), self.clock.now(), "run".into());
        context.locale = Some("en-US".to_owned());
        let invocation = Invocation {
            context: Arc::new(context),
            principal,
            grant,
            state: Arc::new(State::new()),
            deadline: Deadline::after(Duration::from_secs(10)),
            cancel: Cancel::default(),
            job_id: self.clock.new_id(),
            turn_id: self.clock.new_id(),
            conversation_id: None,
            attempt: 1,
            idempotency_key: "key".to_owned(),
            untrusted: None,
            models: Arc::new(NoModels),
            results: Arc::new(NoResults),
            progress: Arc::new(NoProgress),
        };
        let reply = tool.call(args, invocation).await.map_err(|failure| (failure.code.to_string(), failure.message))?;
        assert_eq!(reply.message.as_deref(), reply.data["message"].as_str(), "the message is the same in both places");
        Ok(reply.data)
    }
}
