//! The module `workspace`: requests, tasks, working times and articles of an office, with its tools, rows and SQL.

mod article_match;
mod import;
mod import_postgres;
mod import_sqlite;
mod postgres;
mod reading;
mod sqlite;
mod store;
mod texts;
mod tools;

pub use import::{NewArticle, NewRequest, NewTask, NewWorktime, WorkspaceRows};
pub use store::{
    ArticleQuery, ArticleRow, DateSpan, Listing, PersonRow, RequestDraft, RowScope, SCHEMA, Target, WorkQuery, WorkRow, Workspace,
    WorktimeQuery, WorktimeRow,
};
pub use tools::WorkspaceModule;

#[cfg(test)]
mod story_tests;
#[cfg(test)]
#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;
