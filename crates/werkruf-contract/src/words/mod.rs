//! What people read, in German, English and Spanish. No text for people stands inside logic.

mod language;

pub use language::{Language, fold};
