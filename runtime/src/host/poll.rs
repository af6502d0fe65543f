//! Waiting for descriptors.

use super::Threads;
use gmp_netpoll::{Key, Readiness};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// How long a poll may wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum PollWait {
    /// Returns at once.
    Never,
    /// Waits for an event, or until this much time has passed.
    For(Duration),
    /// Waits for an event.
    Forever,
}

/// The directions in which a descriptor is watched.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interest {
    /// For reads alone: no event says that there is room to write.
    Reads,
    /// For reads and writes.
    Both,
}

/// Whether `break_poll` ended the poller's wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Broken {
    /// `break_poll` was called, and this poll has consumed that break.
    Yes,
    /// No break was consumed.
    No,
}

/// The poller of one runtime.
pub(crate) trait Poll: Threads {
    /// Waits for descriptors to become ready, and hands the event of each to `found`, with the value that `begin` has returned.
    /// `begin` is called once, after the wait, if there is any event. An error means that the poller can't wait, now or later.
    fn poll<T>(
        &self,
        local: &Self::Local,
        wait: PollWait,
        begin: impl FnOnce() -> T,
        found: impl FnMut(&mut T, Key, Readiness),
    ) -> io::Result<Broken>;
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
