//! Pinned definitions of tools.

use super::{Store, World};
use crate::{Author, SERVER_CHAIN, SeenTool, ToolChange, ToolPin, ToolPins};

fn seen(digest: &str) -> SeenTool {
    SeenTool {
        name: "files_read".to_owned(),
        server: "files".to_owned(),
        digest: digest.to_owned(),
        definition: format!(r#"{{"name":"{digest}"}}"#),
    }
}

pub(crate) async fn a_changed_tool_is_noted_until_it_is_accepted<S: Store + ToolPins>(mut world: World<S>) {
    let first_at = world.now;
    let pin = |digest: &str, at, change: Option<(&str, _)>| ToolPin {
        name: "files_read".to_owned(),
        server: "files".to_owned(),
        digest: digest.to_owned(),
        definition: seen(digest).definition,
        accepted_at: at,
        change: change.map(|(digest, seen_at)| ToolChange { digest: digest.to_owned(), definition: seen(digest).definition, seen_at }),
    };
    assert_eq!(world.store.see_tool(seen("a"), first_at).await.unwrap(), pin("a", first_at, None));
    world.now = world.later(1000);
    let changed_at = world.now;
    assert_eq!(world.store.see_tool(seen("a"), changed_at).await.unwrap(), pin("a", first_at, None), "seen again");
    assert_eq!(world.store.see_tool(seen("b"), changed_at).await.unwrap(), pin("a", first_at, Some(("b", changed_at))));
    world.now = world.later(1000);
    let later = world.now;
    assert_eq!(world.store.see_tool(seen("b"), later).await.unwrap(), pin("a", first_at, Some(("b", changed_at))), "the first time counts");
    assert_eq!(world.store.see_tool(seen("a"), later).await.unwrap(), pin("a", first_at, None), "back again");
    world.store.see_tool(seen("b"), later).await.unwrap();

    let accept = |name: &str, digest: &str| world.store.accept_tool(name.to_owned(), digest.to_owned(), Author::operator(), later);
    assert_eq!(accept("files_read", "c").await.unwrap(), None, "another definition than the noted one");
    assert_eq!(accept("files_write", "b").await.unwrap(), None);
    assert_eq!(accept("files_read", "b").await.unwrap(), Some(pin("b", later, None)));
    assert_eq!(accept("files_read", "b").await.unwrap(), None, "accepted already");
    assert_eq!(world.store.tool_pins().await.unwrap(), [pin("b", later, None)]);
    let entries = world.store.audit_entries(SERVER_CHAIN, 0, 10).await.unwrap();
    assert_eq!(
        entries.iter().map(|entry| (entry.action.as_str(), entry.subject.as_str())).collect::<Vec<_>>(),
        [("tool.accept", "files_read")]
    );
}
