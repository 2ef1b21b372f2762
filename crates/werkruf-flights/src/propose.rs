//! Derives search arguments from a sentence, for a planner without a language model: places, days, cabin, people, constraints.

use jiff::civil::Date;
use serde_json::Value;
use werkruf_contract::{Language, fold};

use super::args::{Args, Constraints};
use super::cabin::Cabin;
use super::{airports, phrase_days, programs};

const FLIGHT_STEMS: [&str; 7] = ["flug", "flueg", "flieg", "flight", "vuelo", "volar", "vuela"];
/// Stems of words that mean that the sentence is about something else.
const OTHER_TOPICS: [&str; 12] =
    ["flughafen", "artikel", "article", "articulo", "anfrage", "request", "solicitud", "aufgabe", "todo", "task", "tarea", "cerebro"];
const FROM: [&str; 6] = ["von", "ab", "aus", "from", "desde", "de"];
const TO: [&str; 7] = ["nach", "to", "a", "hasta", "hacia", "para", "into"];
/// Airport codes that are also common words.
const COMMON_WORDS: [&str; 48] = [
    "the", "our", "los", "las", "una", "uno", "der", "die", "das", "den", "dem", "ein", "mir", "uns", "new", "san", "and", "for", "por",
    "con", "mit", "hin", "two", "all", "his", "her", "any", "mis", "fly", "see", "get", "buy", "use", "pay", "ask", "you", "him", "put",
    "let", "say", "try", "run", "ver", "ser", "usa", "end", "way", "day",
];
const COUNTS: [(&str, u32); 24] = [
    ("ein", 1),
    ("eine", 1),
    ("einen", 1),
    ("one", 1),
    ("un", 1),
    ("una", 1),
    ("zwei", 2),
    ("zweit", 2),
    ("two", 2),
    ("dos", 2),
    ("drei", 3),
    ("dritt", 3),
    ("three", 3),
    ("tres", 3),
    ("vier", 4),
    ("viert", 4),
    ("four", 4),
    ("cuatro", 4),
    ("funf", 5),
    ("five", 5),
    ("cinco", 5),
    ("sechs", 6),
    ("six", 6),
    ("seis", 6),
];
const ADULTS: [&str; 9] = ["person", "personen", "people", "persons", "personas", "adult", "passeng", "erwachsen", "pasajer"];
const CHILDREN: [&str; 4] = ["kind", "child", "nino", "nina"];

/// The arguments, if the sentence asks for a flight search.
pub(super) fn search(text: &str, locale: &str, today: Date) -> Option<Args> {
    let folded = fold(text);
    let tokens: Vec<&str> = words(&folded);
    let about = tokens.iter().any(|token| FLIGHT_STEMS.iter().any(|start| token.starts_with(start)) || matches!(*token, "fly" | "flying"));
    let other_topic = tokens.iter().any(|token| OTHER_TOPICS.iter().any(|start| token.starts_with(start)));
    let (origin, destination) = places(text, &folded);
    let route = origin.is_some() && destination.is_some();
    if other_topic || !(about || route) {
        return None;
    }
    Some(arguments(text, &folded, (origin, destination), locale, today))
}

/// The longest message, in words, that continues a search without naming flights.
const FOLLOW_UP_WORDS: usize = 9;

/// The arguments of a short message that answers a question of the last search ("von Frankfurt", "am 15. März 2027", "Business"), or
/// changes the last search.
pub(super) fn follow_up(result: &Value, text: &str, locale: &str, today: Date) -> Option<Args> {
    let folded = fold(text);
    let tokens = words(&folded);
    if tokens.len() > FOLLOW_UP_WORDS || tokens.iter().any(|token| OTHER_TOPICS.iter().any(|start| token.starts_with(start))) {
        return None;
    }
    let mut places = places(text, &folded);
    let named = tokens.iter().any(|token| FROM.contains(token) || TO.contains(token));
    let lone = places.1.take_if(|_| places.0.is_none() && !named).or_else(|| alone(&folded).filter(|_| !named));
    if let Some(place) = lone {
        // A place alone answers the first question about a place.
        let asks_origin = result["missing"].as_array().is_some_and(|missing| missing.iter().any(|name| name == "origin"));
        places = if asks_origin { (Some(place), None) } else { (None, Some(place)) };
    }
    let args = arguments(text, &folded, places, locale, today);
    // Without a question the message changes the search whose results are shown.
    let asked = result["kind"] == "question" || result.get("error").is_some();
    (args != Args::default()).then(|| Args { reuse_last_request: (!asked).then_some(true), ..args })
}

/// The place that is the whole message.
fn alone(folded: &str) -> Option<String> {
    let text = folded.trim_matches(|c: char| !c.is_alphanumeric());
    airports::city_at(text).filter(|(_, length)| *length == text.len()).map(|(code, _)| code.to_owned())
}

