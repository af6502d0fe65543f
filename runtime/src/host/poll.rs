//! Waiting for descriptors.

use super::Threads;
use gmp_netpoll::{Key, Readiness, Timeout, Woken};
use std::io;
use std::os::fd::RawFd;

/// The directions in which a descriptor is watched.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interest {
    /// For reads alone: no event says that there is room to write.
    Reads,
    /// For reads and writes.
    Both,
}

/// The poller of one runtime.
pub(crate) trait Poll: Threads {
    /// Waits for descriptors to become ready, and hands the event of each to `found`, with the value that `begin` has returned.
    /// `begin` is called once, after the wait, if there is any event. Returns whether this poll has consumed a break. An error
    /// means that the poller can't wait, now or later.
    fn poll<T>(
        &self,
        local: &Self::Local,
        wait: Timeout,
        begin: impl FnOnce() -> T,
        found: impl FnMut(&mut T, Key, Readiness),
    ) -> io::Result<Woken>;
    /// Ends the wait of the M that blocks in `poll`, or else the next wait. An error means that the wait goes on.
    fn break_poll(&self) -> io::Result<()>;
    /// Makes the poller watch a descriptor, edge-triggered.
    fn watch(&self, fd: RawFd, key: Key, interest: Interest) -> io::Result<()>;
    /// Makes the poller watch a descriptor in both directions, which it has watched for reads. Readiness that is there already
    /// is reported.
    fn watch_writes(&self, fd: RawFd, key: Key) -> io::Result<()>;
    /// Ends the watch of a descriptor.
    fn unwatch(&self, fd: RawFd) -> io::Result<()>;
}
