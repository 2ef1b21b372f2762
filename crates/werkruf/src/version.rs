//! The version and commit of this binary.

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit this binary was built from, or `unknown`. Outside a checkout the build may name it in `WERKRUF_COMMIT`.
pub(crate) fn commit() -> &'static str {
    option_env!("WERKRUF_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("unknown")
}
