//! Recognises a client that repeats itself: it runs the same call, gets the same result and asks again. Each request is a turn of its own, so the
//! limits of one turn do not see it.

use serde_json::Value;
use werkruf_llm::Message;

/// So many equal exchanges in a row are a loop.
const CLIENT_REPEATS: usize = 5;

/// An answer and the results of its calls, without their ids.
#[derive(Clone, PartialEq)]
struct Exchange<'a> {
    text: &'a str,
    calls: Vec<(&'a str, &'a str)>,
    /// Texts and pictures.
    results: Vec<(&'a str, &'a [Value])>,
}

/// Whether a history ends with the same exchange several times, with no word of the user between.
pub(super) fn ends_in_loop(messages: &[Message]) -> bool {
    let mut last: Option<Exchange<'_>> = None;
    let (mut equal, mut results) = (0, Vec::new());
    for message in messages.iter().rev() {
        match message {
            Message::Tool { content, parts, .. } => results.push((content.as_str(), parts.as_slice())),
            Message::Assistant { content, calls, .. } => {
                let calls = calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
                let exchange = Exchange { text: content, calls, results: std::mem::take(&mut results) };
                if *last.get_or_insert_with(|| exchange.clone()) != exchange {
                    return false;
                }
                equal += 1;
                if equal == CLIENT_REPEATS {
                    return true;
                }
            }
            Message::User { .. } | Message::System { .. } => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use werkruf_llm::{HistoryCall, Message};

    use super::{CLIENT_REPEATS, ends_in_loop};

    fn exchange(id: usize, result: &str) -> [Message; 2] {
        let call = HistoryCall { id: format!("c{id}"), name: "f".to_owned(), arguments: "{}".to_owned() };
        let parts = vec![serde_json::json!({"type": "text", "text": result})];
        let tool = Message::Tool { call_id: call.id.clone(), name: "f".to_owned(), content: String::new(), parts };
        [Message::Assistant { content: String::new(), calls: vec![call], carry: None }, tool]
    }

    #[test]
    fn equal_exchanges_in_a_row_are_a_loop() {
        let repeated = |count: usize| -> Vec<Message> {
            [Message::user("hi")].into_iter().chain((0..count).flat_map(|id| exchange(id, "no"))).collect()
        };
        assert!(!ends_in_loop(&repeated(CLIENT_REPEATS - 1)));
        assert!(ends_in_loop(&repeated(CLIENT_REPEATS)));
        let mut progress = repeated(CLIENT_REPEATS - 1);
        progress.extend(exchange(9, "yes"));
        assert!(!ends_in_loop(&progress));
        let mut asked = repeated(CLIENT_REPEATS);
        asked.push(Message::user("again"));
        assert!(!ends_in_loop(&asked));
        assert!(!ends_in_loop(&[]));
    }
}
