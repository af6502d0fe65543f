//! The covers of the parts that wait for descriptors.

use super::sched::Handle;
use crate::g::list::GList;
use crate::host::{Active, Clock};
use crate::net::desc::{Begun, Direction, Kept, PollDesc as Desc, Turn, Waited};
use crate::net::io_lock::{Holder, IoLock as Inner, socket_fence};
use crate::net::socket::{Rest, Socket as Sock};
use crate::wait::task::Carried;
use crate::wait::waiter::Wait;
use gmp_netpoll::Readiness;
use gmp_timers::Nanos;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, Waker};

/// `net/desc.rs`, the reading side.
pub struct PollDesc(Desc<Active>);

impl Default for PollDesc {
    fn default() -> Self {
        Self::new()
    }
}

impl PollDesc {
    /// A slot without an event.
    pub fn new() -> Self {
        PollDesc(Desc::new())
    }
    /// A slot whose events are marked for tasks.
    pub fn of_tasks() -> Self {
        let desc = Desc::new();
        desc.mark_from_the_first();
        PollDesc(desc)
    }
    /// Does what the poller does for an event for which nobody waits.
    pub fn report(&self, readiness: Readiness) {
        self.0.unblock(readiness, &mut GList::new(), &mut drop);
    }
    /// Begins a call, as a task. Returns `None` if a task may not call now.
    pub fn begin_call(&self) -> Option<Turn> {
        if let Begun::Call(turn) = self.0.begin_task(Direction::Read) { Some(turn) } else { None }
    }
    /// Makes a short read, as a task, unless a task may not call now. Returns `true` if an event came before.
    pub fn read_short(&self) -> bool {
        let Begun::Call(turn) = self.0.begin_task(Direction::Read) else { return false };
        self.0.note_drained(Direction::Read, turn);
        turn != Turn::FIRST
    }
    /// Returns `true` if a task that is polled waits for an event, and makes no call.
    pub fn has_a_task_wait(&self) -> bool {
        while let Begun::Wait(turn) = self.0.begin_task(Direction::Read) {
            drop(self.0.keep(Direction::Read, Waker::noop().clone()));
            if self.0.wait_as_task(Direction::Read, turn) == Kept::Pending {
                return true;
            }
        }
        false
    }
    /// Parks the calling goroutine until an event, or a nudge. Returns `true` for an event, which the goroutine
    /// takes.
    pub fn wait(&self) -> bool {
        self.wait_unless(|| false)
    }
    /// As `wait`, for an owner that looks once more between its announcement and its park.
    pub fn wait_unless(&self, closed: impl FnOnce() -> bool) -> bool {
        self.wait_until(|| if closed() { None } else { Some(None) })
    }
    /// As `wait_unless`, with the end of the wait, in nanoseconds of the model's clock. The event stays in the slot.
    pub fn give_up_at(&self, until: u64) -> bool {
        let waited = self.0.wait(Wait::begin(), Direction::Read, || Some(Some(Nanos::from_nanos(until))));
        waited == Waited::Ready
    }
    fn wait_until(&self, look: impl FnOnce() -> Option<Option<Nanos>>) -> bool {
        let event = self.0.wait(Wait::begin(), Direction::Read, look) == Waited::Ready;
        if event {
            self.0.clear(Direction::Read);
        }
        event
    }
    /// Does what the poller does, on a thread of the model's own.
    pub fn event(&self, runtime: &Handle, readiness: Readiness) {
        let (mut found, mut tasks) = (GList::new(), Carried::nothing());
        self.0.unblock(readiness, &mut found, &mut |waker| tasks.push(&runtime.0, waker));
        tasks.wake(&runtime.0, &mut found);
        runtime.0.inject(found);
    }
    /// Does what a close does.
    pub fn look(&self, runtime: &Handle) {
        let mut found = GList::new();
        if let Some(g) = self.0.look(Direction::Read) {
            found.push(g);
        }
        runtime.0.inject(found);
    }
}

/// `net/io_lock.rs`.
pub struct IoLock(Inner<Active>);

impl Default for IoLock {
    fn default() -> Self {
        Self::new()
    }
}

