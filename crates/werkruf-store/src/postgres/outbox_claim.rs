//! Which rows of the outbox are due, and who takes them, by the clock of the database: the clocks of the processes may differ.

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::{OUTBOX, all, outbox};
use super::text::clean;
use crate::outbox::{MAX_AGE, MAX_ATTEMPTS};
use crate::{ATTEMPTS_EXHAUSTED, Account, Claim, Claimed, DueAccount, OUTCOME_UNKNOWN, OutboxRow, StoreError};

impl PostgresStore {
    /// What this process takes for the time, without the offset that an operator set on purpose.
    pub(super) fn system_time(&self) -> Timestamp {
        let now = self.clock().now();
        ms(now.checked_sub(self.clock().offset()).unwrap_or(now))
    }

    /// Over all tenants, and therefore as `werkruf_system`; what it returns goes to the process, never to a client.
    pub(super) async fn claim_rows(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let sql = format!("SELECT {OUTBOX} FROM claim_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9, make_interval(secs => $10), $11)");
        let (owner, channel, account) = (clean(&claim.owner), clean(&claim.account.channel), clean(&claim.account.account));
        let (now, until, clock) = (ms(claim.now), ms(claim.until), self.system_time());
        let (limit, attempts, age) = (i64::from(claim.limit), i64::from(MAX_ATTEMPTS), MAX_AGE.as_secs_f64());
        let values = [
            p(&owner),
            p(&channel),
            p(&account),
            p(&now),
            p(&until),
            p(&clock),
            (&claim.being_sent as _, Type::UUID_ARRAY),
            p(&limit),
            p(&attempts),
            (&age as _, Type::FLOAT8),
        ];
        let rows = all(&self.query_once(DbRole::System, &sql, &values).await?, outbox)?;
        let claimed = |row: OutboxRow| match row.error_code.as_deref() {
            None => Ok(Claimed::Send(row)),
            Some(OUTCOME_UNKNOWN) => Ok(Claimed::GiveUp { row, code: OUTCOME_UNKNOWN }),
            Some(ATTEMPTS_EXHAUSTED) => Ok(Claimed::GiveUp { row, code: ATTEMPTS_EXHAUSTED }),
            Some(other) => Err(StoreError::Broken(format!("claim_outbox returned {other}"))),
        };
        rows.into_iter().map(claimed).collect()
    }

    pub(super) async fn due_accounts(&self) -> Result<Vec<DueAccount>, StoreError> {
        // As the clock of this process shows it.
        let sql = "SELECT channel, account, min(next_at) - clock_difference($1) FROM outbox_lanes GROUP BY channel, account ORDER BY 3";
        let clock = self.system_time();
        all(&self.query(DbRole::System, sql, &[p(&clock)]).await?, |columns| {
            Ok(DueAccount { account: Account { channel: columns.text()?, account: columns.text()? }, at: columns.time()? })
        })
    }
}
