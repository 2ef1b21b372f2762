//! The kinds and states of calls, turns and approvals, spelled as in the tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have the same spelling in JSON and in the tables.
macro_rules! string_enum {
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
pub(crate) use string_enum;

string_enum! {
    /// What a tool's call changes outside the server. Retry, recovery and result reuse depend on it.
    Effect {
        /// Changes nothing; may be repeated any number of times.
        Read = "read",
        /// Repeatable with the same idempotency key.
        Idempotent = "idempotent",
        /// Never repeated by the server: at most one request is sent per call.
        Once = "once",
    }
}

string_enum! {
    /// The states of a tool call (seed 000 section 3.2).
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

string_enum! {
    /// The type of a call.
    CallKind {
        Function = "function",
        Mcp = "mcp",
        WebSearch = "web_search",
        Custom = "custom",
    }
}

string_enum! {
    /// Who runs a call.
    Runner {
        /// This server runs its own tool.
        Server = "server",
        /// The model provider runs the call itself.
        Provider = "provider",
        /// The API client runs its own tool and sends the result back.
        Client = "client",
    }
}

string_enum! {
    /// The states of a turn.
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

string_enum! {
    /// The states of an approval request.
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
