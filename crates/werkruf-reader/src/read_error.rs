//! Why a file has no text.

use crate::{MAX_FILE_BYTES, MAX_TEXT_BYTES};

/// Why no text could be read. Each message continues a sentence that names the file, and says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("it is larger than {} MiB; split it, or make its pictures smaller", MAX_FILE_BYTES >> 20)]
    TooLarge,
    #[error("it contains more than {} MiB of text; split it", MAX_TEXT_BYTES >> 20)]
    TooMuchText,
    #[error("it contains no text")]
    NoText,
    #[error("it is not text, or in an unknown encoding; save it as UTF-8")]
    Binary,
    #[error("it is not a PDF, or damaged; open it, save it again (or `qpdf IN.pdf OUT.pdf`) and add that")]
    BrokenPdf,
    #[error("its end is missing; copy or download it again")]
    CutOff,
    #[error("it is protected by a password; save it without one (or `qpdf --decrypt --password=… IN.pdf OUT.pdf`) and add that")]
    EncryptedPdf,
    #[error("its pages are pictures without text; run text recognition on it (such as `ocrmypdf IN.pdf OUT.pdf`) and add that")]
    PicturePdf,
    #[error("its fonts do not say which characters they draw; run text recognition on it (such as `ocrmypdf --force-ocr IN.pdf OUT.pdf`)")]
    NamelessFonts,
    #[error("it is not a {0} file, or damaged; open it, save it again as {0} and add that")]
    BrokenOffice(&'static str),
    #[error("it is protected by a password or in the old binary format; save it as {0} without a password and add that")]
    EncryptedOffice(&'static str),
    #[error("it expands to more than {} MiB; split it", crate::archive::MAX_EXPANDED_BYTES >> 20)]
    Expands,
}
