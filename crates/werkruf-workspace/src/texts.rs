//! The module's texts for users.

use werkruf_contract::TextSet;

/// A tool adds them to the kernel's: `invocation.texts().with(&TEXTS)`.
pub(crate) static TEXTS: TextSet =
    TextSet::new(include_str!("../texts/de.ftl"), include_str!("../texts/en.ftl"), include_str!("../texts/es.ftl"));
