//! Splits the text of a step into deltas. The split depends only on the text, not on how the text arrived, so a resumed stream has
//! the same deltas with the same sequence numbers.

/// The most characters in a delta.
const MAX_CHARACTERS: usize = 32;

/// The end of the delta that starts at byte `from`: after the white space that follows a word, or after [`MAX_CHARACTERS`].
/// `None` while more text could move the end. The rest of a `complete` text is a delta.
pub(super) fn delta_end(text: &str, from: usize, complete: bool) -> Option<usize> {
    let rest = text.get(from..)?;
    let (mut word, mut space) = (false, false);
    for (count, (at, character)) in rest.char_indices().enumerate() {
        if count == MAX_CHARACTERS || (space && !character.is_whitespace()) {
            return Some(from + at);
        }
        if character.is_whitespace() {
            space = word;
        } else {
            word = true;
        }
    }
    let long = rest.chars().nth(MAX_CHARACTERS - 1).is_some();
    (!rest.is_empty() && (complete || long)).then_some(text.len())
}

/// The text of one step while it is sent. A text that the model restarts must begin with the text that was sent before.
#[derive(Debug, Default)]
pub(super) struct StepText {
    text: String,
    /// The byte up to which the text was split into deltas.
    split_at: usize,
    /// The text that was sent before the model restarted.
    sent_before_restart: String,
}

/// The text differs from the text that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextChanged;

impl StepText {
    /// Appends text.
    pub(super) fn push(&mut self, more: &str) {
        self.text.push_str(more);
    }

    /// The model restarts the text.
    pub(super) fn restart(&mut self) {
        if self.split_at > self.sent_before_restart.len() {
            self.sent_before_restart = self.text[..self.split_at].to_owned();
        }
        self.text.clear();
        self.split_at = 0;
    }

    /// Sets the complete text of the step so far.
    pub(super) fn replace(&mut self, complete: &str) {
        if let Some(more) = complete.strip_prefix(self.text.as_str()) {
            self.text.push_str(more);
        } else {
            self.restart();
            self.text.push_str(complete);
        }
    }

    /// Whether the step has no text and none was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.sent_before_restart.is_empty()
    }

    /// The next delta that was not sent yet, if its end is known.
    pub(super) fn next(&mut self, complete: bool) -> Result<Option<&str>, TextChanged> {
        while let Some(end) = delta_end(&self.text, self.split_at, complete) {
            let from = std::mem::replace(&mut self.split_at, end);
            if from >= self.sent_before_restart.len() {
                return Ok(Some(&self.text[from..end]));
            }
            if self.sent_before_restart.get(from..end) != Some(&self.text[from..end]) {
                return Err(TextChanged);
            }
        }
        if complete && self.text.len() < self.sent_before_restart.len() { Err(TextChanged) } else { Ok(None) }
    }

    /// Takes the text when the step has ended.
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
    fn a_delta_is_a_word_with_the_white_space_after_it() {
        assert_eq!(deltas("Hello  there,\n\nyou"), ["Hello  ", "there,\n\n", "you"]);
        assert_eq!(deltas("  a b "), ["  a ", "b "]);
        assert_eq!(deltas("   "), ["   "]);
        assert!(deltas("").is_empty());
        let long = "ä".repeat(70);
        assert_eq!(deltas(&long).iter().map(|delta| delta.chars().count()).collect::<Vec<_>>(), [32, 32, 6]);
        assert_eq!(deltas(&" ".repeat(33)).len(), 2);
    }

    #[test]
    fn a_delta_ends_as_soon_as_more_text_cannot_change_it() {
        assert_eq!(delta_end("word ", 0, false), None, "more white space may follow");
        assert_eq!(delta_end("word n", 0, false), Some(5));
        assert_eq!(delta_end(&"x".repeat(32), 0, false), Some(32));
    }

    fn sent(step: &mut StepText, complete: bool) -> Result<String, TextChanged> {
        let mut all = String::new();
        while let Some(delta) = step.next(complete)? {
            all.push_str(delta);
        }
        Ok(all)
    }

    #[test]
    fn a_restarted_text_continues_after_the_sent_text_or_is_an_error() {
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
            let mut changed = started();
            changed.push(other);
            assert_eq!(sent(&mut changed, false), Err(TextChanged), "{other}");
        }
        let mut short = started();
        short.push("one ");
        assert_eq!(sent(&mut short, true), Err(TextChanged));
    }
}
