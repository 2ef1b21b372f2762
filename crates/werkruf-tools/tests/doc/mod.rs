//! Reads the fenced blocks of `docs/writing-a-tool.md`, so that the tests run the code that the page shows.

/// The content of the only block with this language.
pub fn block(fence: &str) -> String {
    let page = include_str!("../../../../docs/writing-a-tool.md");
    let opening = format!("\n```{fence}\n");
    let mut parts = page.split(&opening).skip(1);
    let block = parts.next().unwrap_or_else(|| panic!("the page has no block ```{fence}"));
    assert!(parts.next().is_none(), "the page has several blocks ```{fence}");
    let (code, _) = block.split_once("\n```\n").unwrap();
    format!("{code}\n")
}
