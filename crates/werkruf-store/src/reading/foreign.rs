//! Rows about other servers: accounts of people there, and the definitions of their tools.

/// Part of [`readings`](super::readings).
macro_rules! foreign_readings {
    () => {
        fn connection_key(c: &mut Columns<'_>) -> Result<$crate::ConnectionKey, $crate::StoreError> {
            Ok($crate::ConnectionKey { tenant_id: c.id()?, user_id: c.text()?, server: c.text()? })
        }

        pub(super) fn connection_request(c: &mut Columns<'_>) -> Result<$crate::ConnectionRequest, $crate::StoreError> {
            let (id, key, scope) = (c.id()?, connection_key(c)?, c.text_or_null()?);
            Ok($crate::ConnectionRequest { id, key, scope, sealed: c.bytes_or_null()?.map(<[u8]>::to_vec), expires_at: c.time()? })
        }

        pub(super) fn connection(c: &mut Columns<'_>) -> Result<$crate::ConnectionRow, $crate::StoreError> {
            let (key, sealed) = (connection_key(c)?, c.bytes()?.to_vec());
            Ok($crate::ConnectionRow { key, sealed, expires_at: c.time_or_null()?, updated_at: c.time()? })
        }

        pub(super) fn tool_pin(c: &mut Columns<'_>) -> Result<$crate::ToolPin, $crate::StoreError> {
            Ok($crate::ToolPin {
                name: c.text()?,
                server: c.text()?,
                digest: c.text()?,
                definition: c.text()?,
                accepted_at: c.time()?,
                change: $crate::ToolChange::of(c.text_or_null()?, c.text_or_null()?, c.time_or_null()?),
            })
        }
    };
}
pub(crate) use foreign_readings;
