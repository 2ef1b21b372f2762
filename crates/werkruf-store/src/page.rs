//! Pages of lists, bounded in rows and in bytes.

use werkruf_contract::Uuid;

use crate::{CallRow, ConversationRow, KeyRow, MessageRow};

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    OldestFirst,
    NewestFirst,
}

/// One page of a list; `after` is the last id of the previous page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub after: Option<Uuid>,
    pub limit: u32,
    pub order: Order,
    /// The page ends with the row that makes its rows this large together: see [`ListRow`].
    pub max_bytes: usize,
}

impl Page {
    /// A page of this many rows, whatever their size.
    pub const fn of(limit: u32, order: Order) -> Self {
        Self { after: None, limit, order, max_bytes: usize::MAX }
    }

    /// Whether there may be rows after this page.
    pub fn is_full<T: ListRow>(&self, rows: &[T]) -> bool {
        u32::try_from(rows.len()).is_ok_and(|count| count >= self.limit)
            || rows.iter().map(ListRow::list_bytes).fold(0, usize::saturating_add) >= self.max_bytes
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::of(100, Order::OldestFirst)
    }
}

/// A row that lists have.
pub trait ListRow {
    /// What the row takes of a page: its texts of any length.
    fn list_bytes(&self) -> usize;
}

/// Counted for every row beside its texts.
const ROW_BYTES: usize = 256;

pub(crate) fn bytes_of(texts: &[Option<&str>]) -> usize {
    ROW_BYTES + texts.iter().flatten().map(|text| text.len()).sum::<usize>()
}

impl ListRow for ConversationRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[Some(&self.title), Some(&self.user_id)])
    }
}

impl ListRow for MessageRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[Some(&self.content), self.tool_calls.as_deref(), Some(&self.metadata)])
    }
}

impl ListRow for CallRow {
    fn list_bytes(&self) -> usize {
        let Self { request, raw_arguments, response, error, error_detail, context, meta, .. } = self;
        let texts = [request, raw_arguments, response, error, error_detail, meta].map(Option::as_deref);
        bytes_of(&texts) + context.len()
    }
}

impl ListRow for KeyRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[self.name.as_deref()])
    }
}
