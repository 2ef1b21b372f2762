//! Defects put in on purpose: a check that never fails checks nothing, so each of these must be found.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// Writes of a turn are taken whoever owns the conversation.
    FenceUnchecked,
    /// The same key makes a second turn.
    InboxForgets,
    /// Calls are sent, but the row does not say that they began.
    StartUnrecorded,
    /// The first event of a write goes missing.
    EventLost,
    /// Results never reach the conversation.
    ResultLost,
    /// Bills are not kept.
    BillLost,
    /// A write is acknowledged and forgotten, now and then.
    WriteForgotten,
    /// A tool's request goes out twice.
    SentTwice,
    /// A tool draws a new key for each attempt.
    KeyRedrawn,
    /// A turn begins although an earlier one of the conversation is open.
    OpenTurnIgnored,
    /// A message is acknowledged and forgotten, now and then.
    MessageForgotten,
    /// An answer that was cut off is said to be whole.
    CutTaken,
}

impl Mutant {
    pub const ALL: [Self; 12] = [
        Self::FenceUnchecked,
        Self::InboxForgets,
        Self::StartUnrecorded,
        Self::EventLost,
        Self::ResultLost,
        Self::BillLost,
        Self::WriteForgotten,
        Self::SentTwice,
        Self::KeyRedrawn,
        Self::OpenTurnIgnored,
        Self::MessageForgotten,
        Self::CutTaken,
    ];
}
