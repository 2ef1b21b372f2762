//! Reads the fenced blocks of `docs/writing-a-tool.md`, so that what the page shows is what was tested.

/// The one block that opens with this fence.
pub fn block(fence: &str) -> String {
    let page = include_str!("../../../../docs/writing-a-tool.md");
    let opening = format!("\n```{fence}\n");
    let mut parts = page.split(&opening).skip(1);
    let block = parts.next().unwrap_or_else(|| panic!("the page has a block ```{fence}"));
    assert!(parts.next().is_none(), "only one block opens with ```{fence}");
    let (code, _) = block.split_once("\n```\n").unwrap();
    format!("{code}\n")
}
