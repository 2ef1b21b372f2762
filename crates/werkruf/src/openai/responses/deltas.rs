//! Where a text is cut into deltas. Cutting depends on the text alone, never on how it arrived, so a stream that is told again
//! has the same pieces under the same numbers.

/// The longest piece, in characters.
const MAX_CHARACTERS: usize = 32;

/// The end of the piece that begins at `from`, once it is known: behind the blank that follows a word, or behind 32 characters.
/// What is left counts as a piece when the text is `whole`.
pub(super) fn delta_end(text: &str, from: usize, whole: bool) -> Option<usize> {
    let rest = text.get(from..)?;
    let (mut word, mut blank) = (false, false);
    for (count, (at, character)) in rest.char_indices().enumerate() {
        if count == MAX_CHARACTERS || (blank && !character.is_whitespace()) {
            return Some(from + at);
        }
        if character.is_whitespace() {
            blank = word;
        } else {
            word = true;
        }
    }
    let long = rest.chars().nth(MAX_CHARACTERS - 1).is_some();
    (!rest.is_empty() && (whole || long)).then_some(text.len())
}

/// The text of one step on its way out. What was sent is a promise: a text that begins anew must keep it.
#[derive(Debug, Default)]
pub(super) struct StepText {
    text: String,
    /// How far the text was cut.
    cut: usize,
    /// What was sent before the text began anew.
    sent_before_restart: String,
}

/// The text says something else than what was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextChanged;

impl StepText {
    /// More of it.
    pub(super) fn push(&mut self, more: &str) {
        self.text.push_str(more);
    }

    /// It begins anew.
    pub(super) fn restart(&mut self) {
        if self.cut > self.sent_before_restart.len() {
            self.sent_before_restart = self.text[..self.cut].to_owned();
        }
        self.text.clear();
        self.cut = 0;
    }

    /// All of it, whatever was heard before.
    pub(super) fn replace(&mut self, whole: &str) {
        if let Some(more) = whole.strip_prefix(self.text.as_str()) {
            self.text.push_str(more);
        } else {
            self.restart();
            self.text.push_str(whole);
        }
    }

    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.sent_before_restart.is_empty()
    }

    /// The next piece that was not sent yet, if it is complete.
    pub(super) fn next(&mut self, whole: bool) -> Result<Option<&str>, TextChanged> {
        while let Some(end) = delta_end(&self.text, self.cut, whole) {
            let from = std::mem::replace(&mut self.cut, end);
            if from >= self.sent_before_restart.len() {
                return Ok(Some(&self.text[from..end]));
            }
            if self.sent_before_restart.get(from..end) != Some(&self.text[from..end]) {
                return Err(TextChanged);
            }
        }
        if whole && self.text.len() < self.sent_before_restart.len() { Err(TextChanged) } else { Ok(None) }
    }

    /// The whole text, when the step is over.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(self).text
    }
}

#[cfg(test)]
mod tests {
    use super::{StepText, TextChanged, delta_end};

    fn deltas(text: &str) -> Vec<&str> {
        let (mut from, mut found) = (0, Vec::new());
        while let Some(end) = delta_end(text, from, true) {
            found.push(&text[from..end]);
            from = end;
        }
        found
    }

    #[test]
    fn a_piece_is_a_word_with_the_blank_behind_it() {
        assert_eq!(deltas("Hello  there,\n\nyou"), ["Hello  ", "there,\n\n", "you"]);
        assert_eq!(deltas("  a b "), ["  a ", "b "]);
        assert_eq!(deltas("   "), ["   "]);
        assert!(deltas("").is_empty());
        let long = "ä".repeat(70);
        assert_eq!(deltas(&long).iter().map(|delta| delta.chars().count()).collect::<Vec<_>>(), [32, 32, 6]);
        assert_eq!(deltas(&" ".repeat(33)).len(), 2);
    }

    #[test]
    fn a_piece_is_known_as_soon_as_nothing_can_change_it() {
        assert_eq!(delta_end("word ", 0, false), None, "another blank may follow");
        assert_eq!(delta_end("word n", 0, false), Some(5));
        assert_eq!(delta_end(&"x".repeat(32), 0, false), Some(32));
    }

    fn sent(step: &mut StepText, whole: bool) -> Result<String, TextChanged> {
        let mut all = String::new();
        while let Some(delta) = step.next(whole)? {
            all.push_str(delta);
        }
        Ok(all)
    }

    #[test]
    fn a_text_that_begins_anew_goes_on_where_it_was_or_breaks_its_promise() {
        let started = || {
            let mut step = StepText::default();
            step.push("one two thr");
            assert_eq!(sent(&mut step, false).unwrap(), "one two ");
            step.restart();
            step
        };
        let mut same = started();
        same.push("one tw");
        assert_eq!(sent(&mut same, false).unwrap(), "");
        same.restart();
        same.push("one two three four");
        assert_eq!(sent(&mut same, false).unwrap(), "three ");
        assert_eq!(sent(&mut same, true).unwrap(), "four");
        assert_eq!(same.take(), "one two three four");

        for other in ["one too many ", "one two  three x"] {
            let mut broken = started();
            broken.push(other);
            assert_eq!(sent(&mut broken, false), Err(TextChanged), "{other}");
        }
        let mut short = started();
        short.push("one ");
        assert_eq!(sent(&mut short, true), Err(TextChanged));
    }
}
