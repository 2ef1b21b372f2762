//! The kinds of files that can be read.

use serde::Serialize;

/// What a file contains, by the extension of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Markdown or plain text.
    Text,
    Html,
    Pdf,
    Docx,
    Xlsx,
    Csv,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Text, Self::Html, Self::Pdf, Self::Docx, Self::Xlsx, Self::Csv];

    /// The kind of a file with this extension, in any case and without a dot.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "md" | "markdown" | "txt" | "text" | "rst" => Some(Self::Text),
            "html" | "htm" | "xhtml" => Some(Self::Html),
            "pdf" => Some(Self::Pdf),
            "docx" => Some(Self::Docx),
            "xlsx" => Some(Self::Xlsx),
            "csv" | "tsv" => Some(Self::Csv),
            _ => None,
        }
    }
}
