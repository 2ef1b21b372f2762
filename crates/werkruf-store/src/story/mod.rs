//! One story for every database, told only through the traits. Each chapter takes a fresh [`World`].
//!
//! A database folder runs it by handing its constructor to [`tell!`].

mod chapters_approvals;
mod chapters_clients;
mod chapters_ledger;
mod chapters_people;
mod chapters_reuse;
mod chapters_streams;
mod chapters_turns;
mod chapters_workspace;
mod world;

pub(crate) use chapters_approvals::*;
pub(crate) use chapters_clients::*;
pub(crate) use chapters_ledger::*;
pub(crate) use chapters_people::*;
pub(crate) use chapters_reuse::*;
pub(crate) use chapters_streams::*;
pub(crate) use chapters_turns::*;
pub(crate) use chapters_workspace::*;
pub(crate) use world::{Running, Store, World};

/// One test per chapter, each on a store of its own.
macro_rules! tell {
    ($make:path: $($chapter:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $chapter() {
            let (store, clock, _kept) = $make();
            $crate::story::$chapter($crate::story::World::new(store, clock)).await;
        })+
    };
}
pub(crate) use tell;
