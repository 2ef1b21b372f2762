//! `werkruf-reader EXTENSION`: reads one file from stdin and writes its text as JSON to stdout. The server and `werkruf knowledge add` start
//! it once per file. It opens no file, and it confines itself before it reads.

use std::io::{Read, Write, stdin, stdout};
use std::process::ExitCode;

use serde::Serialize;
use werkruf_reader::{FileText, Kind, MAX_FILE_BYTES, ReadError, confine};

const USAGE: &str = "usage: werkruf-reader [--sandbox on|off] (--check | EXTENSION) < FILE\n";

/// What the program writes to stdout.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// For `--check`: files can be read.
    Ready,
    Text(FileText),
    Error {
        code: &'static str,
        message: String,
    },
}

/// The command line.
struct Request {
    with_sandbox: bool,
    /// `None` for `--check`.
    kind: Option<Kind>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(request) = parse(&arguments) else {
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    let written = serde_json::to_vec(&answer(&request)).map_err(std::io::Error::from).and_then(|answer| stdout().write_all(&answer));
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[String]) -> Option<Request> {
    let (with_sandbox, rest) = match arguments {
        [flag, value, rest @ ..] if flag == "--sandbox" => (["on", "off"].contains(&value.as_str()).then_some(value == "on")?, rest),
        rest => (true, rest),
    };
    match rest {
        [check] if check == "--check" => Some(Request { with_sandbox, kind: None }),
        [extension] => Some(Request { with_sandbox, kind: Some(Kind::of_extension(extension)?) }),
        _ => None,
    }
}

fn answer(request: &Request) -> Answer {
    if let Err(error) = confine::confine(request.with_sandbox) {
        return Answer::Error { code: "reader_sandbox", message: error.to_string() };
    }
    let Some(kind) = request.kind else { return Answer::Ready };
    let mut bytes = Vec::new();
    let limit = MAX_FILE_BYTES as u64 + 1;
    let read = match stdin().take(limit).read_to_end(&mut bytes) {
        Ok(_) => werkruf_reader::read(kind, bytes),
        Err(_) => Err(ReadError::CutOff),
    };
    match read {
        Ok(text) => Answer::Text(text),
        Err(error) => Answer::Error { code: "unreadable", message: error.to_string() },
    }
}