impl IoLock {
    /// A free lock.
    pub fn new() -> Self {
        IoLock(Inner::new())
    }
    /// Blocks the caller until it has the lock; dropping the result hands the lock on.
    ///
    /// # Panics
    /// If it is interrupted.
    pub fn take(&self) -> impl Drop + '_ {
        self.take_unless(|| false).expect("take: nothing is in the way")
    }
    /// As `take`, but returns `None` once `closed`, asked at first and after each nudge, returns `true`.
    pub fn take_unless(&self, closed: impl Fn() -> bool) -> Option<HeldIoLock<'_>> {
        self.take_by(|| if closed() { Err(()) } else { Ok(None) })
    }
    /// As `take`, until so many nanoseconds of the model's clock.
    pub fn take_before(&self, until: u64) -> Option<HeldIoLock<'_>> {
        let until = Nanos::from_nanos(until);
        self.take_by(move || if Active::now() < until { Ok(Some(until)) } else { Err(()) })
    }
    fn take_by(&self, look: impl Fn() -> Result<Option<Nanos>, ()>) -> Option<HeldIoLock<'_>> {
        self.0.take(look).ok().map(HeldIoLock)
    }
    /// Does what a closer, or a setter of a deadline, does after its mark.
    pub fn nudge_all(&self) {
        socket_fence();
        if !self.0.is_free() {
            self.0.nudge_waiters();
        }
    }
    /// Blocks the closer, which has marked and fenced, until no system call is under way.
    pub fn wait_idle(&self) {
        self.0.wait_idle();
    }
}

/// An I/O lock that is held.
pub struct HeldIoLock<'a>(Holder<'a, Active>);

impl HeldIoLock<'_> {
    /// Says that no system call is under way.
    pub fn rest(&self) {
        self.0.rest();
    }
    /// Goes on after a rest, before a look.
    pub fn go_on(&self) {
        self.0.go_on();
    }
}

impl Drop for HeldIoLock<'_> {
    fn drop(&mut self) {}
}

/// `net/socket.rs`, over a kernel that the model plays.
pub struct Socket(Sock<File>);

impl Socket {
    /// Makes a socket, which the poller watches from the first wait on.
    ///
    /// # Panics
    /// If `/dev/null` can't be opened.
    pub fn new() -> Self {
        Socket(Sock::new(File::open("/dev/null").expect("a descriptor to stand for the socket")))
    }
    /// Reads at most `len` bytes as from a stream, by `call`.
    ///
    /// # Errors
    /// Those of `call`, except `WouldBlock`.
    pub fn read(&self, len: usize, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        self.0.run_read(len, |_| Rest::AsTold.after(call()))
    }
    /// Writes, by `call`.
    ///
    /// # Errors
    /// Those of `call`, except `WouldBlock`.
    pub fn write(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        self.0.run(Direction::Write, |_| call())
    }
    /// One poll of a task for a read of at most `len` bytes as from a stream, by `call`.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, len, |_| Rest::AsTold.after(call()))
    }
    /// One poll of a task for a write, by `call`.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |_| call())
    }
    /// Calls `call` without an I/O lock.
    ///
    /// # Errors
    /// Those of `call`, and of a closed socket.
    pub fn with(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.0.with(|_| call())
    }
    /// As `with`, for a function of the user.
    ///
    /// # Errors
    /// Those of `call`, and of a closed socket.
    pub fn lend(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.0.lend(|_| call())
    }
    /// Ends the writes by `call`, as those of a Unix socket end.
    ///
    /// # Errors
    /// Those of `call`, and of a closed socket.
    pub fn end_writes(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.0.shut_down(Shutdown::Write, |_| call())
    }
    /// Closes the socket.
    ///
    /// # Errors
    /// If the socket was closed before.
    pub fn close(&self) -> io::Result<()> {
        self.0.close()
    }
    /// Sets the read deadline: to one that has passed, or to none.
    ///
    /// # Errors
    /// If the socket was closed before.
    pub fn set_expired(&self, expired: bool) -> io::Result<()> {
        self.0.set_deadline(Direction::Read, expired.then(|| Active::instant(Nanos::ZERO)))
    }
}

impl Default for Socket {
    fn default() -> Self {
        Self::new()
    }
}
