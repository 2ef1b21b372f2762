//! The budgets of all tenants, in memory.
//!
//! A process that knows an older version than the database learns it at commit A, which then stores nothing. Where several processes share the
//! database, the book is also read again every second.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use tokio::sync::Mutex;
use werkruf_contract::Uuid;
use werkruf_store::{Budget, BudgetScope, BudgetUnit, Budgets, StoreError, TenantBudgets};

use super::matching::{Applicable, Spender};

/// The budgets as this process knows them.
#[derive(Default)]
pub struct BudgetBook {
    /// `None` where there are no budgets at all.
    store: Option<Arc<dyn Budgets>>,
    by_tenant: RwLock<HashMap<Uuid, Arc<TenantBudgets>>>,
    /// Held while the budgets are read, so that requests that wait for them read them once.
    reading: Mutex<()>,
}

impl BudgetBook {
    /// An empty book; [`Self::refresh`] fills it.
    pub fn new(store: Arc<dyn Budgets>) -> Self {
        Self { store: Some(store), ..Self::default() }
    }

    /// Reads all budgets again.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        self.read().await
    }

    /// Reads all budgets again, unless the version of this tenant has changed since.
    pub(crate) async fn refresh_from(&self, tenant_id: Uuid, known: i64) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        if self.version(tenant_id) == known { self.read().await } else { Ok(()) }
    }

    async fn read(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let read = store.all_budgets().await?;
        let budgets = read.into_iter().map(|tenant| (tenant.tenant_id, Arc::new(tenant))).collect();
        *self.by_tenant.write().unwrap_or_else(PoisonError::into_inner) = budgets;
        Ok(())
    }

    fn of(&self, tenant_id: Uuid) -> Option<Arc<TenantBudgets>> {
        self.by_tenant.read().unwrap_or_else(PoisonError::into_inner).get(&tenant_id).cloned()
    }

    /// The version of the tenant's budgets; 0 where it never had any.
    pub(crate) fn version(&self, tenant_id: Uuid) -> i64 {
        self.of(tenant_id).map_or(0, |known| known.version)
    }

    /// Whether the tenant has a budget.
    pub(crate) fn has_any(&self, tenant_id: Uuid) -> bool {
        self.of(tenant_id).is_some_and(|known| !known.budgets.is_empty())
    }

    /// Whether the assistant of a request must be known: a budget counts by assistant, or counts what its prompt has.
    pub(crate) fn needs_assistant(&self, tenant_id: Uuid) -> bool {
        let needs = |budget: &Budget| budget.scope == BudgetScope::Assistant || budget.unit != BudgetUnit::ModelCalls;
        self.of(tenant_id).is_some_and(|known| known.budgets.iter().any(needs))
    }

    /// The budgets that count a request; `None` where none does.
    pub(crate) fn applicable(&self, spender: &Spender) -> Option<Applicable> {
        let known = self.of(spender.tenant_id).filter(|known| !known.budgets.is_empty())?;
        Applicable::among(&known.budgets, spender)
    }

    /// Releases what was reserved for requests that ended unseen. Without budgets nothing is reserved.
    pub(crate) async fn release_expired(&self, now: Timestamp) -> Result<(), StoreError> {
        let has_any = self.by_tenant.read().unwrap_or_else(PoisonError::into_inner).values().any(|known| !known.budgets.is_empty());
        let Some(store) = self.store.as_ref().filter(|_| has_any) else { return Ok(()) };
        let released = store.release_expired(now).await?;
        if released > 0 {
            tracing::warn!(released, "reservations of model requests expired and were released");
        }
        Ok(())
    }

    /// Where reservations are made that no commit of a turn makes. Only a book with a store has budgets.
    pub(crate) fn store(&self) -> Result<&dyn Budgets, StoreError> {
        self.store.as_deref().ok_or_else(|| StoreError::Broken("budgets have no store".to_owned()))
    }
}
