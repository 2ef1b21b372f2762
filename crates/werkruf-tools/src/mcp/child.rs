//! The process of a server that speaks over its standard input and output. It belongs to this server: it gets a clean environment, and it and what
//! it has started end with it.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use werkruf_contract::Deadline;

/// The variables of the server's own environment that a program needs to run. None of them is a secret.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];
/// How long a program may take to end after its input was closed.
const GRACE: Duration = Duration::from_secs(1);
/// What is logged of a program's error output in a second.
const LOGGED_LINES: u32 = 50;
const LOGGED_BYTES: u64 = 2_048;

/// A running program and everything in its process group.
pub(super) struct OwnedChild {
    child: Child,
    group: Option<Pid>,
}

/// The ends of the program's pipes.
pub(super) struct Pipes {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: ChildStderr,
}

impl OwnedChild {
    pub(super) fn start(command: &str, args: &[String], env: &[(String, String)]) -> io::Result<(Self, Pipes)> {
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut child = Command::new(command)
            .args(args)
            .env_clear()
            .envs(inherited)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipe = || io::Error::other("the program has no pipe");
        let input = child.stdin.take().ok_or_else(pipe)?;
        let output = child.stdout.take().ok_or_else(pipe)?;
        let errors = child.stderr.take().ok_or_else(pipe)?;
        Ok((Self { child, group }, Pipes { input, output, errors }))
    }

    /// Waits a moment for the program, whose input is closed by now, and then kills it with all that it has started.
    pub(super) async fn end(mut self) {
        let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
        self.kill();
        let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // The group is gone where all of it has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads what the program writes to its error output, so that it never blocks, and logs some of it.
pub(super) async fn log_errors(server: String, errors: impl AsyncRead + Unpin) {
    let mut errors = BufReader::new(errors);
    let (mut lines, mut second) = (0_u32, Deadline::after(Duration::from_secs(1)));
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = tokio::io::AsyncReadExt::take(&mut errors, LOGGED_BYTES);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if second.passed() {
            (lines, second) = (0, Deadline::after(Duration::from_secs(1)));
        }
        lines += 1;
        if lines <= LOGGED_LINES {
            tracing::debug!(target: "werkruf::mcp", server, "{}", String::from_utf8_lossy(&line).trim_end());
        }
    }
}
