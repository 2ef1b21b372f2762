//! Extracts the text of a PDF file: letters become lines, lines become paragraphs, headers and footers are kept once.

mod joining;
mod layout;
mod margins;
mod page;
mod pages;
#[cfg(test)]
mod sample;

pub(crate) use pages::read;
