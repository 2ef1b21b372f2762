//! A module of the tests, with everything that a module can say about its tables.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;
use werkruf_contract::Uuid;

use super::{Store, World};
use crate::postgres::{self, DbRole, ms_or_null, p};
use crate::sqlite::{self, Id, stamp_or_null};
use crate::{Author, FunctionSet, Migration, ModuleSchema, ModuleTable, Modules, OnErase, PostgresSchema, PostgresStore, SqliteStore};

pub(crate) const MODULES: Modules = &[NOTES];

const NOTES: &ModuleSchema = &ModuleSchema {
    name: "notes",
    tables: &[
        ModuleTable {
            columns_only_on_postgres: &["letters"],
            branch: Some("branch_id"),
            roles: &["readers"],
            expires: Some("expires_at"),
            ..ModuleTable::new("notes", OnErase::DeleteRowsOf { person: "user_id" })
        },
        ModuleTable::new("note_labels", OnErase::Keep { columns: &["label"], why: "words of the company" }),
        ModuleTable { only_on_postgres: true, ..ModuleTable::new("note_claims", OnErase::Keep { columns: &[], why: "numbers" }) },
    ],
    import: None,
    sqlite: &[Migration::first(
        "CREATE TABLE notes (tenant_id TEXT NOT NULL, id INTEGER NOT NULL, user_id INTEGER NOT NULL, body TEXT NOT NULL, expires_at TEXT,
           branch_id INTEGER, readers TEXT, PRIMARY KEY (tenant_id, id)) STRICT;
         CREATE TABLE note_labels (tenant_id TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (tenant_id, label)) STRICT;",
    )],
    postgres: PostgresSchema {
        migrations: &[Migration::first(
            "CREATE TABLE notes (tenant_id uuid NOT NULL, id bigint NOT NULL, user_id bigint NOT NULL, body text NOT NULL,
               expires_at timestamptz, letters bigint, branch_id bigint, readers json, PRIMARY KEY (tenant_id, id));
             CREATE TABLE note_labels (tenant_id uuid NOT NULL, label text NOT NULL, PRIMARY KEY (tenant_id, label));
             CREATE TABLE note_claims (note bigint NOT NULL PRIMARY KEY);",
        )],
        functions: Some(FunctionSet {
            number: 1,
            compatible_with: 1,
            files: &["CREATE OR REPLACE FUNCTION note_letters(body text) RETURNS bigint LANGUAGE sql AS 'SELECT length(body)::bigint'"],
        }),
        after_move: "UPDATE notes SET letters = note_letters(body)",
        compat_views: "CREATE OR REPLACE VIEW public.notes_of_the_tests AS SELECT body FROM notes",
    },
};

/// A row of the module: id, user, and when it expires.
pub(crate) type Note = (i64, i64, Option<Timestamp>);

/// The rows of the module, read and written as its own code would.
pub(crate) trait Notes {
    async fn put_notes(&self, tenant: Uuid, notes: &[Note]);
    /// A note of a branch that users with these roles may read.
    async fn put_note_of(&self, tenant: Uuid, id: i64, branch: Option<i64>, readers: &str);
    async fn delete_notes(&self);
    /// The ids of all notes, in order.
    async fn note_ids(&self) -> Vec<i64>;
}

impl Notes for SqliteStore {
    async fn put_notes(&self, tenant: Uuid, notes: &[Note]) {
        let notes = notes.to_vec();
        let writing = self.write_rows(move |c| {
            for (id, user, expires) in notes {
                let values = params![Id::from(tenant), id, user, stamp_or_null(expires)];
                c.execute("INSERT INTO notes (tenant_id, id, user_id, body, expires_at) VALUES (?1, ?2, ?3, 'NOTE', ?4)", values)?;
            }
            c.execute("INSERT INTO note_labels VALUES (?1, 'LABEL') ON CONFLICT DO NOTHING", params![Id::from(tenant)])?;
            Ok(())
        });
        writing.await.unwrap();
    }

    async fn put_note_of(&self, tenant: Uuid, id: i64, branch: Option<i64>, readers: &str) {
        let readers = readers.to_owned();
        let writing = self.write_rows(move |c| {
            let sql = "INSERT INTO notes (tenant_id, id, user_id, body, branch_id, readers) VALUES (?1, ?2, 1, 'NOTE', ?3, ?4)";
            c.execute(sql, params![Id::from(tenant), id, branch, readers])?;
            Ok(())
        });
        writing.await.unwrap();
    }

    async fn delete_notes(&self) {
        self.write_rows(|c| Ok(c.execute("DELETE FROM notes", [])?)).await.unwrap();
    }

    async fn note_ids(&self) -> Vec<i64> {
        let sql = "SELECT id FROM notes ORDER BY id";
        self.read_rows(|c| sqlite::all(&mut c.prepare(sql)?, [], |columns| columns.int())).await.unwrap()
    }
}

impl Notes for PostgresStore {
    async fn put_notes(&self, tenant: Uuid, notes: &[Note]) {
        for (id, user, expires) in notes {
            let sql = "INSERT INTO notes VALUES ($1, $2, $3, 'NOTE', $4)";
            let expires = ms_or_null(*expires);
            self.query(DbRole::Tenant(tenant), sql, &[p(&tenant), p(id), p(user), p(&expires)]).await.unwrap();
        }
    }

    async fn put_note_of(&self, tenant: Uuid, id: i64, branch: Option<i64>, readers: &str) {
        let sql = "INSERT INTO notes (tenant_id, id, user_id, body, branch_id, readers) VALUES ($1, $2, 1, 'NOTE', $3, $4::text::json)";
        self.query(DbRole::Tenant(tenant), sql, &[p(&tenant), p(&id), p(&branch), p(&readers)]).await.unwrap();
    }

    async fn delete_notes(&self) {
        self.query(DbRole::System, "DELETE FROM notes", &[]).await.unwrap();
    }

    async fn note_ids(&self) -> Vec<i64> {
        let rows = self.query(DbRole::System, "SELECT id FROM notes ORDER BY id", &[]).await.unwrap();
        postgres::all(&rows, |columns| columns.int()).unwrap()
    }
}

pub(crate) async fn expired_rows_of_a_module_are_deleted<S: Store + Notes>(mut world: World<S>) {
    let soon = world.now.checked_add(SignedDuration::from_secs(1)).unwrap();
    world.store.put_notes(world.tenant, &[(1, 1, Some(world.now)), (2, 1, Some(soon)), (3, 1, None)]).await;
    let expire = async |world: &World<S>| (world.store.delete_expired(world.now).await.unwrap(), world.store.note_ids().await);
    assert_eq!(expire(&world).await, (1, vec![2, 3]));
    assert_eq!(expire(&world).await, (0, vec![2, 3]));
    world.later(1000);
    assert_eq!(expire(&world).await, (1, vec![3]));
}

pub(crate) async fn rows_of_a_module_are_erased_with_their_person<S: Store + Notes>(world: World<S>) {
    let done = world.talk().await;
    world.complete(&done).await;
    world.store.put_notes(world.tenant, &[(1, 1, None), (2, 2, None)]).await;
    world.store.put_notes(world.id(), &[(3, 1, None)]).await;
    let erased = world.store.erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::server(), world.now).await.unwrap();
    assert_eq!((erased.unwrap().turns, world.store.note_ids().await), (1, vec![2, 3]), "neither another person's nor another tenant's");
}
