//! Parameters of a statement, each with the type it is sent as: statements are not prepared, so the driver does not know the types.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::types::{ToSql, Type};
use werkruf_contract::Uuid;

use super::flush::Param;
use super::text::clean;

/// A value whose PostgreSQL type follows from its Rust type.
pub trait Typed: ToSql + Sync {
    const TYPE: Type;
}

impl Typed for Uuid {
    const TYPE: Type = Type::UUID;
}
impl Typed for i64 {
    const TYPE: Type = Type::INT8;
}
impl Typed for bool {
    const TYPE: Type = Type::BOOL;
}
impl Typed for Timestamp {
    const TYPE: Type = Type::TIMESTAMPTZ;
}
impl Typed for Date {
    const TYPE: Type = Type::DATE;
}
impl Typed for Vec<u8> {
    const TYPE: Type = Type::BYTEA;
}
impl Typed for &str {
    const TYPE: Type = Type::TEXT;
}
impl Typed for Cow<'_, str> {
    const TYPE: Type = Type::TEXT;
}
impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
}
impl Typed for Vec<Uuid> {
    const TYPE: Type = Type::UUID_ARRAY;
}
impl Typed for Vec<i64> {
    const TYPE: Type = Type::INT8_ARRAY;
}

/// A parameter. Text from outside must go through [`clean`] first.
pub fn p<T: Typed>(value: &T) -> Param<'_> {
    (value, T::TYPE)
}

/// Optional text, cleaned.
pub fn clean_or_null(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.map(clean)
}

/// A time as the tables store it: whole milliseconds, so that both databases store the same.
pub fn ms(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

/// The same for an optional time.
pub fn ms_or_null(time: Option<Timestamp>) -> Option<Timestamp> {
    time.map(ms)
}
