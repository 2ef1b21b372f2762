//! Reads database rows into row types, with one definition for both databases. Their `Columns` have the same methods; a row is read from
//! left to right.

/// The functions that read each row type from the `Columns` in scope. They are a macro and not generic functions because a function
/// that is passed as an argument must accept the columns of every row, whatever their lifetime.
macro_rules! readings {
    () => {
        pub(crate) fn document(c: &mut Columns<'_>) -> Result<$crate::DocumentRow, werkruf_store::StoreError> {
            Ok($crate::DocumentRow {
                document_id: c.text()?,
                collection: c.text()?,
                title: c.text()?,
                language: c.text_or_null()?,
                metadata: c.text()?,
                digest: c.text()?,
                version: c.int()?,
                chunks: c.int()?,
                ingestion_run_id: c.text()?,
                created_at: c.time()?,
                updated_at: c.time()?,
            })
        }

        pub(crate) fn rights(c: &mut Columns<'_>) -> Result<$crate::CollectionRights, werkruf_store::StoreError> {
            Ok($crate::CollectionRights {
                read: c.parsed(|text| serde_json::from_str(text).ok())?,
                write: c.parsed(|text| serde_json::from_str(text).ok())?,
                trust: c.parsed($crate::Trust::parse)?,
            })
        }

        pub(crate) fn readable_collection(c: &mut Columns<'_>) -> Result<$crate::ReadableCollection, werkruf_store::StoreError> {
            Ok($crate::ReadableCollection { change: c.int()?, trust: c.parsed($crate::Trust::parse)? })
        }

        pub(crate) fn chunk(c: &mut Columns<'_>) -> Result<$crate::ChunkRow, werkruf_store::StoreError> {
            Ok($crate::ChunkRow {
                number: c.int()?,
                id: c.id()?,
                document_id: c.text()?,
                title: c.text()?,
                heading: c.text()?,
                content: c.text()?,
            })
        }

        pub(crate) fn changed_chunk(c: &mut Columns<'_>) -> Result<$crate::ChangedChunk, werkruf_store::StoreError> {
            Ok($crate::ChangedChunk {
                mark: $crate::ChangeMark { change: c.int()?, chunk: c.int()? },
                document_id: std::sync::Arc::from(c.text()?),
                position: c.small()?,
                language: c.text_or_null()?,
                guessed: c.flag()?,
                title: c.text()?,
                heading: c.text()?,
                content: c.text()?,
            })
        }

        pub(crate) fn unembedded_chunk(c: &mut Columns<'_>) -> Result<$crate::UnembeddedChunk, werkruf_store::StoreError> {
            Ok($crate::UnembeddedChunk {
                number: c.int()?,
                tenant_id: c.id()?,
                collection: c.text()?,
                title: c.text()?,
                heading: c.text()?,
                content: c.text()?,
            })
        }
    };
}
pub(crate) use readings;

/// Decodes a stored vector: little-endian floats.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).filter_map(|four| four.try_into().ok().map(f32::from_le_bytes)).collect()
}
