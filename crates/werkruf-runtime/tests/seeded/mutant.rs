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
    /// A wish counts as granted as soon as it is made.
    WordPresumed,
    /// A decision may be changed.
    DecidedTwice,
    /// A decision counts although its time had run out.
    DecidedLate,
    /// The real result does not take the place of its placeholder.
    PlaceholderStays,
    /// A wish outlives its turn.
    WishStays,
    /// Nobody hears that a word is needed.
    AskedInSilence,
    /// A turn that waits for a word keeps the conversation.
    WaitingHolds,
    /// A turn that waited goes on while another is open.
    WaitingPushesIn,
    /// Decisions wake nobody but those who happen to be there.
    WordUnseen,
    /// A tool acts without looking at what was decided.
    WordIgnored,
    /// The message of a turn that was canceled in its lane never gets its place.
    CanceledUnplaced,
    /// Text that was taken back is kept.
    TextOutlives,
    /// Leases are said to be renewed and are not.
    RenewalForgotten,
    /// Processes believe that a lease lasts longer than it does, and stop too late.
    LeaseThoughtLonger,
    /// The newest event of a stream is not seen from outside.
    LastUnseen,
    /// Of two calls that are the same each is told that it goes first.
    EveryoneLeads,
}

impl Mutant {
    /// Shows only where several processes share a database.
    pub const fn is_between_processes(self) -> bool {
        matches!(self, Self::RenewalForgotten | Self::LeaseThoughtLonger | Self::LastUnseen | Self::EveryoneLeads)
    }

    pub const ALL: [Self; 28] = [
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
        Self::WordPresumed,
        Self::DecidedTwice,
        Self::DecidedLate,
        Self::PlaceholderStays,
        Self::WishStays,
        Self::AskedInSilence,
        Self::WaitingHolds,
        Self::WaitingPushesIn,
        Self::WordUnseen,
        Self::WordIgnored,
        Self::CanceledUnplaced,
        Self::TextOutlives,
        Self::RenewalForgotten,
        Self::LeaseThoughtLonger,
        Self::LastUnseen,
        Self::EveryoneLeads,
    ];
}
