//! Deliberate mistakes, for tests only: the fault simulator must catch each of them. Outside tests none can be switched on.

/// A mistake that pages, cache or scheduler can be told to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A cache hit does not count as a holder of the page.
    HitUnheld,
    /// A cancelled request keeps its last page for ever.
    LeakOnCancel,
    /// Pages enter the cache when their step is planned, not when it is applied.
    SealUnwritten,
    /// The cache looks at the low byte of each id.
    LowByteIds,
    /// A request that ends gives its pages back while a step still writes them.
    FreeInFlight,
    /// A full hit takes the last page too and writes its last token into it.
    WriteShared,
    /// A failed step's requests are forgotten instead of queued again.
    LoseOnFail,
}

#[cfg(test)]
impl Mutant {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::HitUnheld,
        Self::LeakOnCancel,
        Self::SealUnwritten,
        Self::LowByteIds,
        Self::FreeInFlight,
        Self::WriteShared,
        Self::LoseOnFail,
    ];
}
