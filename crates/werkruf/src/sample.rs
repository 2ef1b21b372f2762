//! The people of tenant `demo`: one for each kind of right, so that permissions can be tried at once.

use werkruf_contract::Uuid;
use werkruf_store::PeopleBatch;

/// Slug of the tenant that always exists.
pub const DEMO: &str = "demo";

/// Id of the tenant that always exists.
pub const DEMO_ID: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001);

/// The person the demo key speaks for.
pub const DEMO_USER: i64 = 1;

const PEOPLE: &str = include_str!("sample/people.json");

/// All six, with their roles and branches.
pub fn people() -> Result<PeopleBatch, serde_json::Error> {
    serde_json::from_str(PEOPLE)
}

/// Only the one the demo key speaks for.
pub fn demo_user_alone() -> Result<PeopleBatch, serde_json::Error> {
    let mut batch = people()?;
    batch.users.retain(|user| user.id == DEMO_USER);
    batch.roles.retain(|role| batch.users.iter().any(|user| user.role_ids.contains(&role.id)));
    batch.branches.retain(|branch| batch.users.iter().any(|user| user.branch_id == Some(branch.id)));
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_whole() {
        let batch = people().unwrap();
        assert_eq!(batch.users.iter().map(|user| user.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        for user in &batch.users {
            assert!(batch.branches.iter().any(|branch| Some(branch.id) == user.branch_id), "{}", user.first_name);
            assert!(user.role_ids.iter().all(|id| batch.roles.iter().any(|role| role.id == *id)), "{}", user.first_name);
        }
        assert_eq!(DEMO_ID.to_string(), "00000000-0000-7000-8000-000000000001");
    }

    #[test]
    fn the_demo_user_stands_alone() {
        let batch = demo_user_alone().unwrap();
        assert_eq!((batch.users.len(), batch.roles.len(), batch.branches.len()), (1, 1, 1));
    }
}
