//! What parts of an answer's text refer to, as the Responses API writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source or a file that an answer names. Positions count characters of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Annotation {
    /// A page.
    UrlCitation { url: String, title: String, start_index: u64, end_index: u64 },
    /// A file that was searched.
    FileCitation { file_id: String, filename: String, index: u64 },
    /// A file that the provider's program wrote.
    ContainerFileCitation { container_id: String, file_id: String, filename: String, start_index: u64, end_index: u64 },
    /// A file to fetch.
    FilePath { file_id: String, index: u64 },
}

impl Annotation {
    /// The same annotation where this many characters stand before its text.
    #[must_use]
    pub const fn shifted(mut self, by: u64) -> Self {
        match &mut self {
            Self::UrlCitation { start_index, end_index, .. } | Self::ContainerFileCitation { start_index, end_index, .. } => {
                *start_index = start_index.saturating_add(by);
                *end_index = end_index.saturating_add(by);
            }
            // A position in the text, whatever its name.
            Self::FileCitation { index, .. } | Self::FilePath { index, .. } => *index = index.saturating_add(by),
        }
        self
    }
}
