//! The calls that the flight tools propose for sentences in three languages, next to the workspace tools, and the sentences for
//! which they propose none.
#![cfg(feature = "flights")]
#![expect(clippy::unwrap_used, reason = "test helpers are part of the tests")]

#[path = "../../werkruf-workspace/tests/planner/mod.rs"]
mod planner;

use std::sync::Arc;

use jiff::civil::{Date, date};
use planner::Planner;
use serde_json::{Value, json};
use werkruf::modules::MODULES;
use werkruf_flights::{Flights, FlightsConfig};
use werkruf_llm::{HttpLimits, http_client};
use werkruf_store::Module;
use werkruf_tools::kernel_tools;
use werkruf_workspace::WorkspaceModule;

const TODAY: Date = date(2026, 11, 15);

fn planner() -> Planner {
    Planner::new(TODAY, MODULES, |store, clock| {
        let client = http_client(&HttpLimits::default()).unwrap();
        let flights = Flights::new(FlightsConfig::default(), &client, store.clone(), None, clock.clone());
        let mut tools = Arc::new(WorkspaceModule::new(store, clock.clone())).tools();
        tools.extend(Arc::new(flights).tools());
        tools.extend(kernel_tools(clock));
        tools
    })
}

/// Checks each sentence against the one expected call; an empty tool name expects none.
fn check(locale: &str, expected: &[(&str, &str, Value)]) {
    let expected_call =
        |tool: &str, args: &Value| Some((tool.to_owned(), args.clone())).into_iter().filter(|(tool, _)| !tool.is_empty()).collect();
    planner().check(locale, expected.iter().map(|(text, tool, args)| (*text, expected_call(tool, args))));
}

const SEARCH: &str = "search_flights";

fn route(from: &str, to: &str) -> Value {
    json!({"origin": from, "destination": to})
}

fn with(mut base: Value, mut more: Value) -> Value {
    base.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
    base
}

#[test]
fn german() {
    let march = || json!({"origin": "FRA", "destination": "JFK", "depart_date": "2027-03-15", "cabin": "BUSINESS"});
    check(
        "de-DE",
        &[
            ("Suche mir Business Class Flüge von FRA nach JFK am 15. März", SEARCH, march()),
            ("suche mir business class flüge von fra nach jfk am 15.3.", SEARCH, march()),
            ("Flüge FRA-JFK am 15.03.2027 in Business", SEARCH, march()),
            (
                "Ich möchte am 15. März 2027 von Frankfurt nach New York fliegen, Business",
                SEARCH,
                with(march(), json!({"destination": "NYC"})),
            ),
            ("Gibt es Prämienflüge von München nach Tokio?", SEARCH, with(route("MUC", "TYO"), json!({"award_only": true}))),
            ("Flug nach Lissabon", SEARCH, json!({"destination": "LIS"})),
            (
                "Flüge von BER nach BCN morgen für 2 Personen in Economy, nonstop",
                SEARCH,
                with(
                    route("BER", "BCN"),
                    json!({"depart_date": "2026-11-16", "pax": 2, "cabin": "ECONOMY", "constraints": {"nonstop_only": true}}),
                ),
            ),
            (
                "Flüge von HAM nach ZRH vom 1. Dezember bis 5. Dezember",
                SEARCH,
                with(route("HAM", "ZRH"), json!({"depart_date": "2026-12-01", "return_date": "2026-12-05"})),
            ),
            (
                "Mit Meilen von Aeroplan von FRA nach YYZ",
                SEARCH,
                with(route("FRA", "YYZ"), json!({"award_only": true, "loyalty_programs": ["aeroplan"]})),
            ),
            ("Suche die Flüge nochmal am 20. März", SEARCH, json!({"depart_date": "2027-03-20", "reuse_last_request": true})),
            ("Nimm den zweiten", "select_itinerary", json!({"index": 2})),
            ("ich nehme die 3", "select_itinerary", json!({"index": 3})),
            ("Merk dir, dass ich gern am Gang sitze", "remember", json!({"content": "ich gern am Gang sitze"})),
            ("Wo ist der Flughafen?", "", json!({})),
            ("Wie geht es dir?", "", json!({})),
        ],
    );
}

