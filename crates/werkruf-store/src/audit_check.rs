//! Checks a chain of the audit log: every entry, the order, the end, and which entries an erasure blanked.

use std::collections::BTreeSet;

use serde::Serialize;
use werkruf_contract::Uuid;

use crate::{AuditHead, AuditLog, AuditRow, SecretKeys, StoreError};

/// Where a chain breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditBreak {
    /// `changed`, `missing`, `cut_off` or `head`.
    pub kind: &'static str,
    /// The entry.
    pub seq: i64,
    pub message: String,
}

/// The result of a check of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReport {
    pub tenant_id: Uuid,
    /// Entries that were checked.
    pub entries: i64,
    pub hash: String,
    /// Whether the head is signed.
    pub signed: bool,
    /// Entries whose values an erasure blanked.
    pub blanked: u64,
    /// The first break; `None` for an intact chain.
    pub found: Option<AuditBreak>,
}

const PAGE: u32 = 500;

/// Checks a chain, also while acts are added to it.
pub async fn verify_chain<A: AuditLog + ?Sized>(store: &A, tenant_id: Uuid) -> Result<AuditReport, StoreError> {
    let (keys, mut check) = (store.secret_keys(), Check::default());
    let mut head = store.audit_head(tenant_id).await?;
    let found = loop {
        let broken = check.read_to(store, tenant_id, head.as_ref(), &keys).await?;
        if broken.is_some() {
            break broken;
        }
        let beyond = store.audit_entries(tenant_id, check.seq, 1).await?;
        let again = store.audit_head(tenant_id).await?;
        if again == head {
            let at = |row: &AuditRow| fault("head", row.seq, "there are entries after the head of the chain: the head was rewritten");
            break beyond.first().map(at).or_else(|| check.unexplained());
        }
        head = again;
    };
    Ok(AuditReport {
        tenant_id,
        entries: check.seq,
        hash: check.hash,
        signed: head.is_some_and(|head| head.signature.is_some()),
        blanked: check.blanked,
        found,
    })
}

fn fault(kind: &'static str, seq: i64, message: impl Into<String>) -> AuditBreak {
    AuditBreak { kind, seq, message: message.into() }
}

/// A check so far.
#[derive(Default)]
struct Check {
    seq: i64,
    hash: String,
    blanked: u64,
    /// Blank entries that no erasure has named yet.
    unexplained: BTreeSet<i64>,
}

impl Check {
    /// Checks the entries up to the head, and then the head.
    async fn read_to<A: AuditLog + ?Sized>(
        &mut self,
        store: &A,
        tenant_id: Uuid,
        head: Option<&AuditHead>,
        keys: &SecretKeys,
    ) -> Result<Option<AuditBreak>, StoreError> {
        let Some(head) = head else { return Ok(None) };
        while self.seq < head.seq {
            let rows = store.audit_entries(tenant_id, self.seq, PAGE).await?;
            if rows.is_empty() {
                let message = format!("the chain is cut off: its head names entry {}, and the last entry is {}", head.seq, self.seq);
                return Ok(Some(fault("cut_off", self.seq + 1, message)));
            }
            for row in rows.iter().take_while(|row| row.seq <= head.seq) {
                if let Some(broken) = self.entry(row) {
                    return Ok(Some(broken));
                }
            }
            if rows.last().is_some_and(|row| row.seq > head.seq) && self.seq < head.seq {
                return Ok(Some(missing(self.seq + 1)));
            }
        }
        if (head.seq, &head.hash, head.count) != (self.seq, &self.hash, self.seq) {
            return Ok(Some(fault("head", head.seq, "the head of the chain does not fit its last entry: one of the two was changed")));
        }
        Ok(head.signature_fault(keys).map(|why| fault("head", head.seq, format!("the chain cannot be trusted: {why}"))))
    }

    fn entry(&mut self, row: &AuditRow) -> Option<AuditBreak> {
        if row.seq != self.seq + 1 {
            return Some(missing(self.seq + 1));
        }
        let changed = |what: &str| Some(fault("changed", row.seq, format!("entry {} was changed: {what}", row.seq)));
        if row.hash_after(&self.hash) != row.hash {
            return changed("its hash does not fit its content and the entry before it");
        }
        if row.is_blank() {
            self.blanked += 1;
            self.unexplained.insert(row.seq);
        } else if row.digest(row.before.as_ref()) != row.before_digest || row.digest(row.after.as_ref()) != row.after_digest {
            return changed("its values do not fit their digests");
        }
        for seq in row.blanked() {
            self.unexplained.remove(&seq);
        }
        self.seq = row.seq;
        self.hash = row.hash.clone();
        None
    }

    fn unexplained(&self) -> Option<AuditBreak> {
        let seq = *self.unexplained.first()?;
        Some(fault("changed", seq, format!("entry {seq} was changed: its values are gone, and no erasure names it")))
    }
}

fn missing(seq: i64) -> AuditBreak {
    fault("missing", seq, format!("entry {seq} is missing"))
}
