//! Pagination: every list is `{<name>: [], next_after}`.

use serde::Deserialize;
use werkruf_contract::Uuid;
use werkruf_store::{ListRow, Order, Page};

use super::error::ApiError;
use crate::routing::IntoParams;

const MAX_LIMIT: u32 = 1000;
/// A page ends with the row that makes its rows this large together, so an answer has a bound.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Selects a page of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// The last id of the page before.
    pub(crate) after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    pub(crate) limit: Option<String>,
    /// `asc` (oldest first) or `desc`.
    pub(crate) order: Option<String>,
}

impl PageQuery {
    /// Parses the parameters.
    pub(crate) fn page(&self) -> Result<Page, ApiError> {
        page(self.after.as_deref(), self.limit.as_deref(), self.order.as_deref())
    }
}

/// Parses the parameters of a page.
pub(crate) fn page(after: Option<&str>, limit: Option<&str>, order: Option<&str>) -> Result<Page, ApiError> {
    let after = after
        .map(|text| Uuid::parse_str(text).map_err(|_| ApiError::invalid("after takes the last id of the page before (a UUID).")))
        .transpose()?;
    let order = match order {
        None | Some("asc") => Order::OldestFirst,
        Some("desc") => Order::NewestFirst,
        Some(_) => return Err(ApiError::invalid("order takes asc or desc.")),
    };
    Ok(Page { after, limit: self::limit(limit)?, order, max_bytes: MAX_BYTES })
}

/// Parses the number of rows of a page.
pub(crate) fn limit(text: Option<&str>) -> Result<u32, ApiError> {
    match text.map(str::parse::<u32>) {
        None => Ok(100),
        Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::invalid("limit takes a number from 1 to 1000.")),
    }
}

/// The value of `after` for the next page; `None` if this page is not full.
pub(crate) fn next_after<T: ListRow, I>(rows: &[T], page: &Page, id: impl Fn(&T) -> I) -> Option<I> {
    rows.last().filter(|_| page.is_full(rows)).map(id)
}

/// Reports a row that cannot be written as JSON, which is a defect of the server.
pub(crate) fn serialize_error(error: &serde_json::Error) -> ApiError {
    tracing::error!(%error, "a response cannot be written as JSON");
    ApiError::internal()
}

#[cfg(test)]
mod tests {
    use werkruf_store::Order;

    use super::page;

    #[test]
    fn parameters_are_checked() {
        let id = "00000000-0000-7000-8000-000000000001";
        let found = page(Some(id), Some("1000"), Some("desc")).unwrap();
        assert_eq!((found.limit, found.order), (1000, Order::NewestFirst));
        assert_eq!(page(None, None, None).unwrap().limit, 100);
        for (after, limit, order) in [
            (Some("x"), None, None),
            (None, Some("0"), None),
            (None, Some("1001"), None),
            (None, Some("ten"), None),
            (None, None, Some("up")),
        ] {
            assert!(page(after, limit, order).is_err(), "{after:?} {limit:?} {order:?}");
        }
    }
}
