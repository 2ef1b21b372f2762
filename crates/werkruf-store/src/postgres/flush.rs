//! One transaction, sent whole in one flush, and tried again where that is right.
//!
//! Invariants: role, tenant, search path and limits are set inside every transaction and end with it, so no connection has a state
//! (poolers may mix them), and no statement has a name. A transaction whose end was not heard may be committed: whoever cannot do it
//! twice is told on the second try, in its last parameter.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use werkruf_contract::{BoxFuture, Deadline, Uuid};

use super::PostgresStore;
use super::fault::Fault;
use crate::StoreError;

/// A value and the type it is sent as.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whose rows a transaction may see.
#[derive(Debug, Clone, Copy)]
pub(super) enum DbRole {
    /// One tenant's; row-level security holds the rest back.
    Tenant(Uuid),
    /// Everybody's. Only `system.rs` uses it, and what belongs to no tenant.
    System,
}

/// SQL with its values.
pub(super) struct Statement<'a> {
    pub(super) sql: &'a str,
    pub(super) params: &'a [Param<'a>],
}

/// One try among several.
#[derive(Clone, Copy)]
struct Attempt {
    /// Until when to find out, where the end of an earlier try was not heard.
    unheard: Option<Deadline>,
}

impl Attempt {
    /// Whether an earlier try may have been committed.
    const fn again(self) -> bool {
        self.unheard.is_some()
    }
}

/// An answer comes within two seconds while the database is away; this much of them is spent on finding out what happened.
const PATIENCE: Duration = Duration::from_millis(1800);
/// Beyond the statement timeout: whoever has not answered by then never will.
const SILENCE: Duration = Duration::from_secs(12);
/// How often a transaction that lost against another is tried in all.
const TRIES: u32 = 5;

impl PostgresStore {
    /// One statement that may run twice without harm; its rows.
    pub(super) async fn query(&self, scope: DbRole, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let statement = [Statement { sql, params }];
        Ok(self.run(scope, &statement).await?.pop().unwrap_or_default())
    }

    /// Statements that may run twice without harm, in one transaction and one flush; the rows of each.
    pub(super) async fn run(&self, scope: DbRole, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.repeat(|attempt| Box::pin(self.send(attempt, scope, statements))).await
    }

    /// One statement whose last parameter, after these, is whether an earlier try may have been committed.
    pub(super) async fn tell(&self, scope: DbRole, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.repeat(|attempt| {
            Box::pin(async move {
                let mut params = params.to_vec();
                params.push((if attempt.again() { &true } else { &false }, Type::BOOL));
                Ok(self.send(attempt, scope, &[Statement { sql, params: &params }]).await?.pop().unwrap_or_default())
            })
        })
        .await
    }

