//! Writes rows of a table as Markdown, which the search splits only between rows.

/// A longer run of empty cells is written as one empty cell: a sheet may have 16,384 columns.
pub(crate) const MAX_EMPTY: usize = 16;

/// `| a | b |`, without empty cells at the end; nothing for a row of empty cells.
pub(crate) fn push_row(out: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    let mut empty = 0;
    let mut is_first = true;
    for cell in cells {
        let mut words = cell.as_ref().split(|letter: char| letter.is_whitespace() || letter.is_control()).filter(|word| !word.is_empty());
        let Some(first) = words.next() else {
            empty += 1;
            continue;
        };
        if is_first {
            out.push('|');
            is_first = false;
        }
        for _ in 0..if empty > MAX_EMPTY { 1 } else { empty } {
            out.push_str("  |");
        }
        empty = 0;
        out.push(' ');
        out.push_str(first);
        for word in words {
            out.push(' ');
            out.push_str(word);
        }
        out.push_str(" |");
    }
    if !is_first {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::push_row;

    #[test]
    fn empty_cells_keep_their_place_within_bounds() {
        let row = |cells: &[&str]| {
            let mut out = String::new();
            push_row(&mut out, cells);
            out
        };
        assert_eq!(row(&["a", "", "b c\n d", ""]), "| a |  | b c d |\n");
        assert_eq!(row(&["", "x"]), "|  | x |\n");
        assert_eq!(row(&["", " "]), "");
        let mut wide = vec![""; 1_000];
        wide.push("far");
        assert_eq!(row(&wide), "|  | far |\n");
    }
}
