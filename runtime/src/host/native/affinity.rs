//! The CPUs on which a thread may run.

use super::thread::spawn_scoped;
use crate::runtime::cpu_sets::{CPUS, CpuSet};
use std::io;

/// As many words as the kernel of any machine needs.
const MOST_WORDS: usize = 8192 / 64;

fn done(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the CPUs on which a thread of the process may run, by the kernel's number; 0 stands for the calling thread.
pub(super) fn get(thread: u32) -> io::Result<CpuSet> {
    let mut cpus = CpuSet::EMPTY;
    match read(thread, &mut cpus.0) {
        // The machine may have more CPUs some day than the set has bits.
        Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => read_long(thread),
        read => read.map(|()| cpus),
    }
}

/// Does the same as `get`, on a machine that may have more than `CPUS` CPUs.
#[cold]
fn read_long(thread: u32) -> io::Result<CpuSet> {
    let mut words = [0; MOST_WORDS];
    read(thread, &mut words)?;
    let (known, others) = words.split_at(CPUS / 64);
    if others.iter().any(|&word| word != 0) {
        return Err(io::Error::other(format!("the thread may run on CPUs whose numbers are {CPUS} or more")));
    }
    Ok(CpuSet(known.try_into().expect("read_long: as many words as a set has")))
}

fn read(thread: u32, words: &mut [u64]) -> io::Result<()> {
    // SAFETY: the call writes as many bytes as `words` has at most. The kernel's set is one of `unsigned long`s, of 64 bits
    // each on all targets of this host.
    done(unsafe {
        libc::sched_getaffinity(thread as libc::pid_t, size_of_val(words), words.as_mut_ptr().cast())
    })
}

/// Sets the CPUs on which a thread of the process may run. The kernel leaves out CPUs that the thread's cgroup does not have,
/// and refuses a set of which none is left.
pub(super) fn set(thread: u32, cpus: &CpuSet) -> io::Result<()> {
    let words = &cpus.0;
    // SAFETY: the call reads as many bytes as the set has; otherwise as in `read`.
    done(unsafe { libc::sched_setaffinity(thread as libc::pid_t, size_of_val(words), words.as_ptr().cast()) })
}

/// Returns the CPUs that a thread has after it has asked for `cpus`: a thread made for this, so that no other one is moved.
pub(super) fn on_trial(cpus: &CpuSet) -> io::Result<CpuSet> {
    std::thread::scope(|scope| {
        let trial = spawn_scoped(scope, "gmp-trial", || set(0, cpus).and_then(|()| get(0)))?;
        trial.join().unwrap_or_else(|_| Err(io::Error::other("the trial has panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where the caller's CPUs change, or a refusal is none.
    #[test]
    fn a_trial_tells_what_a_thread_would_have_and_moves_nobody() {
        let own = get(0).unwrap();
        assert_eq!(on_trial(&own).unwrap(), own);
        let mut last = CpuSet::EMPTY;
        last.add(crate::runtime::cpu_sets::CPUS - 1);
        if let Err(refused) = on_trial(&last) {
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(on_trial(&CpuSet::EMPTY).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(get(0).unwrap(), own);
    }
}
