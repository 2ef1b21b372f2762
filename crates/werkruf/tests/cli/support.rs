//! Runs the real binary in a folder of its own, with an environment of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder in which commands run.
pub struct Place {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
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

    /// The same, if the exit code is this one.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

impl Place {
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

    pub fn run(&self, arguments: &[&str]) -> Done {
        Done::of(&self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Done {
        let mut child = self.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Done::of(&child.wait_with_output().unwrap())
    }

    /// A command that runs beside the test.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A server that has said where it listens.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0", arguments)
    }

    /// The same, at this address.
    pub fn serve_at(&self, address: &str, arguments: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", address];
        all.extend(arguments);
        let mut child = self.command(&all).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        // The line about the key is the last of the start.
        while !said.contains("curl ") && !said.contains("\nKey: ") {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the server ended: {said}");
            said.push_str(&line);
        }
        Server { child, said, _stdout: lines }
    }
}

/// A running server; killed with the test.
pub struct Server {
    child: Child,
    pub said: String,
    /// Kept open: a server must not meet a closed pipe.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub fn address(&self) -> String {
        let start = self.said.find("http://").unwrap();
        self.said[start..].split_whitespace().next().unwrap().to_owned()
    }

    /// The key in the printed curl line.
    pub fn key(&self) -> String {
        let rest = self.said.split("Bearer ").nth(1).unwrap();
        rest.split('\'').next().unwrap().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end, but not for ever.
    pub fn ended(mut self) -> ExitStatus {
        let (sender, receiver) = mpsc::channel();
        let id = self.child.id();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(self.child.wait().unwrap()).unwrap());
            receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                panic!("the server does not end")
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
