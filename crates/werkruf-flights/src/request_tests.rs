use jiff::civil::{Date, date};
use serde_json::{Value, json};
use werkruf_contract::{Failure, Texts, ToolErrorType};

use super::{ParsedRequest, Request};
use crate::texts::TEXTS;

const TODAY: Date = date(2026, 11, 15);

fn read(mut change: Value) -> Result<ParsedRequest, Failure> {
    let mut whole = json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "cabin": "BUSINESS"});
    whole.as_object_mut().unwrap().append(change.as_object_mut().unwrap());
    Request::read(serde_json::from_value(whole).unwrap(), TODAY, &Texts::of("de").with(&TEXTS))
}

fn code(change: &Value) -> String {
    match read(change.clone()) {
        Ok(_) => panic!("{change} was accepted"),
        Err(failure) => {
            assert_eq!(failure.kind, ToolErrorType::Validation);
            assert!(!failure.message.starts_with("flights-"), "{} has no text", failure.code);
            failure.code.into_owned()
        }
    }
}

fn whole(change: Value) -> Request {
    match read(change) {
        Ok(ParsedRequest::Complete(request)) => *request,
        Ok(ParsedRequest::Incomplete { missing, .. }) => panic!("{missing:?} is missing"),
        Err(failure) => panic!("{failure:?}"),
    }
}

#[test]
fn invalid_requests_are_refused() {
    assert_eq!(code(&json!({"depart_date": "2026-11-14"})), "date_in_past");
    assert_eq!(code(&json!({"return_date": "2026-11-30"})), "return_before_departure");
    assert_eq!(code(&json!({"origin": "QQQ"})), "unknown_airport");
    assert_eq!(code(&json!({"destination": "Hintertupfing"})), "unknown_airport");
    assert_eq!(code(&json!({"destination": "fra"})), "same_airports");
    assert_eq!(code(&json!({"pax": 10})), "too_many_passengers");
    assert_eq!(code(&json!({"pax": 5, "children": 5})), "too_many_passengers");
    assert_eq!(code(&json!({"pax": 1, "infants": 2})), "too_many_passengers");
    assert_eq!(code(&json!({"loyalty_programs": ["Payback"]})), "unknown_program");
    assert_eq!(code(&json!({"depart_date": "2027-11-12"})), "date_too_far");
    assert_eq!(code(&json!({"return_date": "2027-11-12"})), "date_too_far");
    for currency in ["ZZZ", "EURO", "XXX"] {
        assert_eq!(code(&json!({"currency": currency})), "unknown_currency", "{currency}");
        let taxes = json!({"cabin": null, "constraints": {"max_taxes": 100, "max_taxes_currency": currency}});
        assert_eq!(code(&taxes), "unknown_currency", "{currency} of taxes, even if other arguments are missing");
    }
    for odd in [json!({"depart_date": "tomorrow"}), json!({"pax": 0}), json!({"constraints": {"alliances": ["x"]}})] {
        assert_eq!(code(&odd), "invalid_arguments");
    }
    assert_eq!(
        code(&json!({"origin": "QQQ", "cabin": null, "destination": null})),
        "unknown_airport",
        "even if other arguments are missing"
    );
}

#[test]
fn the_first_and_last_allowed_days_are_accepted() {
    let today = whole(json!({"depart_date": "2026-11-15", "flexibility": 3}));
    assert_eq!((today.query.out.first, today.query.out.last), (date(2026, 11, 15), date(2026, 11, 18)), "nothing before today");
    assert_eq!(whole(json!({"depart_date": "2027-11-11"})).query.out.wanted, date(2027, 11, 11));
    assert_eq!(whole(json!({"return_date": "2026-12-01"})).query.back.unwrap().wanted, date(2026, 12, 1));
    assert_eq!(whole(json!({"pax": 9, "infants": 9})).query.seats(), 9);
}

#[test]
fn programs_and_places_are_normalised() {
    let request = whole(json!({"origin": "münchen", "loyalty_programs": ["Miles & More", "lh"], "constraints": {"max_taxes": 200}}));
    assert_eq!((request.query.origin.as_str(), request.query.sources.as_slice()), ("MUC", ["lufthansa".to_owned()].as_slice()));
    assert!(request.awards_first && !request.award_only);
    assert_eq!(request.max_taxes, Some((200.0, "USD".to_owned())));
}

#[test]
fn missing_arguments_are_listed_in_order() {
    let Ok(ParsedRequest::Incomplete { known, missing }) = read(json!({"cabin": null, "origin": null, "depart_date": null, "pax": 2}))
    else {
        panic!("the request is not complete")
    };
    assert_eq!(missing, ["origin", "depart_date", "cabin"]);
    assert_eq!(known.to_json(), json!({"destination": "JFK", "pax": 2}));
}

#[test]
fn the_session_state_has_the_fixed_fields() {
    let request = whole(json!({"award_only": true}));
    let wanted = json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "return_date": null, "cabin": "BUSINESS", "pax": 1, "award_only": true});
    assert_eq!(request.remembered(), wanted);
    assert_eq!(request.to_json()["currency"], "EUR");
}
