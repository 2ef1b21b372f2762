//! Reads database rows into row types, with one definition for both databases. Their `Columns` have the same methods; a row is read from
//! left to right.

/// The functions that read each row type from the `Columns` in scope. They are a macro and not generic functions because a function
/// that is passed as an argument must accept the columns of every row, whatever their lifetime.
macro_rules! readings {
    () => {
        fn work_row(c: &mut Columns<'_>) -> Result<$crate::WorkRow, werkruf_store::StoreError> {
            Ok($crate::WorkRow {
                id: c.int()?,
                title: c.text()?,
                status: c.text()?,
                due_date: $crate::store::date_or_null(c.text_or_null()?)?,
                requester: c.text()?,
                responsible: c.text_or_null()?,
            })
        }

        fn worktime_row(c: &mut Columns<'_>) -> Result<$crate::WorktimeRow, werkruf_store::StoreError> {
            Ok($crate::WorktimeRow { id: c.int()?, user_id: c.int()?, started_at: c.time()?, ended_at: c.time_or_null()? })
        }

        fn article_row(c: &mut Columns<'_>) -> Result<$crate::ArticleRow, werkruf_store::StoreError> {
            let (id, title, content) = (c.int()?, c.text()?, c.text()?);
            Ok($crate::ArticleRow { id, title, content, tags: c.parsed(|text| serde_json::from_str(text).ok())? })
        }

        /// Without the roles.
        fn person_row(c: &mut Columns<'_>) -> Result<$crate::PersonRow, werkruf_store::StoreError> {
            Ok($crate::PersonRow {
                id: c.int()?,
                first_name: c.text()?,
                last_name: c.text()?,
                email: c.text_or_null()?,
                branch_id: c.int_or_null()?,
                branch: c.text_or_null()?,
                roles: Vec::new(),
            })
        }
    };
}
pub(crate) use readings;
