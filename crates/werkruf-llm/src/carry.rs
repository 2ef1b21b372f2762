//! Data of an answer that later requests must send back to the same provider, such as reasoning and signatures.
//!
//! The data is labelled with its origin. It is never sent to another server, API or model, because those reject foreign
//! signatures and encrypted reasoning.

use serde_json::{Map, Value, json};

/// Larger data is dropped, so that a history of hundreds of answers stays affordable.
const MAX_BYTES: usize = 256 * 1024;

/// The provider and model to which the data belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) api: &'static str,
    pub(crate) provider: String,
    /// The requested model; the model that the provider reports may have another name.
    pub(crate) model: String,
}

impl Origin {
    /// Labels the data of an answer with its origin; `None` if the data is too large.
    pub(crate) fn label(&self, content: Value) -> Option<Value> {
        let mut labelled = json!({"api": self.api, "provider": self.provider, "model": self.model});
        labelled["content"] = content;
        (labelled.to_string().len() <= MAX_BYTES).then_some(labelled)
    }

    /// The data, if it has this origin.
    pub(crate) fn content_of<'a>(&self, carry: Option<&'a Value>) -> Option<&'a Map<String, Value>> {
        let carry = carry?;
        let matches = carry["api"] == self.api && carry["provider"] == self.provider.as_str() && carry["model"] == self.model.as_str();
        carry["content"].as_object().filter(|_| matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_origin_gets_the_data() {
        let origin = Origin { api: "chat", provider: "p".into(), model: "m".into() };
        let labelled = origin.label(json!({"a": 1})).unwrap();
        assert_eq!(origin.content_of(Some(&labelled)).map(|content| &content["a"]), Some(&json!(1)));
        for other in [
            Origin { api: "responses", ..origin.clone() },
            Origin { provider: "q".into(), ..origin.clone() },
            Origin { model: "n".into(), ..origin.clone() },
        ] {
            assert_eq!(other.content_of(Some(&labelled)), None);
        }
        for odd in [json!(null), json!(3), json!({"api": "chat"}), json!([1])] {
            assert_eq!(origin.content_of(Some(&odd)), None);
        }
        assert_eq!(origin.label(json!({"a": "x".repeat(MAX_BYTES)})), None);
    }
}
