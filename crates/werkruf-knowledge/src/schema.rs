//! The module's part of the schema.

use werkruf_store::{FunctionSet, Migration, ModuleSchema, ModuleTable, OnErase, PostgresSchema};

pub const SCHEMA: &ModuleSchema = &ModuleSchema {
    name: "knowledge",
    tables: &[
        ModuleTable {
            roles: &["read_roles", "write_roles"],
            ..ModuleTable::new("collections", documents(&["name", "read_roles", "write_roles", "trust"]))
        },
        ModuleTable::new("documents", documents(&["collection", "title", "language", "metadata", "digest"])),
        ModuleTable {
            columns_only_on_postgres: &["lexemes"],
            ..ModuleTable::new("chunks", documents(&["collection", "document", "heading", "content"]))
        },
        ModuleTable::new("chunk_terms", documents(&["collection"])),
        ModuleTable::new("chunk_vectors", documents(&["collection", "model"])),
        ModuleTable::new("removed_chunks", OnErase::Keep { columns: &["collection"], why: "numbers of deleted chunks" }),
        ModuleTable {
            only_on_postgres: true,
            ..ModuleTable::new("embedding_claims", OnErase::Keep { columns: &[], why: "numbers of chunks" })
        },
    ],
    import: None,
    sqlite: &[Migration::first(include_str!("../migrations/sqlite/0001_first.sql"))],
    postgres: PostgresSchema {
        migrations: &[Migration::first(include_str!("../migrations/postgres/0001_first.sql"))],
        functions: Some(FunctionSet {
            number: 1,
            compatible_with: 1,
            files: &[include_str!("../functions/knowledge.sql"), include_str!("../functions/search.sql")],
        }),
        after_move: CONTINUE_NUMBERS,
        compat_views: include_str!("../functions/compat_views.sql"),
    },
};

/// New chunks are numbered after those of the file, removed ones included: no number is given twice.
const CONTINUE_NUMBERS: &str =
    "SELECT setval('chunks_number_seq', greatest((SELECT max(number) FROM chunks), (SELECT max(chunk) FROM removed_chunks), 0) + 1, false)";

const fn documents(columns: &'static [&'static str]) -> OnErase {
    OnErase::Keep { columns, why: "documents of the company" }
}