#[test]
fn english() {
    check(
        "en-US",
        &[
            (
                "Find business flights from FRA to JFK on March 15",
                SEARCH,
                with(route("FRA", "JFK"), json!({"depart_date": "2027-03-15", "cabin": "BUSINESS"})),
            ),
            (
                "flights from London to Singapore on the 3rd of May, first class, 2 adults and 1 child",
                SEARCH,
                with(route("LON", "SIN"), json!({"depart_date": "2027-05-03", "pax": 2, "children": 1, "cabin": "FIRST"})),
            ),
            ("I want to fly to Tokyo with miles", SEARCH, json!({"destination": "TYO", "award_only": true})),
            ("Show me the flights to the coast", SEARCH, json!({})),
            ("take the second one", "select_itinerary", json!({"index": 2})),
            ("Remember that I prefer window seats", "remember", json!({"content": "I prefer window seats"})),
            ("do you remember?", "", json!({})),
            ("take a break", "", json!({})),
        ],
    );
}

#[test]
fn spanish() {
    check(
        "es-ES",
        &[
            (
                "Busca vuelos en business de Madrid a Nueva York el 15 de marzo",
                SEARCH,
                with(route("MAD", "NYC"), json!({"depart_date": "2027-03-15", "cabin": "BUSINESS"})),
            ),
            (
                "vuelos desde BCN a LIS mañana en turista para 3 personas sin escalas",
                SEARCH,
                with(
                    route("BCN", "LIS"),
                    json!({"depart_date": "2026-11-16", "pax": 3, "cabin": "ECONOMY", "constraints": {"nonstop_only": true}}),
                ),
            ),
            ("quiero volar a Lima con millas", SEARCH, json!({"destination": "LIM", "award_only": true})),
            ("toma el segundo", "select_itinerary", json!({"index": 2})),
            ("Recuerda que prefiero pasillo", "remember", json!({"content": "prefiero pasillo"})),
            ("hola", "", json!({})),
        ],
    );
}

/// Sentences for the workspace tools must not become flight searches.
#[test]
fn workspace_sentences_propose_no_flight_tool() {
    let planner = planner();
    for (text, locale) in [
        ("welche todos habe ich offen", "de"),
        ("Welche Anfragen sind heute fällig?", "de"),
        ("wie lange habe ich heute gearbeitet", "de"),
        ("welche cerebro artikel gibt es zu flügen", "de"),
        ("Erstelle eine Anfrage: Flug nach Rom buchen", "de"),
        ("who am i", "en"),
        ("which requests are open", "en"),
        ("quién soy", "es"),
        ("tareas para hoy", "es"),
    ] {
        let flight_calls: Vec<(String, Value)> =
            planner.propose(text, locale).into_iter().filter(|(tool, _)| !tool.starts_with("get_") && tool != "create_request").collect();
        assert_eq!(flight_calls, [], "{text}");
    }
}

#[test]
fn short_answers_continue_the_search() {
    let planner = planner();
    let question = |missing: &[&str]| json!({"kind": "question", "missing": missing});
    let follow = |result: &Value, text: &str, locale: &str| {
        planner.tools.iter().find_map(|tool| tool.follow_up(result, text, locale, planner.today))
    };
    let asks = question(&["origin", "depart_date", "cabin"]);
    for (text, locale, args) in [
        ("von Frankfurt", "de-DE", json!({"origin": "FRA"})),
        ("Frankfurt", "de-DE", json!({"origin": "FRA"})),
        ("FRA", "es-ES", json!({"origin": "FRA"})),
        ("desde Madrid", "es-ES", json!({"origin": "MAD"})),
        ("am 15. März 2027", "de-DE", json!({"depart_date": "2027-03-15"})),
        ("on March 15, 2027", "en-US", json!({"depart_date": "2027-03-15"})),
        ("Business bitte", "de-DE", json!({"cabin": "BUSINESS"})),
        ("ab München, am 15.3., zu zweit", "de-DE", json!({"origin": "MUC", "depart_date": "2027-03-15", "pax": 2})),
    ] {
        assert_eq!(follow(&asks, text, locale), Some(args), "{text}");
        assert_eq!(planner.propose(text, locale), [], "not a search by itself: {text}");
    }
    assert_eq!(follow(&question(&["destination"]), "New York", "de-DE"), Some(json!({"destination": "NYC"})));
    let shown = json!({"kind": "results"});
    let changed = json!({"depart_date": "2027-03-16", "reuse_last_request": true});
    assert_eq!(follow(&shown, "und am 16. März 2027?", "de-DE"), Some(changed));
    for text in ["danke", "Welche Anfragen habe ich offen?", "what is the weather like where you are on such a day in March 2027"] {
        assert_eq!(follow(&asks, text, "de-DE"), None, "{text}");
    }
}