fn arguments(text: &str, folded: &str, (origin, destination): (Option<String>, Option<String>), locale: &str, today: Date) -> Args {
    let tokens: Vec<&str> = words(folded);
    let language = Language::guess(text).unwrap_or_else(|| Language::of(locale));
    let mut days = phrase_days::days(folded, language, locale, today).into_iter();
    let depart_date = days.next().map(|day| day.to_string());
    let return_date = days.next().map(|day| day.to_string());
    let has = |starts: &[&str]| tokens.iter().any(|token| starts.iter().any(|start| token.starts_with(start)));
    let award = has(&["meile", "pramien", "praemien", "award", "millas", "milla", "miles", "mileage"]);
    let nonstop = has(&["nonstop", "direkt", "direct"]) || folded.contains("non-stop") || folded.contains("sin escala");
    let again = has(&["nochmal", "again"]) || ["noch einmal", "otra vez", "de nuevo"].iter().any(|words| folded.contains(words));
    Args {
        origin,
        destination,
        depart_date,
        return_date,
        pax: people(&tokens, &ADULTS).or_else(|| group_size(folded)),
        children: people(&tokens, &CHILDREN),
        cabin: cabin(folded, &tokens),
        award_only: award.then_some(true),
        loyalty_programs: award.then(|| named_programs(folded)).filter(|named| !named.is_empty()),
        constraints: nonstop.then(|| Constraints { nonstop_only: Some(true), ..Constraints::default() }),
        reuse_last_request: again.then_some(true),
        ..Args::default()
    }
}

pub(super) fn words(folded: &str) -> Vec<&str> {
    folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Origin and destination: the places after prepositions, else the first two codes in capitals.
fn places(text: &str, folded: &str) -> (Option<String>, Option<String>) {
    let (mut origin, mut destination) = (None, None);
    let mut before: Option<&str> = None;
    let mut at = 0;
    for token in folded.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = token.trim_end_matches(|c: char| !c.is_alphanumeric());
        if let Some(preposition) = before
            && let Some(code) = place_at(&folded[at..], word)
        {
            let slot = if FROM.contains(&preposition) { &mut origin } else { &mut destination };
            slot.get_or_insert(code);
        }
        at += token.len();
        if !word.is_empty() {
            before = Some(word).filter(|word| FROM.contains(word) || TO.contains(word));
        }
    }
    let is_code = |word: &&str| word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_uppercase()) && airports::is_known(word);
    let codes: Vec<String> = text.split(|c: char| !c.is_alphanumeric()).filter(is_code).map(str::to_owned).collect();
    let mut left = codes.into_iter().filter({
        let known = [origin.clone(), destination.clone()];
        move |code| !known.iter().flatten().any(|one| one == code)
    });
    match (&origin, &destination) {
        (None, None) => match (left.next(), left.next()) {
            (Some(first), Some(second)) => (origin, destination) = (Some(first), Some(second)),
            // A single code is the destination.
            (only, _) => destination = only,
        },
        (Some(_), None) => destination = left.next(),
        (None, Some(_)) => origin = left.next(),
        (Some(_), Some(_)) => {}
    }
    (origin, destination)
}

fn place_at(rest: &str, word: &str) -> Option<String> {
    if let Some((code, _)) = airports::city_at(rest) {
        return Some(code.to_owned());
    }
    let code = word.to_ascii_uppercase();
    (word.len() == 3 && !COMMON_WORDS.contains(&word) && airports::is_known(&code)).then_some(code)
}

fn cabin(folded: &str, tokens: &[&str]) -> Option<Cabin> {
    let has = |word: &str| tokens.contains(&word);
    let contains_any = |words: &[&str]| words.iter().any(|word| folded.contains(word));
    if has("business") || has("businessclass") || has("ejecutiva") {
        Some(Cabin::Business)
    } else if contains_any(&["first class", "erste klasse", "erster klasse", "primera clase", "firstclass"]) || has("primera") {
        Some(Cabin::First)
    } else if has("premium") {
        Some(Cabin::PremiumEconomy)
    } else if contains_any(&["economy", "economica", "turista", "touristenklasse"]) || has("eco") {
        Some(Cabin::Economy)
    } else {
        None
    }
}

/// The number directly before one of these nouns.
fn people(tokens: &[&str], nouns: &[&str]) -> Option<u32> {
    tokens.windows(2).find_map(|pair| match pair {
        [number, noun] if nouns.iter().any(|start| noun.starts_with(start)) => {
            number.parse().ok().or_else(|| COUNTS.iter().find(|(word, _)| word == number).map(|(_, count)| *count))
        }
        _ => None,
    })
}

/// The group size in "zu zweit", "zu dritt".
fn group_size(folded: &str) -> Option<u32> {
    let word = words(folded.split_once("zu ")?.1).first().copied().unwrap_or_default().to_owned();
    COUNTS.iter().find(|(known, count)| *known == word && *count > 1).map(|(_, count)| *count)
}

fn named_programs(folded: &str) -> Vec<String> {
    let tokens = words(folded);
    let mut named: Vec<String> = Vec::new();
    for span in [3, 2, 1] {
        for some in tokens.windows(span) {
            if let Some(source) = programs::source(&some.concat()).filter(|_| some.concat().len() > 3)
                && !named.iter().any(|known| known == source)
            {
                named.push(source.to_owned());
            }
        }
    }
    named
}
