//! How full the file system of the database is.

use std::io;
use std::path::Path;

/// Less free space than this is little, where the configuration says nothing else.
const MIN_FREE_MIB: u64 = 1024;
/// Or less than this share of the file system.
const MIN_FREE_PERCENT: u64 = 5;
const MIB: u64 = 1024 * 1024;

/// What is free for the server, and how large the file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    free_mib: u64,
    size_mib: u64,
}

impl Space {
    /// Of the file system that has this file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        let mib = |blocks: u64| blocks.saturating_mul(found.f_frsize) / MIB;
        Ok(Self { free_mib: mib(found.f_bavail), size_mib: mib(found.f_blocks) })
    }

    /// A sentence about it, if too little is free.
    pub(super) fn complaint(self, min_free_mib: Option<u64>) -> Option<String> {
        let low = match min_free_mib {
            Some(least) => self.free_mib < least,
            None => self.free_mib < MIN_FREE_MIB || self.free_mib.saturating_mul(100) < self.size_mib.saturating_mul(MIN_FREE_PERCENT),
        };
        let Self { free_mib, size_mib } = self;
        low.then(|| format!("The disk of the database has {free_mib} MiB of {size_mib} MiB left."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_less_than_a_gibibyte_or_five_percent_or_what_is_configured() {
        let low = |free_mib, size_mib, least| Space { free_mib, size_mib }.complaint(least).is_some();
        assert_eq!([low(1023, 2000, None), low(1024, 2000, None)], [true, false]);
        assert_eq!([low(4999, 100_000, None), low(5000, 100_000, None)], [true, false]);
        assert_eq!([low(1, 100_000, Some(1)), low(0, 100_000, Some(1)), low(9, 10, Some(10))], [false, true, true]);
        assert!(Space::of(Path::new("/")).unwrap().size_mib > 0);
    }
}
