//! `select_itinerary`: "nimm den zweiten" puts a flight that was shown into the conversation's choice.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use werkruf_contract::{Effect, Failure, Invocation, Reply, State, Tool, ToolSpec, Words, fold};

use crate::search_flights::SHOWN;

const SELECTED: &str = "selected_itineraries";
/// A choice is a handful; the state stays small.
const MOST: usize = 20;
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

pub(crate) struct SelectItinerary;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// Number of the flight as it was shown, counted from 1
    index: i64,
}

/// The choice as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct Selected {
    selected: Value,
    selected_itineraries: Vec<Value>,
    message: String,
}

impl Tool for SelectItinerary {
    type Args = Args;
    type Output = Selected;

    fn spec(&self) -> ToolSpec {
        let description = "Chooses one of the flights search_flights showed last, by its number. Use it when the person decides for one.";
        let mut spec = ToolSpec::new("select_itinerary", description, Effect::Read);
        spec.answers_directly = true;
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Selected>, Failure> {
        std::future::ready(select(args.index, &invocation)).await
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

fn select(index: i64, invocation: &Invocation) -> Result<Reply<Selected>, Failure> {
    let words = Words::of(invocation.context.locale.as_deref().unwrap_or(&invocation.principal.locale));
    let list = |name: &str| invocation.state.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let shown = list(SHOWN);
    let Some(chosen) = shown.iter().find(|entry| entry["index"].as_i64() == Some(index)).cloned() else {
        let key = if shown.is_empty() { "flights-none-shown" } else { "flights-no-such" };
        let message = words.say(key, &[("count", shown.len().into())]);
        return Err(Failure::validation("unknown_itinerary", message));
    };
    let mut selected = list(SELECTED);
    selected.retain(|entry| (&entry["kind"], &entry["id"]) != (&chosen["kind"], &chosen["id"]));
    selected.push(chosen.clone());
    let over = selected.len().saturating_sub(MOST);
    selected.drain(..over);
    let mut message = words.say("flights-selected", &[("flight", chosen["text"].as_str().unwrap_or_default().into())]);
    if chosen["sandbox"] == json!(true) {
        message = format!("{message}\n\n{}", words.say("flights-sandbox", &[]));
    }
    let mut reply = Reply::new(Selected { selected: chosen, selected_itineraries: selected.clone(), message: message.clone() });
    reply.message = Some(message);
    reply.state_patch = Some(State::from_iter([(SELECTED.to_owned(), json!(selected))]));
    Ok(reply)
}
