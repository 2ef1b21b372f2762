//! Confines this process before it reads a file: memory, time, files and network.
//!
//! Landlock denies access to files and TCP; limits of the process deny the rest: without a free file descriptor there is no file, socket
//! or pipe to open. Landlock needs descriptors itself, so their limit is the last step.

use std::time::Duration;

/// The memory of the process, the file itself included.
pub const MAX_MEMORY: u64 = 1024 * 1024 * 1024;
/// The processor time of the process.
pub const MAX_CPU: Duration = Duration::from_secs(60);

/// Landlock is missing or off in this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this system has no Landlock, so a file cannot be read in a sandbox")]
pub struct NoSandbox;

/// Limits the process, and puts it into a sandbox if it should have one.
pub fn confine(with_sandbox: bool) -> Result<(), NoSandbox> {
    limit();
    if with_sandbox {
        sandbox()?;
    }
    no_new_descriptors();
    Ok(())
}

#[cfg(target_os = "linux")]
fn set(resource: rustix::process::Resource, value: u64) {
    // At the processor time itself the process gets a signal that names the cause; a second later it is killed.
    let maximum = value + u64::from(resource == rustix::process::Resource::Cpu);
    // A lower limit of the system stays; it cannot be raised.
    let limit = rustix::process::Rlimit { current: Some(value), maximum: Some(maximum) };
    let _ = rustix::process::setrlimit(resource, limit);
}

/// Memory, processor time, written files and core dumps; no process gets more rights than this one.
#[cfg(target_os = "linux")]
fn limit() {
    use rustix::process::Resource;
    set(Resource::As, MAX_MEMORY);
    set(Resource::Cpu, MAX_CPU.as_secs());
    set(Resource::Fsize, 0);
    set(Resource::Core, 0);
    let _ = rustix::thread::set_no_new_privs(true);
}

#[cfg(target_os = "linux")]
fn no_new_descriptors() {
    set(rustix::process::Resource::Nofile, 0);
}

/// Denies this thread, and all it starts, every access to files, and TCP and signals to others if the kernel knows them.
#[cfg(target_os = "linux")]
pub fn sandbox() -> Result<(), NoSandbox> {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
    // The newest version that this program was tested with; an older kernel enforces what it knows.
    let version = ABI::V7;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(version))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(version)))
        .and_then(|rules| rules.scope(Scope::from_all(version)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|_| NoSandbox)?;
    if ruleset.ruleset == RulesetStatus::NotEnforced { Err(NoSandbox) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn limit() {}

#[cfg(not(target_os = "linux"))]
fn no_new_descriptors() {}

/// Only Linux has Landlock.
#[cfg(not(target_os = "linux"))]
pub fn sandbox() -> Result<(), NoSandbox> {
    Err(NoSandbox)
}
