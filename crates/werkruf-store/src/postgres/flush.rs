//! One transaction, sent whole in one flush, and retried where that is safe.
//!
//! Invariants: role, tenant, search path and limits are set inside every transaction and end with it, so a connection has no state
//! (poolers may mix connections), and no statement has a name. A transaction whose answer was lost may have been committed: a statement
//! that must not run twice gets that as its last parameter in the next attempt.

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
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whose rows a transaction may see.
#[derive(Debug, Clone, Copy)]
pub enum DbRole {
    /// One tenant's; row-level security hides the rest.
    Tenant(Uuid),
    /// Those of every tenant. For work over all tenants, and for rows that belong to no tenant.
    System,
}

/// SQL with its values.
pub struct Statement<'a> {
    pub sql: &'a str,
    pub params: &'a [Param<'a>],
}

/// One attempt among several.
#[derive(Clone, Copy)]
struct Attempt {
    /// Set once the answer of an earlier attempt was lost: until when to find out whether it was committed.
    lost_answer: Option<Deadline>,
}

impl Attempt {
    /// Whether an earlier attempt may have been committed.
    const fn is_retry(self) -> bool {
        self.lost_answer.is_some()
    }
}

/// While the database is away an operation ends within two seconds; this much of them is spent on finding out what was committed.
const PATIENCE: Duration = Duration::from_millis(1800);
/// Longer than the statement timeout: a database that has not answered by then never will.
const SILENCE: Duration = Duration::from_secs(12);
/// Attempts at a transaction that the database rolls back in favour of another.
const ATTEMPTS: u32 = 5;

impl PostgresStore {
    /// One statement that may run twice without harm; its rows.
    pub async fn query(&self, scope: DbRole, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let statement = [Statement { sql, params }];
        Ok(self.run(scope, &statement).await?.pop().unwrap_or_default())
    }

    /// Statements that may run twice without harm, in one transaction and one flush; the rows of each.
    pub async fn run(&self, scope: DbRole, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.repeat(|attempt| Box::pin(self.send(attempt, scope, statements))).await
    }

    /// One statement that must not run twice. Its last parameter, after these, is whether an earlier attempt may have been committed.
    pub async fn query_once(&self, scope: DbRole, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.repeat(|attempt| {
            Box::pin(async move {
                let mut params = params.to_vec();
                params.push((if attempt.is_retry() { &true } else { &false }, Type::BOOL));
                Ok(self.send(attempt, scope, &[Statement { sql, params: &params }]).await?.pop().unwrap_or_default())
            })
        })
        .await
    }

    /// A transaction that reads before it decides what to write. `work` may run again from the beginning.
    pub async fn with<T: Send>(
        &self,
        scope: DbRole,
        work: impl for<'t> Fn(&'t Transaction) -> BoxFuture<'t, Result<T, Fault>> + Sync,
    ) -> Result<T, StoreError> {
        let work = &work;
        self.repeat(|attempt| {
            Box::pin(async move {
                let transaction = self.in_transaction(attempt, scope).await?;
                let done = work(&transaction).await;
                transaction.end(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await.and(done)
            })
        })
        .await
    }

    /// A connection with a begun transaction. Apart from `with`, so that the program has this code once and not for every kind of work.
    async fn in_transaction(&self, attempt: Attempt, scope: DbRole) -> Result<Transaction, Fault> {
        let mut transaction = Transaction { client: Some(self.acquire_for(attempt).await?), is_retry: attempt.is_retry() };
        transaction.begin(&self.begin(scope)).await?;
        Ok(transaction)
    }

    /// Retries until the work is done, has failed for good, or time is up.
    async fn repeat<'a, T>(&'a self, work: impl Fn(Attempt) -> BoxFuture<'a, Result<T, Fault>>) -> Result<T, StoreError> {
        let (mut tried, mut attempt) = (0, Attempt { lost_answer: None });
        loop {
            tried += 1;
            match work(attempt).await {
                Ok(done) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(done);
                }
                Err(fault) => self.wait_after(fault, tried, &mut attempt).await?,
            }
        }
    }

    /// Waits for the next attempt, or returns the error where there is none.
    async fn wait_after(&self, fault: Fault, tried: u32, attempt: &mut Attempt) -> Result<(), StoreError> {
        let error = match fault {
            Fault::Refused(error) => return Err(error),
            Fault::Unsent(text) if !attempt.is_retry() => return Err(StoreError::Unavailable(text)),
            Fault::Unsent(text) => StoreError::Unavailable(text),
            Fault::Unknown(text) => {
                attempt.lost_answer.get_or_insert_with(|| Deadline::after(PATIENCE));
                StoreError::Unavailable(text)
            }
            Fault::Conflict(error) if tried >= ATTEMPTS => return Err(error),
            Fault::Conflict(error) => error,
        };
        if attempt.lost_answer.is_some_and(Deadline::passed) {
            return Err(error);
        }
        tracing::debug!(tried, is_retry = attempt.is_retry(), %error, "a transaction is tried again");
        tokio::time::sleep(Duration::from_millis(10 * u64::from(tried.min(10))).mul_f64(0.5 + self.clock.chance())).await;
        Ok(())
    }

    async fn send(&self, attempt: Attempt, scope: DbRole, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        let client = self.acquire_for(attempt).await?;
        let begin = self.begin(scope);
        match timeout(SILENCE, flush(&client, &begin, statements)).await {
            Ok(answered) => answered,
            Err(_) => {
                // The transaction may still be committed; the connection cannot be used again.
                drop(Object::take(client));
                Err(Fault::Unknown("the database has been silent for too long".to_owned()))
            }
        }
    }

    /// A connection of the pool, or an error within the acquire timeout.
    pub(super) async fn acquire(&self) -> Result<Object, Fault> {
        self.acquire_for(Attempt { lost_answer: None }).await
    }

    async fn acquire_for(&self, attempt: Attempt) -> Result<Object, Fault> {
        let patience = attempt.lost_answer.map_or(self.options.acquire_timeout, |until| until.left().min(self.options.acquire_timeout));
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

/// An open transaction. Dropped before its end it closes its connection, so that no other operation gets a connection inside a
/// transaction.
pub struct Transaction {
    client: Option<Object>,
    is_retry: bool,
}

impl Transaction {
    fn client(&self) -> Result<&Client, Fault> {
        self.client.as_deref().map(|client| &**client).ok_or_else(|| Fault::Unknown("the transaction is over".to_owned()))
    }

    /// Whether an earlier attempt may have been committed.
    pub(super) const fn is_retry(&self) -> bool {
        self.is_retry
    }

    async fn begin(&mut self, sql: &str) -> Result<(), Fault> {
        Ok(self.client()?.batch_execute(sql).await?)
    }

    /// One statement; its rows.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        Ok(self.client()?.query_typed(sql, params).await?)
    }

    /// Statements in one flush; the rows of each.
    pub async fn run(&self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
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

/// `BEGIN`, the statements and `COMMIT` are sent together; after a failed statement the database turns the commit into a rollback.
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

/// Polls the futures in this order, which is the order in which they are sent, until all are ready.
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
