//! `werkruf init`: writes a configuration file, or with `--office` a complete small example.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::{Outcome, Session, print};
use crate::config::{DEFAULT_FILE, template};

/// The files of the example beside its configuration: the import file, and the program of its tool.
const OFFICE: [(&str, &str); 2] =
    [("office.json", include_str!("../office/office.json")), ("rooms.py", include_str!("../office/rooms.py"))];

const OFFICE_CONFIG: &str = include_str!("../office/werkruf.toml");

const OFFICE_STEPS: &str = "Next, in this folder (docs/tutorial.md explains each step):
  export ROOMS_SECRET=choose-a-long-one
  python3 rooms.py 9000 &
  werkruf workspace import office.json
  werkruf chat 'Which tasks are open?' --tenant office --user 2";

#[derive(Debug, Args)]
pub(super) struct Command {
    /// Also write an example office: people, rows and a tool of its own
    #[arg(long)]
    office: bool,
    /// Replace existing files
    #[arg(long)]
    force: bool,
}

pub(super) fn run(session: &Session, command: &Command) -> Outcome {
    let config = session.globals.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let files = if command.office {
        let beside = |name: &str| config.with_file_name(name);
        let mut files = vec![(config.clone(), OFFICE_CONFIG.to_owned())];
        files.extend(OFFICE.map(|(name, text)| (beside(name), text.to_owned())));
        files
    } else {
        vec![(config, template())]
    };
    // Nothing is written if one of the files exists.
    if !command.force
        && let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok())
    {
        return Err(exists(path));
    }
    for (path, text) in &files {
        write(path, text, command.force)?;
    }
    let names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    if session.globals.json {
        print::json(&json!({"written": names}));
    } else if command.office {
        print::line(&format!("wrote {}\n{OFFICE_STEPS}", names.join(", ")));
    } else {
        print::line(&format!("wrote {}; `werkruf config check` checks it", names.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), CliError> {
    let mut options = OpenOptions::new();
    options.write(true);
    let opened = if force { options.create(true).truncate(true).open(path) } else { options.create_new(true).open(path) };
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => CliError::refused("io", format!("cannot write {}: {error}", path.display())),
    })
}

fn exists(path: &Path) -> CliError {
    CliError::refused("file_exists", format!("{} already exists; --force replaces it", path.display()))
}
