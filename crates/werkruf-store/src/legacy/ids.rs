//! Ids that are the same at every import: the source's own where they are UUIDs, else derived from the source's ids.

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use werkruf_contract::Uuid;

use super::fields::spelled;

/// The id of a row, as a UUID of version 7: the row's time, then a digest of its origin.
pub(crate) fn id(tenant_id: Uuid, table: &str, id: &Value, made: Timestamp) -> Uuid {
    let text = spelled(id).unwrap_or_default();
    if let Ok(own) = Uuid::try_parse(&text) {
        return own;
    }
    derived(tenant_id, &[table, &text], made)
}

/// An id for a row that has no UUID in the source.
pub(crate) fn derived(tenant_id: Uuid, names: &[&str], made: Timestamp) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(b"werkruf import\0");
    digest.update(tenant_id.as_bytes());
    for name in names {
        digest.update(b"\0");
        digest.update(name.as_bytes());
    }
    let digest = digest.finalize();
    let mut random = [0; 10];
    random.copy_from_slice(&digest[..10]);
    // Rows with the same time keep the order of their numbers: 34 bits of the number come first.
    let number = names.last().and_then(|name| name.parse::<u64>().ok()).filter(|number| *number < 1 << 34);
    if let Some(number) = number {
        let bits = ((number >> 22) << 24) | (number & 0x3f_ffff);
        random[..5].copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    let millis = u64::try_from(made.as_millisecond()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use werkruf_contract::Uuid;

    use super::id;

    #[test]
    fn an_id_is_the_same_every_time_and_sorts_by_time() {
        let (tenant, early, late) = (Uuid::nil(), Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        assert_eq!(id(tenant, "t", &json!(7), early), id(tenant, "t", &json!("7"), early));
        assert_ne!(id(tenant, "t", &json!(7), early), id(tenant, "u", &json!(7), early));
        assert_ne!(id(tenant, "t", &json!(7), early), id(Uuid::max(), "t", &json!(7), early));
        assert!(id(tenant, "t", &json!(9), early) < id(tenant, "t", &json!(1), late));
        let numbers = [0_u64, 1, 2, 9, 10, 255, 256, 65_535, 4_194_303, 4_194_304, 99_999_999, (1 << 34) - 1];
        let ordered: Vec<Uuid> = numbers.iter().map(|number| id(tenant, "t", &json!(number), early)).collect();
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.iter().all(|id| id.get_version_num() == 7));
        let own = "8f14e45f-ceea-467f-a0d5-7b1d2c3e4f50";
        assert_eq!(id(tenant, "t", &json!(own), early).to_string(), own);
    }
}
