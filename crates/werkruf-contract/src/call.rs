//! The states of a call and a turn, spelled as the tables spell them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have one spelling in tables, JSON and SQL alike.
macro_rules! spelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// The spelling in tables and JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
            /// The variant with this spelling.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use spelled;

spelled! {
    /// What a tool does to the world; retry, recovery and reuse follow from it.
    Effect {
        /// Changes nothing; may be repeated at will.
        Read = "read",
        /// Repeatable with the same idempotency key.
        Idempotent = "idempotent",
        /// Never repeated by us: at most one request leaves per call.
        Once = "once",
    }
}

spelled! {
    /// The life of one tool call (seed 000 section 3.2).
    CallStatus {
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        Timeout = "timeout",
        Canceled = "canceled",
    }
}

impl CallStatus {
    /// A terminal row never changes again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Timeout | Self::Canceled)
    }
}

spelled! {
    /// Who runs the call: we, or the provider itself.
    CallKind {
        Function = "function",
        Mcp = "mcp",
        WebSearch = "web_search",
        Custom = "custom",
    }
}

spelled! {
    /// The life of one turn.
    TurnStatus {
        Accepted = "accepted",
        Planning = "planning",
        Acting = "acting",
        Finalizing = "finalizing",
        Completed = "completed",
        AwaitingApproval = "awaiting_approval",
        Failed = "failed",
        Canceled = "canceled",
    }
}

spelled! {
    /// What became of a wish for a person's word.
    ApprovalStatus {
        Pending = "pending",
        Approved = "approved",
        Denied = "denied",
        Expired = "expired",
        Canceled = "canceled",
    }
}

impl TurnStatus {
    /// A terminal turn never changes again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}
