//! The checks on configurations, files and numbers that are wrong in one way each.

use std::os::unix::fs::PermissionsExt;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;
use werkruf_store::{Diagnosis, Measurements};

use super::*;
use crate::config::{Config, Environment, Flags};

fn config(folder: &std::path::Path, file: &str, variables: &[(&str, &str)]) -> Config {
    let path = folder.join("werkruf.toml");
    std::fs::write(&path, file).unwrap();
    let database = format!("sqlite:{}", folder.join("w.db").display());
    let flags = Flags { config: Some(path), listen: None, database: Some(database) };
    Config::load(&flags, &Environment::of(variables.iter().copied())).unwrap()
}

fn found(report: &Report) -> Vec<(Severity, &str, &str)> {
    report.findings.iter().map(|finding| (finding.severity, &*finding.check, finding.code.as_deref().unwrap_or(""))).collect()
}

#[test]
fn a_server_that_strangers_reach_is_checked_more_closely() {
    let folder = tempfile::tempdir().unwrap();
    let mut report = Report::default();
    check_configuration(&config(folder.path(), "[workspace]", &[]), &mut report);
    assert_eq!(found(&report), [(Severity::Note, "model", "model_not_configured")]);
    assert!(report.is_healthy(), "{report:?}");

    let open = "listen = \"0.0.0.0:8080\"\n[workspace]\n[approvals]\nfour_eyes = false\n[metrics]\nlisten = \"0.0.0.0:9464\"\n";
    let variables = [("WERKRUF_ADMIN_KEY", "0123456789abcdef"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"), ("OPENAI_MODEL", "mine")];
    let mut report = Report::default();
    check_configuration(&config(folder.path(), open, &variables), &mut report);
    report.add(Report::default());
    let expected = [
        (Severity::Warning, "config", "plain_http"),
        (Severity::Warning, "config", "four_eyes"),
        (Severity::Warning, "config", "open_metrics"),
        (Severity::Note, "config", ""),
        (Severity::Note, "model", ""),
    ];
    assert_eq!(found(&report), expected, "{report:?}");
    assert!(!report.is_healthy());
}

#[test]
fn files_that_others_may_open_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "[workspace]", &[]);
    let database = folder.path().join("w.db");
    let mode = |path: &std::path::Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    std::fs::write(&database, "").unwrap();
    mode(&database, 0o600);
    mode(folder.path(), 0o700);
    let mut report = Report::default();
    check_files(&config, &mut report);
    report.findings.retain(|finding| finding.code.is_none());
    assert_eq!(found(&report), []);
    mode(&database, 0o644);
    mode(folder.path(), 0o755);
    mode(&folder.path().join("werkruf.toml"), 0o666);
    let mut report = Report::default();
    check_files(&config, &mut report);
    report.findings.retain(|finding| finding.code.is_none());
    assert_eq!(found(&report), [(Severity::Warning, "files", ""), (Severity::Note, "files", ""), (Severity::Warning, "files", "")]);
    assert_eq!(report.findings[0].advice, format!("chmod 600 {}", database.display()));
    // The key of stored secrets is gone.
    let mut report = Report::default();
    check_secrets(&config, &mut report);
    assert_eq!(found(&report), [(Severity::Warning, "config", "secret_key_required")]);
}

#[test]
fn numbers_that_are_wrong_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "[workspace]", &[]);
    let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    let mut report = Report::default();
    let healthy = Diagnosis { now: Some(now), version: "PostgreSQL 17".to_owned(), ..Diagnosis::default() };
    check_database(&healthy, &config, now, &mut report);
    assert_eq!((found(&report), report.checked.as_slice()), (vec![], &["database: PostgreSQL 17, 0 MiB, 0 open turns".to_owned()][..]));

    let broken = Diagnosis {
        measurements: Measurements {
            outbox: vec![("dead".to_owned(), 2), ("held".to_owned(), 3), ("sent".to_owned(), 9)],
            pending_approvals: 1,
            open_turns: 4,
            waiting_turns: 0,
            size_bytes: 2 << 30,
        },
        now: Some(now - SignedDuration::from_secs(60)),
        damage: vec!["row 7 missing from index".to_owned()],
        stuck_turns: 2,
        stuck_turn: Some(Uuid::from_u128(5)),
        unpriced: vec![("new-model".to_owned(), 12)],
        ..healthy
    };
    let mut report = Report::default();
    check_database(&broken, &config, now, &mut report);
    report.add(Report::default());
    let expected = [
        (Severity::Error, "database", "database_unavailable"),
        (Severity::Error, "database", ""),
        (Severity::Warning, "database", ""),
        (Severity::Warning, "database", "attempts_exhausted"),
        (Severity::Warning, "database", "restored"),
        (Severity::Warning, "database", ""),
        (Severity::Warning, "database", ""),
        (Severity::Note, "database", "approval_pending"),
    ];
    assert_eq!(found(&report), expected, "{report:#?}");
    assert!(report.findings.iter().all(|finding| finding.message.ends_with('.') && !finding.advice.is_empty()), "{report:#?}");
}

#[test]
fn every_code_of_a_finding_has_a_page() {
    let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    for source in [include_str!("configuration.rs"), include_str!("database.rs"), include_str!("files.rs"), include_str!("mod.rs")] {
        for call in source.split("Severity::").skip(1) {
            let mut arguments = call.split('"');
            let (_, check, _, code) = (arguments.next(), arguments.next(), arguments.next(), arguments.next());
            let is_check = check.is_some_and(|check| ["config", "files", "database", "server", "model", "embedder"].contains(&check));
            let is_code = |code: &&str| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if let Some(code) = code.filter(|code| is_check && !code.is_empty()).filter(is_code) {
                assert!(pages.join(format!("{code}.md")).is_file(), "{code} has no page");
            }
        }
    }
}
