//! Who sees what: every kind of person × every tool × every way to name somebody, against rules written down here a
//! second time. Then everything a person may not see is altered, and not one byte of their answers may change.

#[cfg(test)]
#[path = "permission_matrix/house.rs"]
mod house;

#[cfg(test)]
#[path = "permission_matrix/rules.rs"]
mod rules;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use crate::house::{House, World};
    use crate::rules::{Expected, PEOPLE, Rules, Seen};

    const TOOLS: [&str; 5] = ["get_requests", "get_todos", "get_worktime", "get_cerebro_articles", "get_user_info"];

    /// Every way to name somebody: nobody, the caller, a colleague, people of other branches, nobody who exists.
    fn whose(caller: i64) -> Vec<Value> {
        let mut ways = vec![json!({}), json!({"userId": caller})];
        ways.extend([1, 2, 3, 4, 5, 9, 999, -1, 0].map(|id| json!({"userId": id})));
        ways.push(json!({"userId": 3.0}));
        ways.extend([1, 2, 77, -1].map(|id| json!({"branchId": id})));
        ways.extend([json!({"userId": 3, "branchId": 1}), json!({"userId": caller, "branchId": 2})]);
        ways
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
            _ => return whose(caller).into_iter().filter(|way| way.get("branchId").is_none()).collect(),
        };
        whose(caller).iter().flat_map(|way| filters.iter().map(move |filter| merged(way, filter))).collect()
    }

    /// Every answer of a person, by tool and arguments.
    async fn answers(house: &House, tenant: &str, caller: i64) -> BTreeMap<String, Result<Value, (String, String)>> {
        let mut answers = BTreeMap::new();
        for tool in TOOLS {
            for args in variants(tool, caller) {
                let answer = house.call(tenant, caller, tool, args.clone()).await;
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
    async fn everybody_sees_what_the_rules_say() {
        let world = World::new();
        let house = House::open(&world).await;
        let (mut cells, mut wrong) = (0, Vec::new());
        for (who, tenant, caller) in PEOPLE {
            let rules = Rules::of(&world, tenant, caller);
            let given = answers(&house, tenant, caller).await;
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
    async fn what_may_not_be_seen_changes_no_byte() {
        let world = World::new();
        let house = House::open(&world).await;
        for (who, tenant, caller) in PEOPLE {
            let before = answers(&house, tenant, caller).await;
            let seen = Seen::by(&world, tenant, caller);
            let (altered_world, altered) = world.alter(&seen);
            assert!(altered > 5, "{who}: only {altered} rows altered");
            let after = answers(&House::open(&altered_world).await, tenant, caller).await;
            for (key, answer) in &before {
                assert_eq!(format!("{answer:?}"), format!("{:?}", after[key]), "{who}: {key}");
            }
        }
    }

    #[tokio::test]
    async fn a_refusal_has_one_form() {
        let house = House::open(&World::new()).await;
        let refusal = async |caller: i64, args: Value| house.call("alpha", caller, "get_requests", args).await.unwrap_err();
        let foreign = refusal(2, json!({"userId": 4})).await;
        assert_eq!(foreign.0, "permission_denied");
        assert_eq!(foreign, refusal(2, json!({"userId": 999})).await, "a stranger and nobody look alike");
        assert_eq!(foreign, refusal(3, json!({"userId": 9})).await);
        assert_eq!(foreign, refusal(3, json!({"branchId": 1})).await);
    }
}
