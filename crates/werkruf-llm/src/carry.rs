//! What an answer leaves for later requests: things only the provider that gave them understands.
//!
//! A carry says where it came from. To another server, another API or another model it says nothing, because a
//! signature or a sealed thought of somebody else is refused.

use serde_json::{Map, Value, json};

/// A larger one is let go: a history of hundreds of answers must stay affordable.
const MAX_BYTES: usize = 256 * 1024;

/// Whose carry it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) api: &'static str,
    pub(crate) provider: String,
    /// As it was asked for: what answers may be called otherwise.
    pub(crate) model: String,
}

impl Origin {
    /// Puts the name of its origin on what an answer left.
    pub(crate) fn seal(&self, content: Value) -> Option<Value> {
        let mut sealed = json!({"api": self.api, "provider": self.provider, "model": self.model});
        sealed["content"] = content;
        (sealed.to_string().len() <= MAX_BYTES).then_some(sealed)
    }

    /// The content, where it came from here.
    pub(crate) fn open<'a>(&self, carry: Option<&'a Value>) -> Option<&'a Map<String, Value>> {
        let carry = carry?;
        let ours = carry["api"] == self.api && carry["provider"] == self.provider.as_str() && carry["model"] == self.model.as_str();
        carry["content"].as_object().filter(|_| ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_origin_opens_it() {
        let origin = Origin { api: "chat", provider: "p".into(), model: "m".into() };
        let sealed = origin.seal(json!({"a": 1})).unwrap();
        assert_eq!(origin.open(Some(&sealed)).map(|content| &content["a"]), Some(&json!(1)));
        for other in [
            Origin { api: "responses", ..origin.clone() },
            Origin { provider: "q".into(), ..origin.clone() },
            Origin { model: "n".into(), ..origin.clone() },
        ] {
            assert_eq!(other.open(Some(&sealed)), None);
        }
        for odd in [json!(null), json!(3), json!({"api": "chat"}), json!([1])] {
            assert_eq!(origin.open(Some(&odd)), None);
        }
        assert_eq!(origin.seal(json!({"a": "x".repeat(MAX_BYTES)})), None);
    }
}
