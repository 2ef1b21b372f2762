//! Reads the fenced blocks of `docs/writing-a-tool.md`, so that the tests run the code that the page shows.

/// The content of the first block with this language.
pub fn block(fence: &str) -> String {
    let page = include_str!("../../../../docs/writing-a-tool.md");
    let opening = format!("\n```{fence}\n");
    let block = page.split(&opening).nth(1).unwrap_or_else(|| panic!("the page has no block ```{fence}"));
    let (code, _) = block.split_once("\n```\n").unwrap();
    format!("{code}\n")
}
