//! A fault in the configuration: where it is, and how to correct it.

use serde::Serialize;

/// One fault that prevents the server from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigViolation {
    /// A JSON pointer into the file (`/limits/steps`), the name of a variable, or a flag.
    pub path: String,
    /// Line of the file, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What is wrong and what to write instead. Contains no secret.
    pub message: String,
    /// The error code, where it is not the general one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

impl ConfigViolation {
    /// The code of a file that was found, not named, and would receive a secret.
    pub const CONFIG_NOT_NAMED: &'static str = "config_not_named";

    /// A violation at this place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, message: message.into(), code: None }
    }

    /// Sets the error code.
    #[must_use]
    pub const fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the line of the file.
    #[must_use]
    pub const fn on_line(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }
}

impl std::fmt::Display for ConfigViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} (line {line}): {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}
