//! Crash points: named places where a test aborts the process as `kill -9` would, without destructors, flushes or responses.
//!
//! `WERKRUF_CRASH="name:nth"` aborts the process when the named point is reached for the nth time; with `name:nth:ms` the
//! other threads run for that long first. Without the feature `crash-points`, which no release has, a point does nothing.
//! `tests/chaos` reads the names from the sources and refuses to run when a point has no test.

/// A point at which a test may abort the process.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub const fn point(_name: &str) {}

/// A point at which a test may abort the process.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(Armed::read);
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let Some(armed) = ARMED.as_ref().filter(|armed| armed.name == name) else { return };
    if REACHED.fetch_add(1, Ordering::SeqCst) + 1 == armed.nth {
        std::thread::sleep(armed.pause);
        std::process::abort();
    }
}

/// The point to abort at.
#[cfg(feature = "crash-points")]
struct Armed {
    name: String,
    nth: u64,
    pause: std::time::Duration,
}

#[cfg(feature = "crash-points")]
impl Armed {
    fn read() -> Option<Self> {
        let text = std::env::var("WERKRUF_CRASH").ok()?;
        let mut parts = text.split(':');
        let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let mut number = |otherwise| parts.next().and_then(|part| part.parse().ok()).unwrap_or(otherwise);
        Some(Self { name, nth: number(1), pause: std::time::Duration::from_millis(number(0)) })
    }
}
