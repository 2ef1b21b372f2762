//! An independent implementation of the permission rules, written from the specification and not from the code.

use serde_json::{Value, json};

use crate::fixture::Dataset;

/// Eight kinds of callers: label, tenant, id.
pub const CALLERS: [(&str, &str, i64); 8] = [
    ("admin, all", "alpha", 1),
    ("lead, branch 1", "alpha", 2),
    ("employee, own", "alpha", 3),
    ("guest", "alpha", 5),
    ("guest and employee", "alpha", 6),
    ("lead of the other branch", "alpha", 7),
    ("no role", "alpha", 8),
    ("admin of another tenant", "beta", 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Nothing,
    Own,
    Branch,
    All,
}

/// The rights of each user for tables and for articles, written by hand.
const fn rights(caller: i64) -> (Right, Right) {
    match caller {
        1 => (Right::All, Right::All),
        2 | 7 => (Right::Branch, Right::Branch),
        3 | 4 | 6 | 9 => (Right::Own, Right::Own),
        5 => (Right::Nothing, Right::Own),
        _ => (Right::Nothing, Right::Nothing),
    }
}

const fn branch_of(person: i64) -> Option<i64> {
    match person {
        1 | 2 | 3 | 8 | 9 => Some(1),
        4..=7 => Some(2),
        _ => None,
    }
}

#[derive(Debug)]
pub enum Expected {
    Refused(&'static str),
    Items(Vec<Value>),
    Worktime { items: Vec<Value>, total: i64 },
    Person(Value),
}

const DENIED: Expected = Expected::Refused("permission_denied");

/// A predicate for the rows that the arguments name, or the refusal.
enum Selection {
    Rows(Box<dyn Fn(&Value) -> bool>),
    No(Expected),
}

pub struct Rules<'a> {
    dataset: &'a Dataset,
    tenant: &'a str,
    caller: i64,
}

fn belongs(row: &Value, person: i64) -> bool {
    ["requester_id", "responsible_id", "user_id"].iter().any(|field| row[*field] == json!(person))
}

impl<'a> Rules<'a> {
    pub const fn of(dataset: &'a Dataset, tenant: &'a str, caller: i64) -> Self {
        Self { dataset, tenant, caller }
    }

    pub fn expect(&self, tool: &str, args: &Value) -> Expected {
        match tool {
            "get_requests" => self.work("requests", args),
            "get_todos" => self.work("tasks", args),
            "get_worktime" => self.worktime(args),
            "get_cerebro_articles" => self.articles(args),
            _ => self.person(args),
        }
    }

    fn selection(&self, args: &Value) -> Selection {
        let (right, caller) = (rights(self.caller).0, self.caller);
        let own_branch = branch_of(caller).unwrap();
        let person = args["userId"].as_f64().map(|id| serde_json::from_str::<i64>(&format!("{id:.0}")).unwrap());
        let branch = args["branchId"].as_i64();
        match (right, person, branch) {
            (Right::Nothing, _, _) => Selection::No(DENIED),
            (_, None, None) => Selection::Rows(Box::new(move |row| belongs(row, caller))),
            (_, Some(person), None) if person == caller => Selection::Rows(Box::new(move |row| belongs(row, caller))),
            (Right::Own, _, _) => Selection::No(DENIED),
            (_, Some(_), Some(_)) => Selection::No(Expected::Refused("invalid_arguments")),
            (Right::Branch, Some(person), None) if branch_of(person) == Some(own_branch) => {
                Selection::Rows(Box::new(move |row| belongs(row, person) && row["branch_id"] == json!(own_branch)))
            }
            (Right::Branch, None, Some(branch)) if branch == own_branch => {
                Selection::Rows(Box::new(move |row| row["branch_id"] == json!(branch)))
            }
            (Right::Branch, _, _) => Selection::No(DENIED),
            (Right::All, Some(person), None) => Selection::Rows(Box::new(move |row| belongs(row, person))),
            (Right::All, None, Some(branch)) => Selection::Rows(Box::new(move |row| row["branch_id"] == json!(branch))),
        }
    }

    fn work(&self, table: &str, args: &Value) -> Expected {
        let rows = match self.selection(args) {
            Selection::No(refused) => return refused,
            Selection::Rows(rows) => rows,
        };
        let wanted = |row: &&Value| {
            let status = args.get("status").is_none_or(|status| row["status"] == *status);
            let due = args.get("dueDate").is_none_or(|due| row["due_date"] == *due);
            rows(row) && status && due
        };
        let mut found: Vec<&Value> = self.dataset.rows(self.tenant, table).iter().filter(wanted).collect();
        found.sort_by_key(|row| std::cmp::Reverse((row["created_at"].as_str().unwrap().to_owned(), row["id"].as_i64())));
        let name = |id: &Value| id.as_i64().map(|id| format!("First{id} Last{id}"));
        let item = |row: &&Value| {
            let who = if table == "requests" { &row["requester_id"] } else { &row["user_id"] };
            json!({
                "id": row["id"], "title": row["title"], "status": row["status"], "dueDate": row["due_date"],
                "requester": name(who), "responsible": name(&row["responsible_id"])
            })
        };
        Expected::Items(found.iter().take(20).map(item).collect())
    }

    fn worktime(&self, args: &Value) -> Expected {
        let rows = match self.selection(args) {
            Selection::No(refused) => return refused,
            Selection::Rows(rows) => rows,
        };
        // All rows are in March. Without a date the answer is about today, which has no rows.
        let inside = |row: &Value| {
            let day = &row["started_at"].as_str().unwrap()[..10];
            args.get("date").map_or_else(|| args.get("startDate").is_some(), |date| date == day)
        };
        let mut found: Vec<&Value> = self.dataset.rows(self.tenant, "worktimes").iter().filter(|row| rows(row) && inside(row)).collect();
        found.sort_by_key(|row| (row["started_at"].as_str().unwrap().to_owned(), row["id"].as_i64()));
        let item = |row: &&Value| {
            let start = row["started_at"].as_str().unwrap();
            let (day, minute) = (&start[..10], start[14..16].parse::<i64>().unwrap());
            // 07:mm UTC to 09:00 UTC is one hour later in Berlin in winter.
            json!({"date": day, "start": format!("{day}T08:{minute:02}:00+01:00"), "end": format!("{day}T10:00:00+01:00"), "minutes": 120 - minute})
        };
        let items: Vec<Value> = found.iter().map(item).collect();
        let total = items.iter().map(|item| item["minutes"].as_i64().unwrap()).sum();
        Expected::Worktime { items, total }
    }

    fn articles(&self, args: &Value) -> Expected {
        let right = rights(self.caller).1;
        if right == Right::Nothing {
            return DENIED;
        }
        let limit = usize::try_from(args["limit"].as_i64().unwrap_or(10).clamp(1, 20)).unwrap();
        let wanted = |row: &&Value| {
            let reachable = right == Right::All || row["branch_id"].is_null() || row["branch_id"] == json!(branch_of(self.caller));
            let term = args["searchTerm"].as_str().is_none_or(|term| row["content"].as_str().unwrap().contains(term));
            let tagged = args.get("tags").is_none_or(|tags| tags[0] == row["tags"][0]);
            reachable && term && tagged
        };
        let item = |row: &Value| json!({"id": row["id"], "title": row["title"], "content": row["content"], "tags": row["tags"]});
        Expected::Items(self.dataset.rows(self.tenant, "cerebro_articles").iter().filter(wanted).take(limit).map(item).collect())
    }

    fn person(&self, args: &Value) -> Expected {
        let user = args["userId"].as_f64().map_or(self.caller, |id| serde_json::from_str::<i64>(&format!("{id:.0}")).unwrap());
        let right = rights(self.caller).0;
        let allowed = user == self.caller || right == Right::All || (right == Right::Branch && branch_of(user) == branch_of(self.caller));
        if !allowed {
            return DENIED;
        }
        let Some(row) = self.dataset.rows(self.tenant, "users").iter().find(|row| row["id"] == json!(user)) else {
            return Expected::Refused("unknown_user");
        };
        let roles: Vec<&str> = match user {
            1 => vec!["admin"],
            2 | 7 => vec!["lead"],
            5 => vec!["guest"],
            6 => vec!["employee", "guest"],
            8 => vec![],
            _ => vec!["employee"],
        };
        Expected::Person(json!({
            "id": user, "firstName": row["first_name"], "lastName": row["last_name"], "email": row["email"],
            "branch": format!("Branch {}", branch_of(user).unwrap()), "roles": roles
        }))
    }
}

/// All rows that a caller can see with any arguments.
pub struct VisibleRows<'a> {
    tenant: &'a str,
    rows: Vec<(&'static str, i64)>,
}

impl<'a> VisibleRows<'a> {
    pub fn by(dataset: &Dataset, tenant: &'a str, caller: i64) -> Self {
        let ((tables, articles), own_branch) = (rights(caller), branch_of(caller));
        let mut rows = Vec::new();
        for table in ["requests", "tasks", "worktimes", "cerebro_articles", "users"] {
            for row in dataset.rows(tenant, table) {
                let in_branch = row["branch_id"] == json!(own_branch);
                let visible = match (table, tables, articles) {
                    ("cerebro_articles", _, Right::Nothing) => false,
                    ("cerebro_articles", _, right) => right == Right::All || row["branch_id"].is_null() || in_branch,
                    ("users", Right::Nothing | Right::Own, _) => row["id"] == json!(caller),
                    (_, Right::Nothing, _) => false,
                    (_, Right::Own, _) => belongs(row, caller),
                    (_, Right::Branch, _) => in_branch || belongs(row, caller),
                    (_, Right::All, _) => true,
                };
                if visible {
                    rows.push((table, row["id"].as_i64().unwrap()));
                }
            }
        }
        Self { tenant, rows }
    }

    pub fn contains(&self, tenant: &str, table: &str, id: i64) -> bool {
        tenant == self.tenant && self.rows.iter().any(|(visible, row)| *visible == table && *row == id)
    }
}
