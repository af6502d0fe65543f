//! Waiting for descriptors.

use super::Threads;
use gmp_netpoll::{Key, Readiness};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// How long a look at the poller may wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum PollWait {
    /// Only look.
    Never,
    /// Until something happens or this much time has passed.
    For(Duration),
    /// Until something happens.
    Forever,
}

/// Whether the poller's wait was broken from inside the runtime.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Broken {
    /// `break_poll` was called, and this look has swallowed it.
    Yes,
    /// It was not.
    No,
}

/// The poller of one runtime.
pub(crate) trait Poll: Threads {
    /// Waits for descriptors to become ready, and hands each to `found`. An error: it can't wait for them, now or later.
    fn poll(
        &self,
        local: &Self::Local,
        wait: PollWait,
        found: impl FnMut(Key, Readiness),
    ) -> io::Result<Broken>;
    /// Ends the wait of the M that blocks in `poll`, now or when it begins. An error: the wait goes on.
    fn break_poll(&self) -> io::Result<()>;
    /// Has the poller watch a descriptor, edge-triggered, in both directions.
    fn watch(&self, fd: RawFd, key: Key) -> io::Result<()>;
    /// Ends the watch of a descriptor.
    fn unwatch(&self, fd: RawFd) -> io::Result<()>;
}
