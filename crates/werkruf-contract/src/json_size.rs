//! How large JSON is: the number of values in a text, and the length of a value as text. Neither builds what it counts.

use serde::Serialize;

/// The most values of a JSON text from outside that are built: a list of zeros takes two bytes per element as text, and eighty in memory. A
/// thousand messages with tool calls have about ten thousand.
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

/// The length of a value as JSON text. The text is not built.
pub fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter does not fail.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{count_json_values, json_bytes};

    #[test]
    fn the_size_of_a_value_is_that_of_its_text() {
        for value in [json!({}), json!({"a": "ä\"\n", "b": [1, 2.5, null]})] {
            assert_eq!(json_bytes(&value), value.to_string().len());
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, count) in [("5", 1), ("\"a,[{\"", 1), (r#""\",\"""#, 1), ("[0,0,0]", 4), (r#"{"a": [1, {"b": "x, y"}], "c": null}"#, 6)]
        {
            assert_eq!(count_json_values(text.as_bytes()), count, "{text}");
        }
    }
}
