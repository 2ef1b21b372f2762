//! `remember`: stores a sentence in the conversation's memory. The prompt of later turns contains the memory.

use std::collections::BTreeSet;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use werkruf_contract::{Clock, Effect, ErrorCode, Failure, Invocation, Reply, State, Tool, ToolSpec, fold};

const MEMORY: &str = "memory";
/// Beyond this number the oldest notes are deleted.
const MAX_NOTES: usize = 50;
const MAX_CHARS: usize = 500;
const OPENINGS: [&str; 9] = [
    "merk dir",
    "merke dir",
    "bitte merk dir",
    "bitte merke dir",
    "remember",
    "please remember",
    "recuerda",
    "por favor recuerda",
    "ten en cuenta",
];

pub(crate) struct Remember(pub(crate) Clock);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// What to keep, as one sentence
    content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Remembered {
    memory: Vec<Value>,
    message: String,
}

impl Tool for Remember {
    type Args = Args;
    type Output = Remembered;

    fn spec(&self) -> ToolSpec {
        let description =
            "Keeps a fact about the person for later in this conversation, such as a preference. Use it when they ask to be remembered.";
        let mut spec = ToolSpec::new("remember", description, Effect::Read);
        spec.answers_directly = true;
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Remembered>, Failure> {
        std::future::ready(self.add_note(&args.content, &invocation)).await
    }

    fn owns_state(&self) -> &'static [&'static str] {
        &[MEMORY]
    }

    fn propose(&self, text: &str, _: &str, _: Date) -> Option<Args> {
        let trimmed = text.trim();
        let folded = fold(trimmed);
        let opening = OPENINGS.iter().filter(|opening| folded.starts_with(**opening)).max_by_key(|opening| opening.len())?;
        // Folding does not change the number of characters here, because no opening contains an accent or an ß.
        let rest: String = trimmed.chars().skip(opening.chars().count()).collect();
        let rest = rest.trim_start_matches([':', ',', ' ']);
        let content = ["dass ", "daß ", "that ", "que "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest).trim();
        (!content.is_empty() && content.split_whitespace().nth(1).is_some()).then(|| Args { content: content.to_owned() })
    }
}

impl Remember {
    fn add_note(&self, content: &str, invocation: &Invocation) -> Result<Reply<Remembered>, Failure> {
        let texts = invocation.texts();
        let content = content.split_whitespace().collect::<Vec<_>>().join(" ");
        if content.is_empty() || content.chars().count() > MAX_CHARS {
            return Err(Failure::validation(ErrorCode::InvalidArguments, format!("content must have 1 to {MAX_CHARS} characters.")));
        }
        let mut memory = invocation.state.get(MEMORY).and_then(Value::as_array).cloned().unwrap_or_default();
        memory.retain(|entry| entry["content"].as_str() != Some(&content));
        let mut note = json!({"type": "note", "content": content, "created_at": self.0.now()});
        if let Some(sources) = &invocation.untrusted {
            // A later turn that reads the note reads what strangers may have written. The names of the tools decide, and each result would take room.
            note["untrusted"] = json!(tools(sources));
        }
        memory.push(note);
        let over = memory.len().saturating_sub(MAX_NOTES);
        memory.drain(..over);
        let message = texts.text("remembered", &[("content", content.into())]);
        let mut reply = Reply::new(Remembered { memory: memory.clone(), message: message.clone() });
        reply.message = Some(message);
        reply.state_patch = Some(State::from_iter([(MEMORY.to_owned(), json!(memory))]));
        Ok(reply)
    }
}

/// The tools that returned these results.
fn tools(results: &str) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct Untrusted {
        tool: String,
    }
    let results: Vec<Untrusted> = serde_json::from_str(results).unwrap_or_default();
    results.into_iter().map(|result| result.tool).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_contract::{Clock, Invocation};

    use crate::kernel_tools;
    use crate::support::invocation;

    #[tokio::test]
    async fn a_note_is_added_to_the_state() {
        let tools = kernel_tools(Clock::system(0));
        let noted = tools[0].call(json!({"content": "Ich sitze  gern am Gang"}), invocation()).await.unwrap();
        assert_eq!(noted.state_patch.unwrap()["memory"][0]["content"], "Ich sitze gern am Gang");
        assert!(noted.message.unwrap().contains("Ich sitze gern am Gang"));
    }

    #[tokio::test]
    async fn a_note_is_marked_with_each_tool_once() {
        let read: Vec<_> = (0..64).map(|n| json!({"tool": if n % 2 == 0 { "web" } else { "mail" }, "job_id": n})).collect();
        let tainted = Invocation { untrusted: Some(json!(read).to_string().into()), ..invocation() };
        let noted = kernel_tools(Clock::system(0))[0].call(json!({"content": "Likes tea"}), tainted).await.unwrap();
        assert_eq!(noted.state_patch.unwrap()["memory"][0]["untrusted"], json!(["mail", "web"]));
    }
}
