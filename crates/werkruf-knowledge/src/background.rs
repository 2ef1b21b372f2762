//! Threads for the long computations of an ingest.
//!
//! They have a lower priority than the threads that answer requests: where processors are scarce, a search does not wait for a computation
//! that has just got a time slice. A lock of an index is held here for a small slice of chunks only: adding them with the usual priority was
//! measured, and searches were slower.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::{mpsc, oneshot};
use werkruf_store::StoreError;

/// How far the priority is below the usual one, on the scale of `nice`.
const NICE: i32 = 10;
/// Computations that wait for a thread; further callers wait.
const QUEUE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Computes something on a thread of low priority.
pub async fn compute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    static THREADS: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let (done, result) = oneshot::channel();
    let job: Job = Box::new(move || {
        // A caller that has gone needs no result.
        let _ = done.send(work());
    });
    let failed = || StoreError::Broken("a computation did not end".to_owned());
    THREADS.get_or_init(start).send(job).await.map_err(|_| failed())?;
    result.await.map_err(|_| failed())
}

/// Lets a waiting thread run. Called between small steps of a computation: without it, Linux lets a thread of low priority end its time
/// slice of milliseconds, however urgent the thread that waits.
pub(super) fn give_way() {
    std::thread::yield_now();
}

/// Starts a thread for every second processor.
fn start() -> mpsc::Sender<Job> {
    let (sender, receiver) = mpsc::channel::<Job>(QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..processors.div_ceil(2) {
        let jobs = Arc::clone(&receiver);
        let started = std::thread::Builder::new().name("werkruf-ingest".to_owned()).spawn(move || run(&jobs));
        if let Err(error) = started {
            tracing::error!(%error, "a thread for documents cannot be started");
        }
    }
    sender
}

fn run(jobs: &Mutex<mpsc::Receiver<Job>>) {
    // On Linux the priority is one of the thread, not of the process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None).and_then(|own| rustix::process::setpriority_process(None, own + NICE)) {
        tracing::warn!(%error, "the priority of a thread cannot be lowered");
    }
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a computation of an ingest panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_and_ends_no_thread() {
        for _ in 0..20 {
            assert!(compute(|| panic!("on purpose")).await.map(|never: ()| never).is_err());
        }
        let computed = futures_util::future::join_all((0..200).map(|number| compute(move || number * 2))).await;
        assert_eq!(computed.into_iter().map(Result::unwrap).collect::<Vec<_>>(), (0..400).step_by(2).collect::<Vec<_>>());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_these_threads_have_a_lower_priority() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let usual = own();
        assert_eq!(compute(own).await.unwrap(), (usual + NICE).min(19));
        assert_eq!(own(), usual);
    }
}
