//! Values on their way into a statement, with the type each is sent as: no statement is prepared beforehand, so nobody else knows.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::types::{ToSql, Type};
use werkruf_contract::Uuid;

use super::flush::Param;
use super::text::clean;

/// A value whose type on the wire follows from its type here.
pub(super) trait Sent: ToSql + Sync {
    const TYPE: Type;
}

impl Sent for Uuid {
    const TYPE: Type = Type::UUID;
}
impl Sent for i64 {
    const TYPE: Type = Type::INT8;
}
impl Sent for bool {
    const TYPE: Type = Type::BOOL;
}
impl Sent for Timestamp {
    const TYPE: Type = Type::TIMESTAMPTZ;
}
impl Sent for Date {
    const TYPE: Type = Type::DATE;
}
impl Sent for Vec<u8> {
    const TYPE: Type = Type::BYTEA;
}
impl Sent for &str {
    const TYPE: Type = Type::TEXT;
}
impl Sent for Cow<'_, str> {
    const TYPE: Type = Type::TEXT;
}
impl<T: Sent> Sent for Option<T> {
    const TYPE: Type = T::TYPE;
}
impl Sent for Vec<Uuid> {
    const TYPE: Type = Type::UUID_ARRAY;
}
impl Sent for Vec<i64> {
    const TYPE: Type = Type::INT8_ARRAY;
}

/// A parameter. Text that comes from outside goes through [`clean`] first.
pub(super) fn p<T: Sent>(value: &T) -> Param<'_> {
    (value, T::TYPE)
}

/// Text that may be missing, without what no column can hold.
pub(super) fn clean_or_null(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.map(clean)
}

/// A time as the tables keep it: whole milliseconds, so that both databases remember the same.
pub(super) fn ms(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

/// The same for a time that may be missing.
pub(super) fn ms_or_null(time: Option<Timestamp>) -> Option<Timestamp> {
    time.map(ms)
}
