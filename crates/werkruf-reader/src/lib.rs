//! Turns the bytes of one file into text, a title and a kind.
//!
//! Files are untrusted input. Every reader bounds what it expands and what it writes; [`confine`] bounds memory, time and access of the
//! process. The program `werkruf-reader` reads one file per process.

mod archive;
pub mod confine;
mod csv;
mod docx;
mod docx_styles;
mod encoding;
mod html;
mod kind;
#[cfg(test)]
mod office_sample;
mod pdf;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod read_error;
mod table;
mod xlsx;

use serde::Serialize;

pub use kind::Kind;
pub use read_error::ReadError;

/// Larger files are refused. Pictures make a file large, not its text.
pub const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// Longer texts are refused; the API accepts requests up to 16 MiB.
pub const MAX_TEXT_BYTES: usize = 12 * 1024 * 1024;

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileText {
    pub kind: Kind,
    /// The title that the file itself names.
    pub title: Option<String>,
    /// Plain text with Markdown's headings, lists and tables.
    pub text: String,
}

/// Reads a file of this kind.
pub fn read(kind: Kind, bytes: Vec<u8>) -> Result<FileText, ReadError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge);
    }
    let (title, text) = match kind {
        Kind::Text => (None, encoding::decode(&bytes, None)?),
        Kind::Html => html::read(&encoding::decode_html(&bytes)?)?,
        Kind::Pdf => pdf::read(bytes)?,
        Kind::Docx => docx::read(&bytes)?,
        Kind::Xlsx => xlsx::read(&bytes)?,
        Kind::Csv => (None, csv::read(&encoding::decode(&bytes, None)?)?),
    };
    if text.len() > MAX_TEXT_BYTES {
        return Err(ReadError::TooMuchText);
    }
    if !text.contains(char::is_alphanumeric) {
        return Err(ReadError::NoText);
    }
    Ok(FileText { kind, title, text })
}
