//! Permissions: every kind of caller × every tool × every way to name a user or branch, compared with an independent
//! implementation of the rules. Then all rows that a caller may not see are altered, and no byte of the caller's answers may change.

#[cfg(test)]
#[path = "permission_matrix/fixture.rs"]
mod fixture;

#[cfg(test)]
#[path = "permission_matrix/rules.rs"]
mod rules;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use crate::fixture::{Dataset, Fixture};
    use crate::rules::{CALLERS, Expected, Rules, VisibleRows};

    const TOOLS: [&str; 5] = ["get_requests", "get_todos", "get_worktime", "get_cerebro_articles", "get_user_info"];

    /// Arguments that name no user, the caller, a colleague, users of other branches, unknown users, and branches.
    fn owner_args(caller: i64) -> Vec<Value> {
        let mut all = vec![json!({}), json!({"userId": caller})];
        all.extend([1, 2, 3, 4, 5, 9, 999, -1, 0].map(|id| json!({"userId": id})));
        all.push(json!({"userId": 3.0}));
        all.extend([1, 2, 77, -1].map(|id| json!({"branchId": id})));
        all.extend([json!({"userId": 3, "branchId": 1}), json!({"userId": caller, "branchId": 2})]);
        all
    }

    fn merged(one: &Value, other: &Value) -> Value {
        let mut all = one.as_object().unwrap().clone();
        all.extend(other.as_object().unwrap().clone());
        Value::Object(all)
    }

    fn variants(tool: &str, caller: i64) -> Vec<Value> {
        let filters: Vec<Value> = match tool {
            "get_requests" | "get_todos" => vec![
                json!({}),
                json!({"status": "open"}),
                json!({"status": "done"}),
                json!({"dueDate": "2026-03-10"}),
                json!({"status": "in_progress", "dueDate": "2026-03-11"}),
            ],
            "get_worktime" => vec![json!({"date": "2026-03-10"}), json!({"startDate": "2026-03-09", "endDate": "2026-03-15"}), json!({})],
            "get_cerebro_articles" => {
                let plain =
                    [json!({}), json!({"searchTerm": "wifi"}), json!({"tags": ["notfall"]}), json!({"searchTerm": "nothing like it"})];
                return plain.into_iter().chain([1, 0, -5, 100].map(|limit| json!({"limit": limit}))).collect();
            }
            _ => return owner_args(caller).into_iter().filter(|owner| owner.get("branchId").is_none()).collect(),
        };
        owner_args(caller).iter().flat_map(|owner| filters.iter().map(move |filter| merged(owner, filter))).collect()
    }

    /// Every answer to a caller, by tool and arguments.
    async fn answers(fixture: &Fixture, tenant: &str, caller: i64) -> BTreeMap<String, Result<Value, (String, String)>> {
        let mut answers = BTreeMap::new();
        for tool in TOOLS {
            for args in variants(tool, caller) {
                let answer = fixture.call(tenant, caller, tool, args.clone()).await;
                answers.insert(format!("{tool} {args}"), answer);
            }
        }
        answers
    }

    fn compare(answer: &Result<Value, (String, String)>, expected: &Expected) -> Result<(), String> {
        let agrees = match (answer, expected) {
            (Err((code, _)), Expected::Refused(wanted)) => code == wanted,
            (Ok(data), Expected::Items(items)) => data["items"] == json!(items) && data["count"] == json!(items.len()),
            (Ok(data), Expected::Worktime { items, total }) => {
                data["items"] == json!(items) && data["total_minutes"] == json!(total) && data["running"] == json!(false)
            }
            (Ok(data), Expected::Person(person)) => {
                let mut shown = data.as_object().unwrap().clone();
                shown.remove("message");
                Value::Object(shown) == *person
            }
            (Ok(_), Expected::Refused(_)) | (Err(_), Expected::Items(_) | Expected::Worktime { .. } | Expected::Person(_)) => false,
        };
        if agrees { Ok(()) } else { Err(format!("  answered {answer:?}\n  expected {expected:?}")) }
    }

    #[tokio::test]
    async fn each_caller_sees_what_the_rules_allow() {
        let dataset = Dataset::new();
        let fixture = Fixture::open(&dataset).await;
        let (mut cells, mut wrong) = (0, Vec::new());
        for (who, tenant, caller) in CALLERS {
            let rules = Rules::of(&dataset, tenant, caller);
            let given = answers(&fixture, tenant, caller).await;
            for tool in TOOLS {
                for args in variants(tool, caller) {
                    cells += 1;
                    let key = format!("{tool} {args}");
                    if let Err(difference) = compare(&given[&key], &rules.expect(tool, &args)) {
                        wrong.push(format!("{who}: {key}\n{difference}"));
                    }
                }
            }
        }
        assert!(cells >= 500, "only {cells} cells");
        assert!(wrong.is_empty(), "{} of {cells} cells:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
        println!("{cells} cells");
    }

    #[tokio::test]
    async fn hidden_rows_change_no_byte_of_an_answer() {
        let dataset = Dataset::new();
        let fixture = Fixture::open(&dataset).await;
        for (who, tenant, caller) in CALLERS {
            let before = answers(&fixture, tenant, caller).await;
            let visible = VisibleRows::by(&dataset, tenant, caller);
            let (altered_dataset, altered) = dataset.alter(&visible);
            assert!(altered > 5, "{who}: only {altered} rows altered");
            let after = answers(&Fixture::open(&altered_dataset).await, tenant, caller).await;
            for (key, answer) in &before {
                assert_eq!(format!("{answer:?}"), format!("{:?}", after[key]), "{who}: {key}");
            }
        }
    }

    #[tokio::test]
    async fn all_refusals_are_identical() {
        let fixture = Fixture::open(&Dataset::new()).await;
        let refusal = async |caller: i64, args: Value| fixture.call("alpha", caller, "get_requests", args).await.unwrap_err();
        let foreign = refusal(2, json!({"userId": 4})).await;
        assert_eq!(foreign.0, "permission_denied");
        assert_eq!(foreign, refusal(2, json!({"userId": 999})).await, "a hidden user and an unknown user get the same refusal");
        assert_eq!(foreign, refusal(3, json!({"userId": 9})).await);
        assert_eq!(foreign, refusal(3, json!({"branchId": 1})).await);
    }
}
