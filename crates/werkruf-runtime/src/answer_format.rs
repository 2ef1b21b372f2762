//! The format that a client asks an answer to have: JSON, with or without a schema.

use serde_json::{Map, Value};
use werkruf_contract::Shape;

/// How much of a place is logged.
const MAX_PLACE_CHARS: usize = 200;

/// A JSON format.
#[derive(Debug)]
pub enum AnswerFormat {
    /// Any JSON object.
    Object,
    /// What this schema allows.
    Schema(Shape),
}

impl AnswerFormat {
    /// The format in the model options of a request; `None` where the answer may be any text. The error says what is wrong with the schema.
    pub fn of(options: &Map<String, Value>) -> Option<Result<Self, String>> {
        let format = options.get("response_format")?;
        match format["type"].as_str()? {
            "json_object" => Some(Ok(Self::Object)),
            "json_schema" => match &format["json_schema"]["schema"] {
                Value::Null => Some(Ok(Self::Object)),
                schema => Some(Shape::compile(schema).map(Self::Schema)),
            },
            _ => None,
        }
    }

    /// Whether the options of a request ask for JSON.
    pub fn is_json(options: &Map<String, Value>) -> bool {
        options.get("response_format").is_some_and(|format| matches!(format["type"].as_str(), Some("json_object" | "json_schema")))
    }

    /// Where an answer first differs from the format: a JSON pointer, or what it is not as a whole. It has no text of the answer but names of fields.
    pub fn violated_at(&self, text: &str) -> Option<String> {
        let Ok(value) = serde_json::from_str::<Value>(text) else { return Some("no JSON".to_owned()) };
        let place = match self {
            Self::Object => (!value.is_object()).then(|| "no object".to_owned()),
            Self::Schema(shape) if shape.fits(&value) => None,
            Self::Schema(shape) => shape.violations(&value).into_iter().next().map(|first| first.path),
        };
        place.map(|place| place.chars().take(MAX_PLACE_CHARS).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::AnswerFormat;

    fn format(format: &Value) -> Option<Result<AnswerFormat, String>> {
        let options = json!({"response_format": format});
        let options = options.as_object().unwrap();
        assert_eq!(AnswerFormat::of(options).is_some(), AnswerFormat::is_json(options));
        AnswerFormat::of(options)
    }

    #[test]
    fn an_answer_must_fit_its_format() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let wanted = format(&json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})).unwrap().unwrap();
        let place = |text: &str| wanted.violated_at(text);
        assert_eq!(place("{\"n\": 1}"), None);
        assert_eq!(place("{\"n\": \"one\"}").as_deref(), Some("/n"));
        assert_eq!(place("Here it is: {\"n\": 1}").as_deref(), Some("no JSON"));
        let any = format(&json!({"type": "json_object"})).unwrap().unwrap();
        assert_eq!((any.violated_at("{}"), any.violated_at("[]")), (None, Some("no object".to_owned())));
        assert!(format(&json!({"type": "text"})).is_none() && format(&json!(5)).is_none());
        assert!(format(&json!({"type": "json_schema", "json_schema": {"schema": {"type": 5}}})).unwrap().is_err());
    }
}
