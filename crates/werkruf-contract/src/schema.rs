//! Derives the JSON Schemas of a tool's arguments and results from their types, so that no schema is written by hand.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::check::Violation;

/// The JSON Schema of an args type, with subschemas inlined.
pub fn parameters_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

/// The JSON Schema of what a tool returns, with subschemas inlined; `None` if the type is not an object.
pub fn output_of_type<T: JsonSchema>() -> Option<Value> {
    let mut schema = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let object = schema.as_object_mut()?;
    object.remove("title");
    (object.get("type").and_then(Value::as_str) == Some("object")).then_some(schema)
}

/// Keywords that strict function calling rejects.
const UNSUPPORTED: [&str; 15] = [
    "default",
    "minLength",
    "maxLength",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "examples",
    "$schema",
];

/// Formats that strict function calling accepts.
const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The schema in the subset that strict function calling accepts; `None` if the schema has no such form.
pub fn strict(schema: &Value) -> Option<Value> {
    let root = schema.as_object()?;
    if root.get("type").and_then(Value::as_str) != Some("object") || root.contains_key("anyOf") || root.contains_key("oneOf") {
        return None;
    }
    strict_node(schema)
}

fn strict_node(node: &Value) -> Option<Value> {
    let Some(object) = node.as_object() else {
        // `true` allows any value, which strict mode cannot express.
        return None;
    };
    let mut out = Map::new();
    for (key, value) in object {
        match key.as_str() {
            key if UNSUPPORTED.contains(&key) => {}
            "format" if !value.as_str().is_some_and(|f| FORMATS.contains(&f)) => {}
            "properties" => {
                out.insert(key.clone(), strict_properties(value, object.get("required"))?);
            }
            "required" | "additionalProperties" => {}
            "items" => {
                out.insert(key.clone(), strict_node(value)?);
            }
            "anyOf" | "oneOf" => {
                let options: Option<Vec<Value>> = value.as_array()?.iter().map(strict_node).collect();
                out.insert("anyOf".to_owned(), Value::Array(options?));
            }
            "allOf" => {
                let [only] = value.as_array()?.as_slice() else { return None };
                out.extend(strict_node(only)?.as_object()?.clone());
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    if is_object(object) {
        let properties = out.entry("properties").or_insert_with(|| json!({}));
        let names: Vec<Value> = properties.as_object()?.keys().cloned().map(Value::String).collect();
        // A free-form object has no strict form: the model could never fill it.
        if names.is_empty() && object.get("additionalProperties").is_some_and(|extra| extra != &Value::Bool(false)) {
            return None;
        }
        out.insert("required".to_owned(), Value::Array(names));
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
    } else if !["type", "anyOf", "enum", "const", "$ref"].iter().any(|key| out.contains_key(*key)) {
        return None;
    }
    Some(Value::Object(out))
}

fn strict_properties(properties: &Value, required: Option<&Value>) -> Option<Value> {
    let required: Vec<&str> =
        required.and_then(Value::as_array).map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    let mut out = Map::new();
    for (name, schema) in properties.as_object()? {
        let schema = strict_node(schema)?;
        out.insert(name.clone(), if required.contains(&name.as_str()) { schema } else { nullable(schema) });
    }
    Some(Value::Object(out))
}

/// An optional property becomes a required one that may be null.
fn nullable(mut schema: Value) -> Value {
    let Some(object) = schema.as_object_mut() else { return schema };
    if let Some(options) = object.get_mut("enum").and_then(Value::as_array_mut)
        && !options.contains(&Value::Null)
    {
        options.push(Value::Null);
    }
    match object.get_mut("type") {
        Some(Value::String(kind)) if kind != "null" => {
            let kinds = json!([kind, "null"]);
            object.insert("type".to_owned(), kinds);
        }
        Some(Value::Array(kinds)) => {
            if !kinds.iter().any(|kind| kind == "null") {
                kinds.push(json!("null"));
            }
        }
        Some(_) => {}
        None => {
            if let Some(options) = object.get_mut("anyOf").and_then(Value::as_array_mut) {
                let null = json!({"type": "null"});
                if !options.contains(&null) {
                    options.push(null);
                }
            }
        }
    }
    schema
}

fn is_object(object: &Map<String, Value>) -> bool {
    match object.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => object.contains_key("properties"),
    }
}

/// A compiled schema that validates values, including their formats.
pub struct Shape(jsonschema::Validator);

impl Shape {
    /// Compiles a schema; the error describes what is wrong with the schema itself.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        jsonschema::options().should_validate_formats(true).build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Compiles a schema without its bounds and formats: only names and types count.
    pub fn of_types(schema: &Value) -> Result<Self, String> {
        let mut schema = schema.clone();
        remove_bounds(&mut schema);
        Self::compile(&schema)
    }

    /// Whether the value is valid; cheaper than listing the violations.
    pub fn fits(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// All violations; the path of a missing field includes the field.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        self.0.iter_errors(value).map(|error| violation(&error)).collect()
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shape")
    }
}

/// Keywords that limit values of the right type.
const BOUNDS: [&str; 6] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format", "maxItems"];

fn remove_bounds(node: &mut Value) {
    let Some(object) = node.as_object_mut() else { return };
    object.retain(|key, _| !BOUNDS.contains(&key.as_str()));
    for (key, value) in object {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(remove_bounds),
            ("anyOf" | "oneOf" | "allOf", Value::Array(options)) => options.iter_mut().for_each(remove_bounds),
            ("items", items) => remove_bounds(items),
            _ => {}
        }
    }
}

fn violation(error: &jsonschema::ValidationError<'_>) -> Violation {
    use jsonschema::error::ValidationErrorKind;
    let path = error.instance_path().as_str();
    if let ValidationErrorKind::Required { property } = error.kind()
        && let Some(property) = property.as_str()
    {
        return Violation::new(format!("{path}/{property}"), "is required");
    }
    Violation::new(path, error.to_string())
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::json;

    use super::{parameters_of, strict};

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only the schema is used")]
    struct Args {
        /// Where from
        origin: String,
        pax: Option<u8>,
        #[schemars(length(min = 1))]
        tags: Option<Vec<String>>,
        class: Option<Class>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only the schema is used")]
    enum Class {
        Economy,
        Business,
    }

    #[test]
    fn optional_fields_become_required_and_nullable() {
        let schema = strict(&parameters_of::<Args>());
        assert_eq!(
            schema,
            Some(json!({
                "type": "object",
                "properties": {
                    "origin": {"description": "Where from", "type": "string"},
                    "pax": {"type": ["integer", "null"], "minimum": 0, "maximum": 255},
                    "tags": {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1},
                    "class": {"type": ["string", "null"], "enum": ["Economy", "Business", null]}
                },
                "required": ["origin", "pax", "tags", "class"],
                "additionalProperties": false
            }))
        );
    }

    #[test]
    fn a_free_form_object_has_no_strict_form() {
        assert_eq!(strict(&json!({"type": "object", "properties": {"any": true}})), None);
        assert_eq!(strict(&json!({"type": "object", "additionalProperties": {"type": "string"}})), None);
    }
}