    /// A transaction that reads before it decides what to write. `work` may run again from the beginning.
    pub(super) async fn with<T: Send>(
        &self,
        scope: DbRole,
        work: impl for<'t> Fn(&'t Transaction) -> BoxFuture<'t, Result<T, Fault>> + Sync,
    ) -> Result<T, StoreError> {
        let work = &work;
        self.repeat(|attempt| {
            Box::pin(async move {
                let mut transaction = Transaction { client: Some(self.acquire_for(attempt).await?) };
                transaction.begin(&self.begin(scope)).await?;
                let done = work(&transaction).await;
                transaction.end(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await.and(done)
            })
        })
        .await
    }

    /// Tries until it is done, it is clear that it will not be, or patience ends.
    async fn repeat<'a, T>(&'a self, work: impl Fn(Attempt) -> BoxFuture<'a, Result<T, Fault>>) -> Result<T, StoreError> {
        let (mut tried, mut attempt) = (0, Attempt { unheard: None });
        loop {
            tried += 1;
            let error = match work(attempt).await {
                Ok(done) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(done);
                }
                Err(Fault::Refused(error)) => return Err(error),
                Err(Fault::Unsent(text)) if !attempt.again() => return Err(StoreError::Unavailable(text)),
                Err(Fault::Unsent(text)) => StoreError::Unavailable(text),
                Err(Fault::Unknown(text)) => {
                    attempt.unheard.get_or_insert_with(|| Deadline::after(PATIENCE));
                    StoreError::Unavailable(text)
                }
                Err(Fault::Again(error)) if tried >= TRIES => return Err(error),
                Err(Fault::Again(error)) => error,
            };
            if attempt.unheard.is_some_and(Deadline::passed) {
                return Err(error);
            }
            tracing::debug!(tried, again = attempt.again(), %error, "a transaction is tried again");
            tokio::time::sleep(Duration::from_millis(10 * u64::from(tried.min(10))).mul_f64(0.5 + self.clock.chance())).await;
        }
    }

    async fn send(&self, attempt: Attempt, scope: DbRole, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        let client = self.acquire_for(attempt).await?;
        let begin = self.begin(scope);
        match timeout(SILENCE, flush(&client, &begin, statements)).await {
            Ok(answered) => answered,
            Err(_) => {
                // Nobody knows what will still come out of it.
                drop(Object::take(client));
                Err(Fault::Unknown("the database has been silent for too long".to_owned()))
            }
        }
    }

    /// A connection that was alive a moment ago, soon or not at all.
    pub(super) async fn acquire(&self) -> Result<Object, Fault> {
        self.acquire_for(Attempt { unheard: None }).await
    }

    async fn acquire_for(&self, attempt: Attempt) -> Result<Object, Fault> {
        let patience = attempt.unheard.map_or(self.options.acquire_timeout, |until| until.left().min(self.options.acquire_timeout));
        match timeout(patience, self.pool.get()).await {
            Ok(got) => Ok(got?),
            Err(_) => Err(Fault::Unsent("no connection became free in time".to_owned())),
        }
    }

    fn begin(&self, scope: DbRole) -> String {
        let (role, tenant) = match scope {
            DbRole::Tenant(id) => ("werkruf_app", id.to_string()),
            DbRole::System => ("werkruf_system", String::new()),
        };
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('role', '{role}', true), set_config('werkruf.tenant', '{tenant}', true), \
             set_config('search_path', '{}, pg_temp', true), set_config('statement_timeout', '10s', true), \
             set_config('lock_timeout', '2s', true), set_config('idle_in_transaction_session_timeout', '5s', true)",
            self.options.schema
        )
    }
}

/// A transaction that is held open. Dropped before its end it takes its connection with it: nobody else may find it inside.
pub(super) struct Transaction {
    client: Option<Object>,
}

impl Transaction {
    fn client(&self) -> Result<&Client, Fault> {
        self.client.as_deref().map(|client| &**client).ok_or_else(|| Fault::Unknown("the transaction is over".to_owned()))
    }

    async fn begin(&mut self, sql: &str) -> Result<(), Fault> {
        Ok(self.client()?.batch_execute(sql).await?)
    }

    /// One statement; its rows.
    pub(super) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        Ok(self.client()?.query_typed(sql, params).await?)
    }

    /// Statements in one flush; the rows of each.
    pub(super) async fn run(&self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        let client = self.client()?;
        let sent = statements.iter().map(|statement| boxed(client.query_typed(statement.sql, statement.params))).collect();
        Ok(in_order(sent).await.into_iter().collect::<Result<_, _>>()?)
    }

    async fn end(mut self, sql: &str) -> Result<(), Fault> {
        self.client()?.batch_execute(sql).await?;
        // Back into the pool.
        drop(self.client.take());
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

type Sent<'a, T> = Pin<Box<dyn Future<Output = Result<T, tokio_postgres::Error>> + Send + 'a>>;

fn boxed<'a, T>(future: impl Future<Output = Result<T, tokio_postgres::Error>> + Send + 'a) -> Sent<'a, T> {
    Box::pin(future)
}

/// `BEGIN`, the statements and `COMMIT` leave together; after a failed statement the database makes a rollback of the commit.
async fn flush(client: &Client, begin: &str, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
    let mut sent = vec![boxed(async { client.batch_execute(begin).await.map(|()| Vec::new()) })];
    sent.extend(statements.iter().map(|statement| boxed(client.query_typed(statement.sql, statement.params))));
    sent.push(boxed(async { client.batch_execute("COMMIT").await.map(|()| Vec::new()) }));
    let mut answers = Vec::with_capacity(sent.len());
    // The first error is the cause of those after it.
    for answer in in_order(sent).await {
        answers.push(answer?);
    }
    answers.pop();
    answers.remove(0);
    Ok(answers)
}

/// Polls them in this order, which is the order they are sent in, until all are answered.
async fn in_order<T: Send>(mut sent: Vec<Sent<'_, T>>) -> Vec<Result<T, tokio_postgres::Error>> {
    let mut answers: Vec<Option<Result<T, tokio_postgres::Error>>> = sent.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut waits = false;
        for (future, answer) in sent.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(answered) => *answer = Some(answered),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}
