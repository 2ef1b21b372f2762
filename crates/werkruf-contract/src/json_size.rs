//! How many values a JSON text has, without building them: a list of zeros takes two bytes per element as text, and eighty in memory.

/// The most values of a JSON text from outside that are built. A thousand messages with tool calls have about ten thousand.
pub const MAX_JSON_VALUES: u64 = 100_000;

/// The number of values in a JSON text: lists, objects, their elements and their fields. Commas in strings do not count.
pub fn count_json_values(text: &[u8]) -> u64 {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::count_json_values;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, count) in [("5", 1), ("\"a,[{\"", 1), (r#""\",\"""#, 1), ("[0,0,0]", 4), (r#"{"a": [1, {"b": "x, y"}], "c": null}"#, 6)]
        {
            assert_eq!(count_json_values(text.as_bytes()), count, "{text}");
        }
    }
}
