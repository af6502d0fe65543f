//! What the server's process has used.

use std::fs;

pub struct Process(pub u64);

impl Process {
    /// What all threads have used of a CPU, in nanoseconds; those that have ended, too.
    pub fn cpu_time(&self) -> u64 {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: it writes the clock's number.
        let found = unsafe { libc::clock_getcpuclockid(self.0 as libc::pid_t, &raw mut clock) };
        // SAFETY: it writes the time.
        let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
        assert!(found == 0 && read == 0, "the server, process {}, does not run", self.0);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Resident memory, in bytes. Counted page by page: `status` may be off by as many pages as CPUs have not told of yet.
    pub fn resident(&self) -> u64 {
        self.bytes("smaps_rollup", "Rss:")
    }

    /// Page tables, in bytes.
    pub fn page_tables(&self) -> u64 {
        self.bytes("status", "VmPTE:")
    }

    fn bytes(&self, file: &str, name: &str) -> u64 {
        let path = format!("/proc/{}/{file}", self.0);
        let text = fs::read_to_string(&path).unwrap_or_else(|refused| panic!("{path}: {refused}"));
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a known name");
        let kb = line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok());
        kb.expect("kilobytes") * 1024
    }
}
