//! The sample data of tenant `demo`: an office with one user for each kind of permission, and work that is due today, so
//! that every tool can be tried at once.
//!
//! Dates are in the time zone of the user they belong to: "today" in New York is not always "today" in Madrid.

mod calendar;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde::de::Error as _;
use werkruf_contract::Uuid;
use werkruf_store::import::{Import, ImportBatch};
use werkruf_store::{Author, PeopleBatch};
use werkruf_workspace::{NewArticle, NewRequest, NewTask, NewWorktime, WorkspaceRows};

use crate::start_error::StartError;
use calendar::{Due, WorkPeriod};

/// Slug of the tenant that always exists.
pub const DEMO: &str = "demo";

/// Id of the tenant that always exists.
pub const DEMO_ID: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001);

/// The user of the demo key.
pub const DEMO_USER: i64 = 1;

const PEOPLE: &str = include_str!("sample/people.json");
const WORK: &str = include_str!("sample/work.json");

/// Writes all sample data, with dates relative to `now`.
pub async fn write(store: &dyn Import, now: Timestamp) -> Result<(), StartError> {
    let written = store.import(batch(now)?, DEMO_ID, now).await?;
    // The sample is part of the program, so a fault in it is a bug; the first fault is enough to find the bug.
    written.map(|_| ()).map_err(|faults| {
        let first = faults.first().map(|fault| format!("{}: {}", fault.path, fault.message)).unwrap_or_default();
        StartError::Sample(serde_json::Error::custom(first))
    })
}

/// Only the user of the demo key, with their roles and branch.
pub fn demo_user_alone() -> Result<PeopleBatch, serde_json::Error> {
    let mut batch = people()?;
    batch.users.retain(|user| user.id == DEMO_USER);
    batch.roles.retain(|role| batch.users.iter().any(|user| user.role_ids.contains(&role.id)));
    batch.branches.retain(|branch| batch.users.iter().any(|user| user.branch_id == Some(branch.id)));
    Ok(batch)
}

fn people() -> Result<PeopleBatch, serde_json::Error> {
    serde_json::from_str(PEOPLE)
}

#[derive(Deserialize)]
struct Work {
    requests: Vec<SampleRequest>,
    tasks: Vec<SampleTask>,
    worktimes: Vec<SampleWorktime>,
    cerebro_articles: Vec<NewArticle>,
}

#[derive(Deserialize)]
struct SampleRequest {
    id: i64,
    title: String,
    description: Option<String>,
    status: String,
    due: Due,
    requester_id: i64,
    responsible_id: Option<i64>,
    branch_id: i64,
    hours_ago: i64,
}

#[derive(Deserialize)]
struct SampleTask {
    id: i64,
    title: String,
    status: String,
    due: Due,
    user_id: i64,
    branch_id: i64,
    hours_ago: i64,
}

#[derive(Deserialize)]
struct SampleWorktime {
    id: i64,
    user_id: i64,
    branch_id: i64,
    #[serde(flatten)]
    period: WorkPeriod,
}

fn batch(now: Timestamp) -> Result<ImportBatch, serde_json::Error> {
    let people = people()?;
    let work: Work = serde_json::from_str(WORK)?;
    let local_now = |user: i64| zone_of(&people, user).map(|zone| now.to_zoned(zone));
    let requests = work.requests.into_iter().map(|row| {
        Ok(NewRequest {
            id: row.id,
            title: row.title,
            description: row.description,
            status: row.status,
            due_date: Some(row.due.date(&local_now(row.requester_id)?)?),
            requester_id: row.requester_id,
            responsible_id: row.responsible_id,
            branch_id: row.branch_id,
            created_at: Some(calendar::hours_before(now, row.hours_ago)?),
        })
    });
    let tasks = work.tasks.into_iter().map(|row| {
        Ok(NewTask {
            id: row.id,
            title: row.title,
            description: None,
            status: row.status,
            due_date: Some(row.due.date(&local_now(row.user_id)?)?),
            user_id: row.user_id,
            branch_id: row.branch_id,
            created_at: Some(calendar::hours_before(now, row.hours_ago)?),
        })
    });
    let worktimes = work.worktimes.into_iter().map(|row| {
        let (started_at, ended_at) = row.period.times(&local_now(row.user_id)?)?;
        Ok(NewWorktime { id: row.id, user_id: row.user_id, branch_id: row.branch_id, started_at, ended_at })
    });
    let invalid = |error: jiff::Error| serde_json::Error::custom(error);
    let requests = requests.collect::<Result<_, _>>().map_err(invalid)?;
    let tasks = tasks.collect::<Result<_, _>>().map_err(invalid)?;
    let worktimes = worktimes.collect::<Result<_, _>>().map_err(invalid)?;
    let PeopleBatch { branches, roles, users } = people;
    let rows = WorkspaceRows { requests, tasks, worktimes, cerebro_articles: work.cerebro_articles };
    Ok(ImportBatch { tenant: DEMO_ID.to_string(), branches, roles, users, of_modules: vec![Box::new(rows)], by: Author::server() })
}

/// The user's own time zone, or that of their branch.
fn zone_of(people: &PeopleBatch, id: i64) -> Result<TimeZone, jiff::Error> {
    let user = people.users.iter().find(|user| user.id == id);
    let branch = user.and_then(|user| people.branches.iter().find(|branch| Some(branch.id) == user.branch_id));
    let name = user.and_then(|user| user.time_zone.as_deref()).or(branch.map(|branch| branch.time_zone.as_str()));
    name.map_or(Ok(TimeZone::UTC), TimeZone::get)
}

#[cfg(test)]
#[path = "sample/sample_tests.rs"]
mod tests;
