//! The exact messages of the workspace tools in three languages, and their refusal of invalid arguments.

#[cfg(test)]
#[path = "../../werkruf-tools/tests/support/mod.rs"]
mod support;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::civil::Date;
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, ToSpan};
    use serde_json::{Value, json};
    use werkruf_contract::{Clock, Effect, Failure, Invocation, Scope, ToolObject, strict};
    use werkruf_store::import::{Import, parse_batch};
    use werkruf_store::{Module, Modules, People, SqliteStore};
    use werkruf_workspace::{SCHEMA, WorkspaceModule};

    use crate::support::invocation;

    const MODULES: Modules = &[SCHEMA];

    struct Fixture {
        tools: Vec<Arc<dyn ToolObject>>,
        tenant_id: werkruf_contract::Uuid,
        now: Timestamp,
        _folder: tempfile::TempDir,
    }

    impl Fixture {
        async fn new() -> Self {
            let clock = Clock::system(0);
            let folder = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(folder.path().join("w.db"), &clock, MODULES).unwrap();
            let now = clock.now();
            let today = now.to_zoned(TimeZone::get("Europe/Berlin").unwrap()).date();
            let tomorrow = today.tomorrow().unwrap();
            let batch = json!({
                "tenant": "demo",
                "branches": [{"id": 1, "name": "Madrid", "time_zone": "Europe/Berlin"}],
                "roles": [{"id": 7, "name": "employee", "permissions": []}],
                "users": [{"id": 3, "first_name": "Clara", "last_name": "Vogt", "email": "c@x.example", "locale": "de-DE", "branch_id": 1, "role_ids": [7]}],
                "requests": [
                    {"id": 1, "title": "Lampe\n tauschen", "status": "open", "due_date": today, "requester_id": 3, "branch_id": 1, "created_at": "2026-01-01T00:00:00Z"},
                    {"id": 2, "title": "Schlüssel", "status": "in_progress", "due_date": tomorrow, "requester_id": 3, "responsible_id": 3, "branch_id": 1, "created_at": "2026-01-02T00:00:00Z"}
                ],
                "tasks": (1..=23).map(|id| json!({"id": id, "title": format!("Task {id}"), "status": "open", "user_id": 3, "branch_id": 1,
                    "created_at": format!("2026-01-{id:02}T00:00:00Z")})).collect::<Vec<_>>(),
                "worktimes": [
                    {"id": 1, "user_id": 3, "branch_id": 1, "started_at": "2026-03-28T22:00:00Z", "ended_at": "2026-03-29T04:05:00Z"},
                    {"id": 2, "user_id": 3, "branch_id": 1, "started_at": now - 90.minutes()}
                ],
                "cerebro_articles": [{"id": 1, "title": "Notfall", "content": "112 anrufen", "tags": ["Notfall"]}]
            });
            store.import(parse_batch(&batch.to_string(), MODULES, |_| true).unwrap(), clock.new_id(), now).await.unwrap().unwrap();
            let tenant_id = store.tenant("demo".to_owned()).await.unwrap().unwrap().id;
            Self { tools: Arc::new(WorkspaceModule::new(store, clock)).tools(), tenant_id, now, _folder: folder }
        }

        async fn call(&self, locale: &str, tool: &str, args: Value) -> Result<Value, Failure> {
            let tool = self.tools.iter().find(|known| known.spec().name == tool).unwrap();
            let mut invocation: Invocation = invocation();
            Arc::make_mut(&mut invocation.principal).tenant_id = self.tenant_id;
            Arc::make_mut(&mut invocation.context).locale = Some(locale.to_owned());
            invocation.grant = Scope::Own;
            tool.call(tool.normalize(args).unwrap(), invocation).await.map(|reply| reply.data)
        }

        async fn message(&self, locale: &str, tool: &str, args: Value) -> String {
            self.call(locale, tool, args).await.unwrap()["message"].as_str().unwrap().to_owned()
        }

        fn today(&self) -> Date {
            self.now.to_zoned(TimeZone::get("Europe/Berlin").unwrap()).date()
        }
    }

    #[tokio::test]
    async fn requests_are_listed_in_the_callers_language() {
        let fixture = Fixture::new().await;
        let today = fixture.today();
        let args = json!({"status": "open", "dueDate": "today"});
        let german = today.strftime("%d.%m.%Y");
        let expected = format!("Eine Anfrage (offen, fällig am {german}):\n• Lampe tauschen – offen, fällig {german}, von Clara Vogt");
        assert_eq!(fixture.message("de-DE", "get_requests", args.clone()).await, expected);
        let spanish = today.strftime("%d/%m/%Y");
        let expected =
            format!("Una solicitud (abierta, vence el {spanish}):\n• Lampe tauschen – abierta, vence el {spanish}, de Clara Vogt");
        assert_eq!(fixture.message("es-ES", "get_requests", args).await, expected);
        assert_eq!(fixture.message("en-US", "get_requests", json!({"status": "done"})).await, "No requests found (done).");
        let both = fixture.call("en-US", "get_requests", json!({})).await.unwrap();
        assert_eq!((&both["count"], &both["truncated"], &both["items"][0]["id"]), (&json!(2), &json!(false), &json!(2)));
        assert_eq!(both["items"][0]["responsible"], "Clara Vogt");
    }

    #[tokio::test]
    async fn twenty_rows_are_shown_and_more_are_mentioned() {
        let data = Fixture::new().await.call("en-GB", "get_todos", json!({})).await.unwrap();
        assert_eq!((&data["count"], &data["truncated"], &data["items"][0]["id"]), (&json!(20), &json!(true), &json!(23)));
        let message = data["message"].as_str().unwrap();
        assert!(
            message.starts_with("20 tasks:\n• Task 23 – open\n") && message.ends_with("There are more; the newest 20 are shown."),
            "{message}"
        );
    }

    #[tokio::test]
    async fn working_time_is_split_at_midnight_in_the_callers_time_zone() {
        let fixture = Fixture::new().await;
        let night = fixture.call("de-DE", "get_worktime", json!({"date": "2026-03-29"})).await.unwrap();
        // 00:00 to 06:05 local time, but daylight saving time skips one hour of that night.
        assert_eq!(
            night["items"],
            json!([{"date": "2026-03-29", "start": "2026-03-29T00:00:00+01:00", "end": "2026-03-29T06:05:00+02:00", "minutes": 305}])
        );
        assert_eq!((&night["total_minutes"], &night["running"]), (&json!(305), &json!(false)));
        assert_eq!(night["message"], "Arbeitszeit am 29.03.2026: 5 Std. 5 Min.\n• 29.03.2026, 00:00 bis 06:05 (5 Std. 5 Min.)");
        let now = fixture.call("es-ES", "get_worktime", json!({})).await.unwrap();
        let minutes = now["total_minutes"].as_i64().unwrap();
        let since_midnight = fixture.now.to_zoned(TimeZone::get("Europe/Berlin").unwrap());
        let since_midnight = i64::from(since_midnight.hour()) * 60 + i64::from(since_midnight.minute());
        assert!((minutes - since_midnight.min(90)).abs() <= 2, "{minutes}");
        assert_eq!((&now["running"], &now["items"][0]["end"]), (&json!(true), &Value::Null));
        assert!(now["message"].as_str().unwrap().contains("El registro está en marcha."));
        let none = fixture.message("en-US", "get_worktime", json!({"startDate": "2025-01-01", "endDate": "2025-01-31"})).await;
        assert_eq!(none, "No working time recorded from Jan 1, 2025 to Jan 31, 2025.");
    }

    #[tokio::test]
    async fn articles_and_users_have_messages() {
        let fixture = Fixture::new().await;
        let found = fixture.message("de-DE", "get_cerebro_articles", json!({"searchTerm": "Notfällen"})).await;
        assert_eq!(found, "Ein Artikel zu „Notfällen“:\n• Notfall: 112 anrufen");
        assert_eq!(
            fixture.message("es", "get_cerebro_articles", json!({"searchTerm": "x"})).await,
            "No se encontraron artículos sobre «x»."
        );
        let me = fixture.message("de-DE", "get_user_info", json!({})).await;
        assert_eq!(me, "Clara Vogt (Nr. 3)\n• E-Mail: c@x.example\n• Standort: Madrid\n• Rollen: employee");
    }

    #[tokio::test]
    async fn invalid_dates_are_refused_with_the_allowed_values() {
        let fixture = Fixture::new().await;
        for (tool, args) in [
            ("get_requests", json!({"dueDate": "soon"})),
            ("get_todos", json!({"dueDate": "2026-02-30"})),
            ("get_worktime", json!({"date": "15.11.2026"})),
            ("get_worktime", json!({"startDate": "2026-03-02", "endDate": "2026-03-01"})),
            ("get_worktime", json!({"endDate": "2026-03-01"})),
            ("get_worktime", json!({"date": "today", "startDate": "today"})),
            ("get_worktime", json!({"startDate": "2020-01-01", "endDate": "2026-03-01"})),
        ] {
            let failure = fixture.call("de-DE", tool, args.clone()).await.unwrap_err();
            assert_eq!(failure.code, "invalid_arguments", "{tool} {args}");
            assert_eq!(failure.message.contains("this_week"), failure.message.contains("none of them"), "{}", failure.message);
        }
    }

    #[tokio::test]
    async fn a_request_is_written_as_requested_or_not_at_all() {
        let fixture = Fixture::new().await;
        let made = fixture.call("de-DE", "create_request", json!({"title": " Neuer  Stuhl ", "dueDate": "2026-12-24"})).await.unwrap();
        assert_eq!((&made["title"], &made["status"], &made["dueDate"]), (&json!("Neuer Stuhl"), &json!("open"), &json!("2026-12-24")));
        assert!(made["message"].as_str().unwrap().contains("„Neuer Stuhl“"));
        for args in [
            json!({"title": "  "}),
            json!({"title": "x".repeat(201)}),
            json!({"title": "x", "dueDate": "soon"}),
            json!({"title": "x", "responsibleId": 987_654}),
        ] {
            assert_eq!(fixture.call("de-DE", "create_request", args.clone()).await.unwrap_err().code, "invalid_arguments", "{args}");
        }
        let again = fixture.call("de-DE", "create_request", json!({"title": "Zweiter"})).await.unwrap();
        assert_eq!(again["id"].as_i64(), made["id"].as_i64().map(|id| id + 1), "a refused request uses no id");
    }

    #[tokio::test]
    async fn the_specs_match_the_specification() {
        let fixture = Fixture::new().await;
        let rights: Vec<(&str, Option<String>)> = fixture
            .tools
            .iter()
            .map(|tool| (tool.spec().name.as_ref(), tool.spec().permission.as_ref().map(ToString::to_string)))
            .collect();
        let need = |text: &str| Some(text.to_owned());
        assert_eq!(
            rights,
            [
                ("get_requests", need("table_requests:table:read")),
                ("get_todos", need("table_tasks:table:read")),
                ("get_worktime", need("page_worktracker:page:read")),
                ("get_cerebro_articles", need("cerebro:cerebro:read")),
                ("get_user_info", None),
                ("create_request", need("table_requests:table:write")),
            ]
        );
        let (write_tool, read_tools) = fixture.tools.split_last().unwrap();
        let spec = write_tool.spec();
        assert_eq!(
            (spec.effect, spec.allowed_attempts(), spec.approval.as_slice()),
            (Effect::Once, 1, ["lead".into(), "admin".into()].as_slice())
        );
        for tool in read_tools {
            let (spec, schema) = (tool.spec(), tool.parameters());
            assert_eq!((spec.effect, spec.timeout.unwrap().as_secs(), spec.attempts), (Effect::Read, 5, 2));
            assert!(strict(schema).is_some() && schema.get("required").is_none(), "{schema:#}");
            assert!(tool.normalize(json!({"tenantId": 1})).is_err(), "{} accepts unknown arguments", spec.name);
            assert!(tool.normalize(json!({})).is_ok());
        }
        let schema = fixture.tools[0].parameters();
        assert_eq!(schema["properties"]["userId"]["type"], json!(["number", "null"]));
        assert_eq!(fixture.tools[3].normalize(json!({})).unwrap(), json!({"limit": 10}));
        assert!(fixture.tools[1].normalize(json!({"status": "cancelled"})).is_err());
    }
}
