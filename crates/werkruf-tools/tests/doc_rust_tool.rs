//! Runs the tests of the Rust tool of `docs/writing-a-tool.md`, and checks that the page shows exactly the tested file.

#[cfg(test)]
mod support;

#[cfg(test)]
mod doc;

#[cfg(test)]
#[path = "doc/convert_units.rs"]
mod convert_units;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use werkruf_contract::{Shape, ToolObject, Typed, strict};

    use crate::convert_units::ConvertUnits;
    use crate::doc::block;

    #[test]
    fn the_page_shows_the_tested_file() {
        assert_eq!(block("rust"), include_str!("doc/convert_units.rs"));
    }

    #[test]
    fn the_rust_tool_has_a_valid_strict_schema() {
        let tool: Arc<dyn ToolObject> = Arc::new(Typed::new(ConvertUnits));
        assert_eq!(tool.spec().name, "convert_units");
        assert!(Shape::compile(tool.parameters()).is_ok());
        assert!(strict(tool.parameters()).is_some(), "{:#}", tool.parameters());
    }
}
