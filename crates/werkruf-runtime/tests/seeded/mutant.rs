//! Deliberate defects of the store, the model and the tools. The audit must find each of them; a check that cannot fail proves nothing.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// Writes of a turn are accepted without checking the lease.
    FenceUnchecked,
    /// The same idempotency key creates a second turn.
    InboxIgnored,
    /// Calls are sent, but their start is not recorded.
    StartUnrecorded,
    /// The first event of a write is lost.
    EventLost,
    /// Results never reach the conversation.
    ResultLost,
    /// Usage rows are not stored.
    UsageLost,
    /// Some writes are acknowledged and not stored.
    WriteDropped,
    /// The request of a tool is sent twice.
    SentTwice,
    /// A tool draws a new key for each attempt.
    KeyRedrawn,
    /// A turn starts although an earlier one of the conversation is open.
    OpenTurnIgnored,
    /// Some messages are acknowledged and not stored.
    MessageDropped,
    /// A response that was cut off counts as complete.
    CutAccepted,
    /// An approval counts as given as soon as it is requested.
    ApprovalPresumed,
    /// A decision may be changed.
    DecidedTwice,
    /// A decision counts although the approval had expired.
    DecidedLate,
    /// The result does not replace its placeholder.
    PlaceholderStays,
    /// An approval stays pending after the end of its turn.
    ApprovalNotWithdrawn,
    /// The event that requests an approval is lost.
    ApprovalNotAnnounced,
    /// A turn that awaits approval keeps the lease.
    WaitingKeepsLease,
    /// A turn that awaited approval resumes while another one is open.
    WaitingResumesEarly,
    /// The recovery scan does not find decided turns.
    DecisionNotFound,
    /// Every decision counts as an approval.
    DecisionIgnored,
    /// The message of a turn that was canceled in the queue never gets its number.
    CanceledUnnumbered,
    /// A partial text is stored although its step or lease has ended.
    StaleTextStored,
    /// Leases are reported as renewed and are not.
    RenewalSkipped,
    /// Processes assume that a lease lasts longer than it does, and stop too late.
    LeaseAssumedLonger,
    /// The newest event of a stream is hidden from other processes.
    LastEventHidden,
    /// Each of two identical calls becomes the leader.
    EveryoneLeads,
    /// A process that takes a turn over does not learn what its channel said.
    InboundForgotten,
    /// The provider receives every approval of its calls twice.
    ApprovalRepeated,
}

impl Mutant {
    /// Whether the defect has an effect only if several processes share a database.
    pub const fn is_between_processes(self) -> bool {
        matches!(self, Self::RenewalSkipped | Self::LeaseAssumedLonger | Self::LastEventHidden | Self::EveryoneLeads)
    }

    pub const ALL: [Self; 30] = [
        Self::FenceUnchecked,
        Self::InboxIgnored,
        Self::StartUnrecorded,
        Self::EventLost,
        Self::ResultLost,
        Self::UsageLost,
        Self::WriteDropped,
        Self::SentTwice,
        Self::KeyRedrawn,
        Self::OpenTurnIgnored,
        Self::MessageDropped,
        Self::CutAccepted,
        Self::ApprovalPresumed,
        Self::DecidedTwice,
        Self::DecidedLate,
        Self::PlaceholderStays,
        Self::ApprovalNotWithdrawn,
        Self::ApprovalNotAnnounced,
        Self::WaitingKeepsLease,
        Self::WaitingResumesEarly,
        Self::DecisionNotFound,
        Self::DecisionIgnored,
        Self::CanceledUnnumbered,
        Self::StaleTextStored,
        Self::RenewalSkipped,
        Self::LeaseAssumedLonger,
        Self::LastEventHidden,
        Self::EveryoneLeads,
        Self::InboundForgotten,
        Self::ApprovalRepeated,
    ];
}
