//! Starts, measures and stops server processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Kernel clock ticks per second; fixed at 100 on every Linux this runs on.
const TICKS: f64 = 100.0;

/// A child process that is stopped when dropped.
pub struct Child {
    child: std::process::Child,
    /// The first `http://…` it printed.
    pub url: String,
}

impl Child {
    /// Starts a program and waits until it prints its address.
    pub fn start(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self, String> {
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut lines = BufReader::new(output).lines();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| address(&line));
        let url = url.ok_or_else(|| format!("{} did not say where it listens", program.display()))?;
        // Keep reading the pipe, so that the child never blocks on its own output.
        #[expect(clippy::disallowed_methods, reason = "ends with the child's output")]
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, url })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str) -> Option<String> {
    let from = line.find("http://")?;
    let rest = &line[from..];
    let end = rest.find(|c: char| c.is_whitespace() || c == '"' || c == '\'').unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('/').to_owned())
}

/// User and system CPU time of a process.
pub fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| format!("the server is gone: {error}"))?;
    // The name may contain spaces; all fields after its closing parenthesis are numbers.
    let (_, numbers) = stat.rsplit_once(") ").ok_or("an odd /proc/stat")?;
    let field = |at: usize| numbers.split(' ').nth(at).and_then(|text| text.parse::<f64>().ok()).ok_or("an odd /proc/stat");
    Ok((field(11)? + field(12)?) / TICKS)
}

/// The peak memory of a process.
pub fn peak_mib(pid: u32) -> Result<f64, String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("an odd /proc/status")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| "an odd /proc/status")?;
    Ok(kib / 1024.0)
}
