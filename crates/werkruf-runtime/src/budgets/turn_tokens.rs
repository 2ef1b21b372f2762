//! The tokens that a request allows itself (`X-Budget-Tokens`): of the turn's own model requests and of those of its tools.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::refusal::BudgetRefusal;

/// The tokens of one turn.
#[derive(Debug, Default)]
pub(crate) struct TurnTokens {
    /// `None`: not limited.
    limit: Option<i64>,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    used: i64,
    /// The worst cases of the requests in progress.
    reserved: i64,
}

impl TurnTokens {
    pub(crate) fn new(limit: Option<i64>) -> Self {
        Self { limit, counted: Mutex::default() }
    }

    pub(crate) const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// What is left; `None`: not limited.
    pub(crate) fn room(&self) -> Option<i64> {
        let Counted { used, reserved } = *self.lock();
        self.limit.map(|limit| limit.saturating_sub(used).saturating_sub(reserved))
    }

    /// Continues the count of an earlier process.
    pub(crate) fn continue_from(&self, used: i64) {
        self.lock().used = used;
    }

    /// Reserves the worst case of a request.
    pub(crate) fn reserve(&self, tokens: i64) -> Result<(), BudgetRefusal> {
        let Some(limit) = self.limit else { return Ok(()) };
        let mut counted = self.lock();
        if counted.used.saturating_add(counted.reserved).saturating_add(tokens) > limit {
            return Err(BudgetRefusal::RequestTokens { limit, used: counted.used });
        }
        counted.reserved += tokens;
        Ok(())
    }

    /// A request ended: it used this much of what was reserved for it.
    pub(crate) fn settle(&self, reserved: i64, used: i64) {
        if self.is_limited() {
            let mut counted = self.lock();
            counted.reserved = counted.reserved.saturating_sub(reserved);
            counted.used = counted.used.saturating_add(used);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_progress_count_by_their_worst_case_and_ended_ones_by_what_they_used() {
        let tokens = TurnTokens::new(Some(100));
        tokens.reserve(60).unwrap();
        assert_eq!(tokens.reserve(41), Err(BudgetRefusal::RequestTokens { limit: 100, used: 0 }));
        tokens.settle(60, 10);
        tokens.reserve(90).unwrap();
        tokens.settle(90, 90);
        assert_eq!(tokens.reserve(1), Err(BudgetRefusal::RequestTokens { limit: 100, used: 100 }));
        tokens.reserve(0).unwrap();
        assert_eq!(TurnTokens::new(None).reserve(i64::MAX), Ok(()));
    }
}
