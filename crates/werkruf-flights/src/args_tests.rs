use serde_json::{Value, json};
use werkruf_contract::{State, parameters_of};

use super::Args;

fn completed(args: Value, state: &Value) -> Value {
    completed_with(args, state, None)
}

fn completed_with(args: Value, state: &Value, defaults: Option<&Value>) -> Value {
    let state: State = state.as_object().unwrap().clone();
    serde_json::from_value::<Args>(args).unwrap().completed(&state, defaults).to_json()
}

#[test]
fn the_pending_request_is_filled_in_and_new_arguments_win() {
    let state = json!({"pending_flight_request": {"origin": "FRA", "cabin": "BUSINESS", "constraints": {"max_taxes": 100}, "junk": 1, "pax": "two"}});
    let args = completed(json!({"destination": "JFK", "cabin": "FIRST", "constraints": {"nonstop_only": true}}), &state);
    let wanted =
        json!({"origin": "FRA", "destination": "JFK", "cabin": "FIRST", "constraints": {"max_taxes": 100.0, "nonstop_only": true}});
    assert_eq!(args, wanted);
}

#[test]
fn the_last_request_is_used_only_on_request() {
    let state = json!({"last_flight_request": {"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "return_date": null,
        "cabin": "BUSINESS", "pax": 2, "award_only": true}});
    assert_eq!(completed(json!({"depart_date": "2026-12-02"}), &state), json!({"depart_date": "2026-12-02"}));
    let again = completed(json!({"depart_date": "2026-12-02", "reuse_last_request": true}), &state);
    let wanted =
        json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-02", "pax": 2, "cabin": "BUSINESS", "award_only": true});
    assert_eq!(again, wanted);
}

#[test]
fn preferences_fill_missing_arguments() {
    let state = json!({"preferences": {"home_airport": "muc", "cabin": "premium", "programs": ["aeroplan"]}});
    let args = completed(json!({"destination": "JFK"}), &state);
    assert_eq!(args, json!({"origin": "MUC", "destination": "JFK", "cabin": "PREMIUM_ECONOMY", "loyalty_programs": ["aeroplan"]}));
    let home = completed(json!({"destination": "MUC", "cabin": "FIRST", "loyalty_programs": []}), &state);
    assert_eq!(home, json!({"destination": "MUC", "cabin": "FIRST", "loyalty_programs": []}), "the origin is not the destination");
}

#[test]
fn an_empty_text_counts_as_absent() {
    let state = json!({"pending_flight_request": {"origin": "FRA"}});
    assert_eq!(
        completed(json!({"origin": "", "return_date": " ", "destination": "JFK"}), &state),
        json!({"origin": "FRA", "destination": "JFK"})
    );
}

#[test]
fn aliases_are_accepted() {
    let args = completed(json!({"use_miles": true, "non_stop": true}), &json!({}));
    assert_eq!(args, json!({"award_only": true, "constraints": {"nonstop_only": true}}));
    let both =
        completed(json!({"use_miles": true, "award_only": false, "non_stop": true, "constraints": {"nonstop_only": false}}), &json!({}));
    assert_eq!(both, json!({"award_only": false, "constraints": {"nonstop_only": false}}));
}

#[test]
fn the_defaults_of_the_assistant_come_last() {
    let defaults = json!({"award_only": true, "cabin": "BUSINESS"});
    let with = |args: Value, state: &Value| completed_with(args, state, Some(&defaults));
    assert_eq!(with(json!({"origin": "FRA"}), &json!({})), json!({"origin": "FRA", "award_only": true, "cabin": "BUSINESS"}));
    assert_eq!(with(json!({"award_only": false}), &json!({})), json!({"award_only": false, "cabin": "BUSINESS"}));
    let state = json!({"pending_flight_request": {"award_only": false}, "preferences": {"cabin": "first"}});
    assert_eq!(with(json!({}), &state), json!({"award_only": false, "cabin": "FIRST"}), "what the person said before comes first");
}

#[test]
fn flexibility_is_clamped() {
    for (given, days) in [(-1, 0), (0, 0), (2, 2), (30, 3)] {
        assert_eq!(completed(json!({"flexibility": given}), &json!({})), json!({"flexibility": days}));
    }
}

#[test]
fn the_schema_has_bounds_and_formats() {
    let schema = parameters_of::<Args>();
    let property = |name: &str| schema["properties"][name].clone();
    assert_eq!([property("depart_date")["format"].clone(), property("return_date")["format"].clone()], [json!("date"), json!("date")]);
    let range = |name: &str| [property(name)["minimum"].clone(), property(name)["maximum"].clone()];
    assert_eq!(range("pax"), [json!(1), json!(9)]);
    assert_eq!(range("flexibility"), [json!(0), json!(3)]);
    assert_eq!(range("max_results"), [json!(1), json!(20)]);
}
