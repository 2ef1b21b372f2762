//! The format that a client asks an answer to have: JSON, with or without a schema.

use serde_json::{Map, Value};
use werkruf_contract::Shape;

/// How much of a violation is shown.
const MAX_VIOLATION_CHARS: usize = 200;

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

    /// The first thing that is wrong with an answer.
    pub fn violation(&self, text: &str) -> Option<String> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return Some(format!("it is not JSON: {error}")),
        };
        let violation = match self {
            Self::Object => (!value.is_object()).then(|| "it is no JSON object".to_owned()),
            Self::Schema(shape) if shape.fits(&value) => None,
            Self::Schema(shape) => shape.violations(&value).into_iter().next().map(|first| format!("{} {}", first.path, first.message)),
        };
        violation.map(|text| text.trim().chars().take(MAX_VIOLATION_CHARS).collect())
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
        assert_eq!(wanted.violation("{\"n\": 1}"), None);
        assert!(wanted.violation("{\"n\": \"one\"}").unwrap().starts_with("/n "));
        assert!(wanted.violation("Here it is: {\"n\": 1}").unwrap().starts_with("it is not JSON"));
        let any = format(&json!({"type": "json_object"})).unwrap().unwrap();
        assert_eq!((any.violation("{}"), any.violation("[]")), (None, Some("it is no JSON object".to_owned())));
        assert!(format(&json!({"type": "text"})).is_none() && format(&json!(5)).is_none());
        assert!(format(&json!({"type": "json_schema", "json_schema": {"schema": {"type": 5}}})).unwrap().is_err());
    }
}
