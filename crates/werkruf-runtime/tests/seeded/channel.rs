//! Messages of a channel with addresses: some stand for a call, some come above the limit. Their turns need no model.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use werkruf_contract::{CallStatus, Texts, TurnStatus};
use werkruf_runtime::{ChannelMessage, DirectCall, Inbound, OverLimit, ReplyTo};
use werkruf_store::InboxEntry;

use crate::audit::Audit;
use crate::rng::Rng;
use crate::trace::short;

const CHANNEL: &str = "chat";

/// What the channel says about a new message; `None` for a message of a client without a channel.
pub fn inbound(rng: &Rng) -> Option<Inbound> {
    if !rng.permille(250) {
        return None;
    }
    let tool = rng.pick(&["lookup", "put", "pay", "echo", "sign", "submit"]).copied().unwrap_or("echo");
    let over_limit = rng.permille(150).then_some(OverLimit { retry_after_ms: 1000, silent: false, code: None });
    Some(Inbound {
        reply_to: ReplyTo { channel: CHANNEL.to_owned(), account: "1".to_owned(), address: "ada".to_owned() },
        direct: Some(DirectCall { tool: tool.to_owned(), arguments: json!({"n": rng.below(6)}) }),
        over_limit,
    })
}

/// The message with its inbox entry.
pub fn message(inbound: Inbound, key: Option<&String>, text: &str, now: Timestamp) -> Box<ChannelMessage> {
    let inbox = InboxEntry {
        channel: CHANNEL.to_owned(),
        account: "1".to_owned(),
        external_id: key.cloned().unwrap_or_else(|| text.to_owned()),
        fingerprint: text.to_owned(),
        expires_at: now + SignedDuration::from_hours(1),
    };
    Box::new(ChannelMessage { inbound, inbox })
}

impl Audit<'_> {
    /// The turn of a keyword makes its one call and answers with the tool's text; one above the limit makes none. Neither uses a model.
    pub fn turns_without_model(&mut self) {
        let texts = Texts::of("en-US");
        for turn in self.tables.turns.values() {
            let Some(inbound) = turn.inbound.as_deref().map(|text| serde_json::from_str::<Inbound>(text).unwrap()) else { continue };
            let name = short(turn.id);
            if self.tables.usage.values().any(|(of, _)| *of == turn.id) {
                self.violation(format!("turn {name} needs no model and has used one"));
            }
            let calls: Vec<_> = self.tables.calls.values().filter(|call| call.turn_id == turn.id).collect();
            if inbound.over_limit.is_some() {
                let ended = (turn.status, turn.error_code.as_deref());
                if !calls.is_empty()
                    || !matches!(ended, (TurnStatus::Failed, Some("too_many_turns" | "poison")) | (TurnStatus::Canceled, _))
                {
                    self.violation(format!("turn {name} above the limit made {} calls and is {ended:?}", calls.len()));
                }
                continue;
            }
            let direct = inbound.direct.unwrap();
            let expected = match calls.as_slice() {
                [] if turn.status != TurnStatus::Completed => continue,
                [call] if call.tool_name != direct.tool => None,
                [_] if turn.status != TurnStatus::Completed => continue,
                [call] if call.status == CallStatus::Succeeded && direct.tool == "echo" => Some(format!("echo {}", direct.arguments["n"])),
                [call] if call.status == CallStatus::Succeeded => Some(texts.text("call-done", &[("tool", direct.tool.as_str().into())])),
                [call] => {
                    let kind = call.error_type.as_deref().and_then(werkruf_contract::ToolErrorType::parse);
                    let (code, reason) = (call.error_code.as_deref().unwrap_or_default(), call.error.as_deref().unwrap_or_default());
                    Some(texts.call_error(kind, code, reason))
                }
                _ => None,
            };
            if expected.is_none() || turn.message != expected {
                let made: Vec<_> = calls.iter().map(|call| call.tool_name.as_str()).collect();
                self.violation(format!("turn {name} of {} made {made:?} and answered {:?}, not {expected:?}", direct.tool, turn.message));
            }
        }
    }
}
