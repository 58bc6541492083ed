//! Fair shares: tokens served a tenant.
//!
//! A tenant is remembered while it has requests, and after that up to a bound: those served least are forgotten first, for
//! whoever comes (back) starts at the floor anyway.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::TENANTS_IDLE_MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    served_tokens: u64,
    /// Requests waiting, running or leaving.
    requests: usize,
}

/// Tokens served, a tenant.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    tenants: BTreeMap<u64, Tenant>,
    /// (served, tenant) of those without requests.
    idle: BTreeSet<(u64, u64)>,
    /// What the tenant admitted last had been served: where newcomers start.
    floor: u64,
}

impl Tenants {
    /// A request arrives.
    pub(super) fn enter(&mut self, tenant: u64) {
        let entry = self.tenants.entry(tenant).or_default();
        if entry.requests == 0 {
            self.idle.remove(&(entry.served_tokens, tenant));
            entry.served_tokens = entry.served_tokens.max(self.floor);
        }
        entry.requests += 1;
    }

    /// A request ends.
    pub(super) fn leave(&mut self, tenant: u64) {
        let entry = self.tenants.get_mut(&tenant).expect("a tenant with a request is known");
        entry.requests -= 1;
        if entry.requests > 0 {
            return;
        }
        self.idle.insert((entry.served_tokens, tenant));
        if self.idle.len() > TENANTS_IDLE_MAX
            && let Some((_, forgotten)) = self.idle.pop_first()
        {
            self.tenants.remove(&forgotten);
        }
    }

    /// Tokens served; never less than before while a request of the tenant is there.
    pub(super) fn served(&self, tenant: u64) -> u64 {
        self.tenants.get(&tenant).map_or(self.floor, |entry| entry.served_tokens)
    }

    /// `tokens` more.
    pub(super) fn charge(&mut self, tenant: u64, tokens: u32) {
        let entry = self.tenants.get_mut(&tenant).expect("a tenant with a request is known");
        entry.served_tokens += u64::from(tokens);
    }

    /// A request of `tenant`, the least served one that waits, is admitted.
    pub(super) fn admitted(&mut self, tenant: u64) {
        self.floor = self.floor.max(self.served(tenant));
    }

    /// Requests of all tenants.
    pub(super) fn requests(&self) -> usize {
        self.tenants.values().map(|tenant| tenant.requests).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idling_earns_no_credit_and_loses_no_debt() {
        let mut tenants = Tenants::default();
        tenants.enter(1);
        tenants.charge(1, 100);
        tenants.admitted(1);
        tenants.enter(2);
        assert_eq!(tenants.served(2), 100, "a newcomer starts at the floor");
        tenants.charge(2, 50);
        tenants.leave(2);
        tenants.enter(2);
        assert_eq!(tenants.served(2), 150);
        assert_eq!(tenants.requests(), 2);
    }

    #[test]
    fn idle_tenants_are_bounded() {
        let mut tenants = Tenants::default();
        for tenant in 0..TENANTS_IDLE_MAX as u64 + 10 {
            tenants.enter(tenant);
            tenants.leave(tenant);
        }
        assert_eq!((tenants.tenants.len(), tenants.idle.len()), (TENANTS_IDLE_MAX, TENANTS_IDLE_MAX));
    }
}
