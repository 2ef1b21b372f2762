//! LISTEN and NOTIFY over one connection, beside the pool and outside every transaction.
//!
//! A notification says only that something has changed. Many at once become one, twenty a second at most. A lost connection is always
//! reopened; waiters are woken then, because notifications may have been missed.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket};
use werkruf_contract::Clock;

use super::tls::Encryption;

/// Between two notifications.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause before the first attempt to reconnect; doubled for each further attempt, up to [`LAST_RECONNECT`].
const FIRST_RECONNECT: Duration = Duration::from_millis(100);
const LAST_RECONNECT: Duration = Duration::from_secs(5);

pub(super) struct Notifier {
    outgoing: Arc<Notify>,
    incoming: Arc<Notify>,
    /// Ends with the store.
    _task: JoinSet<()>,
}

impl Notifier {
    pub(super) fn open(driver: Config, encryption: Option<Encryption>, schema: &str, clock: &Clock) -> Self {
        let (outgoing, incoming) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let connection = NotifyConnection {
            driver,
            channel: format!("werkruf_{schema}"),
            outgoing: Arc::clone(&outgoing),
            incoming: Arc::clone(&incoming),
            clock: clock.clone(),
        };
        let mut task = JoinSet::new();
        match encryption {
            Some(encryption) => task.spawn(async move { connection.run(encryption).await }),
            None => task.spawn(async move { connection.run(NoTls).await }),
        };
        Self { outgoing, incoming, _task: task }
    }

    pub(super) fn notify(&self) {
        self.outgoing.notify_one();
    }

    pub(super) async fn notified(&self) {
        self.incoming.notified().await;
    }
}

struct NotifyConnection {
    driver: Config,
    channel: String,
    outgoing: Arc<Notify>,
    incoming: Arc<Notify>,
    clock: Clock,
}

impl NotifyConnection {
    async fn run<T>(self, tls: T)
    where
        T: MakeTlsConnect<Socket> + Clone,
        T::Stream: Send,
    {
        let mut pause = FIRST_RECONNECT;
        loop {
            if let Ok((client, connection)) = self.driver.connect(tls.clone()).await {
                let own_pid = AtomicI32::new(0);
                tokio::select! {
                    () = self.listen(connection, &own_pid) => {}
                    _ = self.send(&client, &own_pid) => {}
                }
                if own_pid.into_inner() != 0 {
                    pause = FIRST_RECONNECT;
                }
                tracing::debug!("the connection for notifications of other processes was lost");
            }
            tokio::time::sleep(pause.mul_f64(0.5 + self.clock.chance() / 2.0)).await;
            pause = (pause * 2).min(LAST_RECONNECT);
        }
    }

    /// Runs until the connection ends. The connection must be polled here for `send` to make progress.
    async fn listen<S, T>(&self, mut connection: Connection<S, T>, own_pid: &AtomicI32)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        T: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && notification.process_id() != own_pid.load(Ordering::Relaxed)
            {
                self.wake();
            }
        }
    }

    async fn send(&self, client: &Client, own_pid: &AtomicI32) -> Result<(), tokio_postgres::Error> {
        let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await?;
        own_pid.store(rows.first().map_or(Ok(0), |row| row.try_get(0))?, Ordering::Relaxed);
        client.batch_execute(&format!("LISTEN {}", self.channel)).await?;
        self.wake();
        loop {
            self.outgoing.notified().await;
            client.batch_execute(&format!("NOTIFY {}", self.channel)).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Wakes the tasks that wait now, and the next one that waits.
    fn wake(&self) {
        self.incoming.notify_waiters();
        self.incoming.notify_one();
    }
}
