//! The Rust tool of `docs/writing-a-tool.md`: its tests run here, and the page shows exactly this file.

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
    fn the_page_shows_this_very_file() {
        assert_eq!(block("rust"), include_str!("doc/convert_units.rs"));
    }

    #[test]
    fn it_can_be_registered_and_offered_strictly() {
        let tool: Arc<dyn ToolObject> = Arc::new(Typed::new(ConvertUnits));
        assert_eq!(tool.spec().name, "convert_units");
        assert!(Shape::compile(tool.parameters()).is_ok());
        assert!(strict(tool.parameters()).is_some(), "{:#}", tool.parameters());
    }
}
