//! Runs the real binary in its own folder, with its own environment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// A test that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder in which commands run.
pub struct TestFolder {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Stdout as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error on stderr as JSON.
    pub fn error(&self) -> Value {
        let line = self.stderr.lines().rfind(|line| line.starts_with("{\"error\"")).unwrap_or_else(|| panic!("no error: {self:?}"));
        serde_json::from_str::<Value>(line).unwrap()["error"].clone()
    }

    /// Asserts the exit code.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

impl TestFolder {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path().join(name), text).unwrap();
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_werkruf"));
        command.args(arguments).current_dir(self.path()).env_clear().envs(self.variables.iter().cloned());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> CommandOutput {
        let mut child = self.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that refuses its input does not read all of it.
        let _ = child.stdin.take().unwrap().write_all(input.as_ref());
        CommandOutput::of(&child.wait_with_output().unwrap())
    }

    /// Starts a command in the background.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts a server and waits until it has printed its address.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0", arguments)
    }

    /// Starts a server at this address.
    pub fn serve_at(&self, address: &str, arguments: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", address];
        all.extend(arguments);
        let mut child = self.command(&all).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut output = String::new();
        // The line about the key is the last one at the start.
        while !output.contains("curl ") && !output.contains("\nKey: ") {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the server ended: {output}");
            output.push_str(&line);
        }
        Server { child, output, _stdout: lines }
    }
}

/// A running server; dropping it kills the process.
pub struct Server {
    child: Child,
    pub output: String,
    /// Kept open so that the server does not write to a closed pipe.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub fn address(&self) -> String {
        let start = self.output.find("http://").unwrap();
        self.output[start..].split_whitespace().next().unwrap().to_owned()
    }

    /// The key in the printed curl line.
    pub fn key(&self) -> String {
        let rest = self.output.split("Bearer ").nth(1).unwrap();
        rest.split('\'').next().unwrap().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end, with a timeout.
    pub fn ended(mut self) -> ExitStatus {
        let (sender, receiver) = mpsc::channel();
        let id = self.child.id();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(self.child.wait().unwrap()).unwrap());
            receiver.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
                let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                panic!("the server did not end")
            })
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
