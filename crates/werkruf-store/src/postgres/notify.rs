//! The one connection that listens and knocks, beside the pool and outside every transaction.
//!
//! A knock says only that there is something new. Many at once become one, twenty a second at most. A connection that is lost is made
//! again for ever; whoever listens is told then, because knocks may have been missed.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use werkruf_contract::Clock;

/// Between two knocks.
const PAUSE: Duration = Duration::from_millis(50);
/// Before the first and every later try to connect again.
const BACK_SOON: Duration = Duration::from_millis(100);
const BACK_LATE: Duration = Duration::from_secs(5);

pub(super) struct Door {
    wished: Arc<Notify>,
    heard: Arc<Notify>,
    /// Ends with the store.
    _task: JoinSet<()>,
}

impl Door {
    pub(super) fn open(driver: Config, tls: Option<rustls::ClientConfig>, schema: &str, clock: &Clock) -> Self {
        let (wished, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let keeper = Keeper {
            driver,
            channel: format!("werkruf_{schema}"),
            wished: Arc::clone(&wished),
            heard: Arc::clone(&heard),
            clock: clock.clone(),
        };
        let mut task = JoinSet::new();
        match tls {
            Some(tls) => task.spawn(async move { keeper.keep(MakeRustlsConnect::new(tls)).await }),
            None => task.spawn(async move { keeper.keep(NoTls).await }),
        };
        Self { wished, heard, _task: task }
    }

    pub(super) fn notify(&self) {
        self.wished.notify_one();
    }

    pub(super) async fn notified(&self) {
        self.heard.notified().await;
    }
}

struct Keeper {
    driver: Config,
    channel: String,
    wished: Arc<Notify>,
    heard: Arc<Notify>,
    clock: Clock,
}

impl Keeper {
    async fn keep<T>(self, tls: T)
    where
        T: MakeTlsConnect<Socket> + Clone,
        T::Stream: Send,
    {
        let mut pause = BACK_SOON;
        loop {
            if let Ok((client, connection)) = self.driver.connect(tls.clone()).await {
                let own = AtomicI32::new(0);
                tokio::select! {
                    () = self.listen(connection, &own) => {}
                    _ = self.speak(&client, &own) => {}
                }
                if own.into_inner() != 0 {
                    pause = BACK_SOON;
                }
                tracing::debug!("the connection that listens to other processes is gone");
            }
            tokio::time::sleep(pause.mul_f64(0.5 + self.clock.chance() / 2.0)).await;
            pause = (pause * 2).min(BACK_LATE);
        }
    }

    /// Until the connection ends. It must be polled for the other half to get anywhere.
    async fn listen<S, T>(&self, mut connection: Connection<S, T>, own: &AtomicI32)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        T: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && notification.process_id() != own.load(Ordering::Relaxed)
            {
                self.hear();
            }
        }
    }

    async fn speak(&self, client: &Client, own: &AtomicI32) -> Result<(), tokio_postgres::Error> {
        let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await?;
        own.store(rows.first().map_or(Ok(0), |row| row.try_get(0))?, Ordering::Relaxed);
        client.batch_execute(&format!("LISTEN {}", self.channel)).await?;
        self.hear();
        loop {
            self.wished.notified().await;
            client.batch_execute(&format!("NOTIFY {}", self.channel)).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Wakes whoever waits now, and whoever was busy and waits next.
    fn hear(&self) {
        self.heard.notify_waiters();
        self.heard.notify_one();
    }
}
