//! Statuses in a sentence: "offen", "in progress", "hechas", "nicht erledigt".

use super::token::Token;

/// A status of a request or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PhraseStatus {
    Open,
    InProgress,
    Improval,
    QualityControl,
    Done,
    Cancelled,
}

/// The status that the words name: `None` for no status, `Some(None)` for two or more different ones.
pub(super) fn status_in(tokens: &[Token<'_>]) -> Option<Option<PhraseStatus>> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.folded.as_str());
    let mut found: Vec<PhraseStatus> = Vec::new();
    for at in 0..tokens.len() {
        let pair = (word(at), word(at + 1));
        let status = match pair {
            ("in", "arbeit" | "bearbeitung" | "progress") | ("en", "curso" | "progreso" | "proceso") => Some(PhraseStatus::InProgress),
            ("quality", "control") => Some(PhraseStatus::QualityControl),
            ("control", "de") if word(at + 2) == "calidad" => Some(PhraseStatus::QualityControl),
            ("sin" | "por", "hacer" | "terminar" | "cerrar" | "resolver" | "completar") => Some(PhraseStatus::Open),
            _ => status_of(word(at)),
        };
        let negated = at > 0 && ["nicht", "not", "no", "yet"].contains(&word(at - 1));
        let status = if status == Some(PhraseStatus::Done) && negated { Some(PhraseStatus::Open) } else { status };
        found.extend(status.filter(|status| !found.contains(status)));
    }
    match found.as_slice() {
        [] => None,
        [only] => Some(Some(*only)),
        _ => Some(None),
    }
}

pub(super) fn status_of(word: &str) -> Option<PhraseStatus> {
    let begins = |stems: &[&str]| stems.iter().any(|stem| word.starts_with(stem));
    if ["open", "pending", "outstanding", "unfinished", "unresolved"].contains(&word)
        || begins(&["offen", "abiert", "pendient", "ausstehend", "unerledigt"])
    {
        // "offensichtlich" and "offenbar" do not mean "open".
        return (!begins(&["offensi", "offenba"])).then_some(PhraseStatus::Open);
    }
    if ["ongoing", "running"].contains(&word) || begins(&["laufend", "angefangen", "begonnen"]) {
        return Some(PhraseStatus::InProgress);
    }
    if ["done", "finished", "completed", "closed", "resolved", "hecho", "hechos", "hecha", "hechas"].contains(&word)
        || begins(&["erledigt", "fertig", "abgeschlossen", "geschlossen", "terminad", "completad", "cerrad", "finalizad", "resuelt"])
    {
        return Some(PhraseStatus::Done);
    }
    if ["cancelled", "canceled"].contains(&word) || begins(&["storniert", "abgebrochen", "cancelad", "anulad", "abgesagt"]) {
        return Some(PhraseStatus::Cancelled);
    }
    if begins(&["nachbesserung", "improval", "improvement", "mejora", "verbesserung"]) {
        return Some(PhraseStatus::Improval);
    }
    begins(&["qualitatskontroll", "qualitatspruf"]).then_some(PhraseStatus::QualityControl)
}
