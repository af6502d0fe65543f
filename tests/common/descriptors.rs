//! As many descriptors as a test needs.

use std::fs::File;

/// Raises this process's limit of descriptors, which its children inherit, if it is lower.
#[track_caller]
pub fn allow_descriptors(wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one valid `rlimit`, read and written.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    assert!(
        limit.rlim_cur >= wanted,
        "{wanted} descriptors are needed, `ulimit -Hn` allows {}",
        limit.rlim_max
    );
}

/// Takes all descriptors that this process may have: 64 from here on, so this is for a child process.
pub fn all_descriptors() -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}
