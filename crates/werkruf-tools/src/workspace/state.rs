//! Statuses as people say them: "offen", "in progress", "hechas", "nicht erledigt".

use super::token::Token;

/// A status as people say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    InProgress,
    Improval,
    QualityControl,
    Done,
    Cancelled,
}

/// The one state the words name; two different ones name none.
pub(super) fn states(tokens: &[Token<'_>]) -> Option<Option<State>> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.folded.as_str());
    let mut found: Vec<State> = Vec::new();
    for at in 0..tokens.len() {
        let pair = (word(at), word(at + 1));
        let state = match pair {
            ("in", "arbeit" | "bearbeitung" | "progress") | ("en", "curso" | "progreso" | "proceso") => Some(State::InProgress),
            ("quality", "control") => Some(State::QualityControl),
            ("control", "de") if word(at + 2) == "calidad" => Some(State::QualityControl),
            ("sin" | "por", "hacer" | "terminar" | "cerrar" | "resolver" | "completar") => Some(State::Open),
            _ => state_of(word(at)),
        };
        let denied = at > 0 && ["nicht", "not", "no", "yet"].contains(&word(at - 1));
        let state = if state == Some(State::Done) && denied { Some(State::Open) } else { state };
        found.extend(state.filter(|state| !found.contains(state)));
    }
    match found.as_slice() {
        [] => None,
        [only] => Some(Some(*only)),
        _ => Some(None),
    }
}

pub(super) fn state_of(word: &str) -> Option<State> {
    let begins = |stems: &[&str]| stems.iter().any(|stem| word.starts_with(stem));
    if ["open", "pending", "outstanding", "unfinished", "unresolved"].contains(&word)
        || begins(&["offen", "abiert", "pendient", "ausstehend", "unerledigt"])
    {
        // "offensichtlich" is not open.
        return (!begins(&["offensi", "offenba"])).then_some(State::Open);
    }
    if ["ongoing", "running"].contains(&word) || begins(&["laufend", "angefangen", "begonnen"]) {
        return Some(State::InProgress);
    }
    if ["done", "finished", "completed", "closed", "resolved", "hecho", "hechos", "hecha", "hechas"].contains(&word)
        || begins(&["erledigt", "fertig", "abgeschlossen", "geschlossen", "terminad", "completad", "cerrad", "finalizad", "resuelt"])
    {
        return Some(State::Done);
    }
    if ["cancelled", "canceled"].contains(&word) || begins(&["storniert", "abgebrochen", "cancelad", "anulad", "abgesagt"]) {
        return Some(State::Cancelled);
    }
    if begins(&["nachbesserung", "improval", "improvement", "mejora", "verbesserung"]) {
        return Some(State::Improval);
    }
    begins(&["qualitatskontroll", "qualitatspruf"]).then_some(State::QualityControl)
}
