//! `select_itinerary`: adds one of the flights shown last to the conversation's selected itineraries ("take the second one").
//!
//! For an award flight the tool also looks up booking links and segments, which a search does not return.

use std::sync::Arc;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use werkruf_contract::{Deadline, Effect, Failure, Invocation, Reply, State, Texts, Tool, ToolSpec, fold};

use crate::flights::{DETAILS_TIMEOUT, Flights};
use crate::last_results::LAST_RESULTS;
use crate::texts::TEXTS;

const SELECTED: &str = "selected_itineraries";
/// Keeps the session state small.
const MAX_SELECTED: usize = 20;
const VERBS: [&str; 16] = [
    "nimm", "nehm", "nehme", "nehmen", "wahle", "waehle", "buche", "take", "choose", "pick", "select", "toma", "tomo", "elijo", "elige",
    "escojo",
];
const ORDINALS: [(&str, i64); 10] = [
    ("erst", 1),
    ("zweit", 2),
    ("dritt", 3),
    ("viert", 4),
    ("funft", 5),
    ("first", 1),
    ("second", 2),
    ("third", 3),
    ("fourth", 4),
    ("fifth", 5),
];
const SPANISH: [(&str, i64); 5] = [("primer", 1), ("segund", 2), ("tercer", 3), ("cuart", 4), ("quint", 5)];

pub(crate) struct SelectItinerary(pub(crate) Arc<Flights>);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// Number of the flight as it was shown, counted from 1
    index: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Selected {
    selected: Value,
    selected_itineraries: Vec<Value>,
    message: String,
}

impl Tool for SelectItinerary {
    type Args = Args;
    type Output = Selected;

    fn owns_state(&self) -> &'static [&'static str] {
        &[SELECTED]
    }

    fn spec(&self) -> ToolSpec {
        let description = "Chooses one of the flights search_flights showed last, by its number. Use it when the person decides for one.";
        let mut spec = ToolSpec::new("select_itinerary", description, Effect::Read);
        spec.answers_directly = true;
        spec.texts = Some(&TEXTS);
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Selected>, Failure> {
        let texts = invocation.texts().with(&TEXTS);
        let mut chosen = shown(args.index, &invocation, &texts)?;
        self.add_details(&mut chosen, &invocation).await;
        Ok(select(chosen, &invocation, &texts))
    }

    fn propose(&self, text: &str, _: &str, _: Date) -> Option<Args> {
        let folded = fold(text);
        let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        if words.len() > 8 || !words.iter().any(|word| VERBS.contains(word)) {
            return None;
        }
        let ordinal = |word: &str| ORDINALS.iter().chain(&SPANISH).find(|(start, _)| word.starts_with(start)).map(|(_, number)| *number);
        words.iter().find_map(|word| word.parse().ok().or_else(|| ordinal(word))).map(|index| Args { index })
    }
}

impl SelectItinerary {
    async fn add_details(&self, chosen: &mut Value, invocation: &Invocation) {
        let is_award = chosen["kind"].as_str().is_some_and(|kind| kind.starts_with("award")) && chosen["sandbox"] != json!(true);
        let Some(id) = chosen["id"].as_str().filter(|_| is_award) else { return };
        let deadline = Deadline::after(DETAILS_TIMEOUT).earlier(invocation.deadline);
        let Some(details) = self.0.details(id, chosen["trip_id"].as_str(), deadline).await else { return };
        chosen["booking_links"] = json!(details.booking_links);
        if let Some(segments) = details.segments {
            chosen["segments"] = json!(segments);
        }
    }
}

fn list(invocation: &Invocation, name: &str) -> Vec<Value> {
    invocation.state.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Finds the flight that was shown under this number.
fn shown(index: i64, invocation: &Invocation, texts: &Texts) -> Result<Value, Failure> {
    let shown = list(invocation, LAST_RESULTS);
    let found = shown.iter().find(|entry| entry["index"].as_i64() == Some(index)).cloned();
    found.ok_or_else(|| {
        let key = if shown.is_empty() { "flights-none-shown" } else { "flights-no-such" };
        Failure::validation("unknown_itinerary", texts.text(key, &[("count", shown.len().into())]))
    })
}

fn select(chosen: Value, invocation: &Invocation, texts: &Texts) -> Reply<Selected> {
    let mut selected = list(invocation, SELECTED);
    selected.retain(|entry| (&entry["kind"], &entry["id"]) != (&chosen["kind"], &chosen["id"]));
    selected.push(chosen.clone());
    let over = selected.len().saturating_sub(MAX_SELECTED);
    selected.drain(..over);
    let mut message = texts.text("flights-selected", &[("flight", chosen["text"].as_str().unwrap_or_default().into())]);
    let links = chosen["booking_links"].as_array().into_iter().flatten();
    if let Some(link) = links.max_by_key(|link| link["primary"] == json!(true)) {
        let part = |name: &str| link[name].as_str().unwrap_or_default().to_owned();
        message.push_str(&format!("\n{}: {}", part("label"), part("link")));
    }
    if chosen["sandbox"] == json!(true) {
        message.push_str("\n\n");
        message.push_str(&texts.text("flights-sandbox", &[]));
    }
    let mut reply = Reply::new(Selected { selected: chosen, selected_itineraries: selected.clone(), message: message.clone() });
    reply.message = Some(message);
    reply.state_patch = Some(State::from_iter([(SELECTED.to_owned(), json!(selected))]));
    reply
}
