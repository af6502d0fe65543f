//! The parts that all sockets share: a non-blocking descriptor, an I/O lock and a time limit for each direction, and a
//! registration in the poller of each runtime whose goroutines have waited for it.
//!
//! An operation takes its direction's I/O lock, calls `look`, makes the system call, and waits if the kernel answers
//! `EAGAIN`: a goroutine in its runtime's poller, a plain thread in `poll(2)`. `errno` is read before the goroutine
//! can park.
//!
//! *`look`* checks whether the socket is closed and whether the time is over. An operation calls it before each
//! system call, and once more when its wait is announced. So a deadline that has passed wins over data that is there.
//! A closer, or the setter of a deadline, stores the change, fences, and makes all operations in that direction call
//! `look` again: waiters in the queue of the I/O lock by a nudge, the owner in pollDesc's slot by `Cause::Look`, a
//! thread in `poll(2)` by its wake fd.
//!
//! *Close.* C1 mark · C2 SocketFence · C3 make all operations call `look`, and wait until no system call is under way, in
//! either direction (`io_lock.rs`) or beside them (`fd.rs`) · deregister in every runtime · close the descriptor · wake the
//! tasks that wait. The closer does not wait for a parked goroutine: that goroutine has its I/O lock, but is in no system call,
//! and calls `look` before it goes on. The list of registrations stays until the socket is dropped, as a goroutine that wakes
//! from its slot later still reads it.
//!
//! *Drained without asking.* On a stream a read that filled less than its buffer has emptied the socket, with the exceptions
//! that `net/unix/stream.rs` names for Unix streams. The next read then waits for an event first, which saves a system call
//! that would only answer `EAGAIN`. The read does not wait first if the peer's end, or an error, was seen: that may have come
//! in the same event as the data, and no other event will follow. If the poller does not watch the socket yet, the read
//! registers the socket before it waits, and the kernel reports what is there already. The event slot is emptied before each
//! system call, never after it; a drained read that finds an event in the slot takes it and makes the system call.
//!
//! *Reads alone.* A socket that waits for data nearly always has room to write. The kernel would report that room with each
//! event, and make an event of its own for each datagram that was sent. So a registration that a read has made is for reads
//! alone until a write has to wait: W1 the write's system call gets `EAGAIN` · W2 the poller watches both directions · W3 wait.
//! At W2 the kernel reports room that is there already, so room that came between W1 and W2 is reported, too.
//!
//! *The end of a Unix socket's writes* (`Shutdown::Write`) makes each later write fail, but is no event: epoll finds neither
//! room nor the end of both directions. So the goroutine or thread that shuts the socket down wakes the writers.
//!
//! ```text
//!   writer                                             who shuts down
//!
//!   X1  system call: EAGAIN                            Y1  system call
//!   X2  under the registrations' lock: register,       Y2  mark the writes as ended
//!       if there is no registration                    Y3  SocketFence
//!   X3  registered just now, and the mark is there?    Y4  under the registrations' lock: which there are
//!       from X1                                        Y5  in each: the event that there is room
//!   X4  wait
//! ```
//! If the registration comes before Y4, the event of Y5 is kept for X4, as is any event that comes after a system call; else X3
//! sees the mark of Y2. A plain thread has no registration, and looks for the mark in B3 (`wake_fd.rs`). X3 looks for the mark
//! once in an operation, so that an operation on a socket of some other kind, whose writes go on to get `EAGAIN`, waits for its
//! events. A writer through a duplicate of the descriptor is not known here, and waits until there is room.
//!
//! *Tasks* poll, and take no I/O lock: `net/socket/task.rs`. A closer waits for a task's system call as for any user's. When
//! all else is done, the closer wakes the tasks that wait, and has foreign wakers called on another thread: a foreign waker may
//! wait for the closer, or for the peer, which must have seen the end by then. The goroutine or thread that ends the writes
//! wakes tasks when it is no user of the descriptor any more: a waker may close the socket, and the waking thread calls the
//! waker itself if no other thread can be had.

use crate::g::list::GList;
use crate::host::Active;
use crate::net::desc::{Direction, PollDesc};
use crate::net::fd::{Use, Users};
use crate::net::io_lock::{IoLock, socket_fence};
use crate::net::limit::{Begun, Limit};
use crate::net::wake_fd::WakeFd;
use crate::net::{closed, sys};
use crate::prim::hooks::*;
use crate::prim::{AtomicBool, AtomicPtr, Mutex, Rank, Relaxed};
use crate::runtime::lines::WaitInLine;
use crate::sched::Sched;
use crate::sched::watch::told::Refusal;
use crate::wait::task::{Discarded, FoundTasks};
use gmp_netpoll::Readiness;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

mod operation;
mod present;
mod registry;
mod task;

use present::Present;
use registry::{Registration, Watch};

/// Waits in line to look a name up, for an operation on a socket.
pub(crate) type WaitsForName<'a> = &'a dyn Fn(WaitInLine<'_>) -> io::Result<()>;

/// What is known of what a read has left in the socket.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Rest {
    /// Nothing, if the read was short.
    AsTold,
    /// There may be more behind a short read.
    Unknown,
}

impl Rest {
    /// Returns the outcome of a read that has left this.
    #[inline(always)]
    pub(crate) fn after(self, read: io::Result<usize>) -> io::Result<(usize, Rest)> {
        read.map(|got| (got, self))
    }
}

struct Lane {
    io_lock: IoLock<Active>,
    limit: Limit,
    wake_fd: WakeFd,
    /// Read and written by the holder of the I/O lock only.
    drained: AtomicBool,
    /// Whether this direction has ended, and no event says so.
    ended: AtomicBool,
}

impl Lane {
    fn new() -> Self {
        Lane {
            io_lock: IoLock::new(),
            limit: Limit::new(),
            wake_fd: WakeFd::new(),
            drained: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Whether an operation that is about to wait must make its system call again, as no event will report the outcome.
    fn has_ended(&self) -> bool {
        // Relaxed: ordered by the registrations' lock, or SocketFence: partner Y2.
        self.ended.load(Relaxed)
    }
}

/// A descriptor, with the state for waits on that descriptor.
pub(crate) struct Socket<S: AsFd> {
    /// Moved out once `freed` is set.
    inner: ManuallyDrop<S>,
    freed: AtomicBool,
    /// Whether other descriptors may refer to the same connection: made by `try_clone`, or before the socket came
    /// here. Duplicates that a borrower makes are not known.
    shared: AtomicBool,
    /// Whether the descriptor was made outside, and is of another kind than its type says: a short read does not say that
    /// nothing is left.
    foreign: bool,
    /// Whether the descriptor may be borrowed from code that goes on using it: a close has to leave the descriptor alone.
    borrowed: bool,
    users: Users,
    read: Lane,
    write: Lane,
    present: Present,
    /// A list that only grows, one entry for each runtime, freed with the socket.
    registrations: AtomicPtr<Registration>,
    watches: Mutex<Vec<Watch>>,
}

// SAFETY: `registrations` is a list of shared entries, with atomics and fields that are never written; the other
// fields are Send if `S` is.
unsafe impl<S: AsFd + Send> Send for Socket<S> {}
// SAFETY: as for `Send`; and `close` drops `inner` by a shared reference, on its caller's thread.
unsafe impl<S: AsFd + Send + Sync> Sync for Socket<S> {}

// A call that was unwound has given its I/O lock back, and leaves the socket as a call does that has timed out.
impl<S: AsFd + UnwindSafe> UnwindSafe for Socket<S> {}
impl<S: AsFd + RefUnwindSafe> RefUnwindSafe for Socket<S> {}

impl<S: AsFd + fmt::Debug> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The program's writer is called when this use is over: the writer may close the socket, or park and be left behind.
        // `S`'s own `fmt` runs within the use.
        let mut text = String::new();
        match self.users.enter() {
            Some(_open) if f.alternate() => write!(text, "{:#?}", &*self.inner)?,
            Some(_open) => write!(text, "{:?}", &*self.inner)?,
            None => text.push_str("Closed"),
        }
        f.write_str(&text)
    }
}

impl<S: AsFd> Socket<S> {
    /// Makes a socket of a new descriptor in non-blocking mode.
    pub(crate) fn new(inner: S) -> Self {
        Socket {
            inner: ManuallyDrop::new(inner),
            freed: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            foreign: false,
            borrowed: false,
            users: Users::new(),
            read: Lane::new(),
            write: Lane::new(),
            present: Present::new(),
            registrations: AtomicPtr::new(std::ptr::null_mut()),
            watches: Mutex::new(Rank::Registrations, Vec::new()),
        }
    }

    /// Does the same as `new`, for a descriptor that can have duplicates.
    pub(crate) fn of_shared(inner: S) -> Self {
        let socket = Self::new(inner);
        // Relaxed: no other thread has the socket yet.
        socket.shared.store(true, Relaxed);
        socket
    }

    /// Does the same as `of_shared`, for a descriptor that was made outside. `known`: the socket is of the kind that its type
    /// says.
    pub(crate) fn of_outside(inner: S, known: bool) -> Self {
        let mut socket = Self::of_shared(inner);
        socket.foreign = !known;
        socket
    }

    /// Sets the timeouts of reads and writes that the descriptor's earlier owner has set.
    pub(crate) fn with_timeouts(self, timeouts: [Option<Duration>; 2]) -> Self {
        for (lane, timeout) in [&self.read, &self.write].into_iter().zip(timeouts) {
            // Never refused: a timeout of zero, which is the kernel's for none, is `None` here.
            let _none = lane.limit.set_timeout(timeout);
        }
        self
    }

    /// Does the same as `new`, for a connection of `listener`: a socket of the same kind.
    pub(crate) fn of_accepted<L: AsFd>(listener: &Socket<L>, inner: S) -> Self {
        let mut socket = Self::new(inner);
        socket.foreign = listener.foreign;
        socket
    }

    /// Does the same as `of_shared`, for a value that may have borrowed its descriptor.
    pub(crate) fn of_borrowed(inner: S) -> Self {
        let mut socket = Self::of_shared(inner);
        socket.borrowed = true;
        socket
    }

    /// Does the same as `of_borrowed`, for a descriptor that others use as long as the process lives: no close ends it.
    pub(crate) fn of_lent(inner: S) -> Self {
        let socket = Self::of_borrowed(inner);
        // No closer has the socket yet.
        socket.users.lend();
        socket
    }

    /// Makes another descriptor of the same connection, and a socket around that.
    ///
    /// # Errors
    /// `closed`, and those of `clone`.
    pub(crate) fn try_clone(&self, clone: impl FnOnce(&S) -> io::Result<S>) -> io::Result<Self> {
        let inner = self.with(|inner| {
            // Relaxed: read by the closer, which waits for this call to end.
            self.shared.store(true, Relaxed);
            clone(inner)
        })?;
        let mut cloned = Self::of_shared(inner);
        cloned.foreign = self.foreign;
        Ok(cloned)
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    fn enter(&self) -> io::Result<Use<'_>> {
        self.users.enter().ok_or_else(closed)
    }

    /// Makes a call that never waits, without an I/O lock.
    ///
    /// # Errors
    /// `closed`, and those of `call`.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let _open = self.enter()?;
        call(&self.inner)
    }

    /// Does the same as `with`, for a function of the program's, to which the value is lent, and which may wait.
    ///
    /// # Errors
    /// As `with`.
    pub(crate) fn lend<R>(&self, call: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        self.enter()?.apart(|| call(&self.inner))
    }

    /// Returns the descriptor's number; -1 if the socket is closed.
    pub(crate) fn raw_fd(&self) -> RawFd {
        // As a user: the number may come from another library's value, which the closer must not drop meanwhile.
        self.users.enter().map_or(-1, |_open| self.fd())
    }

    /// The caller keeps the descriptor open.
    fn fd(&self) -> RawFd {
        self.inner.as_fd().as_raw_fd()
    }

    /// Returns the descriptor, which no poller watches any more.
    ///
    /// # Panics
    /// When the socket is closed.
    pub(crate) fn into_inner(self) -> S {
        assert!(!self.users.is_closed(), "the handle was closed: there is no descriptor to take over");
        self.deregister();
        // Relaxed, here and below: the caller owns the socket.
        self.freed.store(true, Relaxed);
        // SAFETY: `inner` is not used after `freed` is set.
        unsafe { std::ptr::read(&*self.inner) }
    }

    /// Closes the socket: wakes all operations that wait, waits for system calls to end, closes the descriptor. A
    /// descriptor that is lent out is buried, or, if it may be borrowed, stays until the drop.
    ///
    /// # Errors
    /// `closed`, for all calls but the first.
    pub(crate) fn close(&self) -> io::Result<()> {
        if !self.users.close() {
            return Err(closed());
        }
        let directions = [Direction::Read, Direction::Write];
        directions.into_iter().for_each(|direction| self.nudge_all(direction));
        mutant!(SocketCloseForgetsWrites: let directions = [Direction::Read; 2]);
        directions.into_iter().for_each(|direction| self.lane(direction).io_lock.wait_idle());
        self.users.wait_idle();
        // Dropped last, also if `inner` panics.
        let _wakes = WakesTasks(self);
        self.deregister();
        directions.into_iter().for_each(|direction| self.lane(direction).wake_fd.free());
        if self.users.is_lent() {
            if self.borrowed {
                return Ok(());
            }
            // If the dead socket can't be made, the descriptor itself keeps its number until the socket is dropped;
            // shutting the connection down tells the peer now. Relaxed: see `try_clone`.
            if sys::bury(self.fd()).is_err() && !self.shared.load(Relaxed) {
                sys::end_connection(self.fd());
            }
            return Ok(());
        }
        // Relaxed: read by `drop` and `into_inner`, whose caller owns the socket.
        self.freed.store(true, Relaxed);
        // SAFETY: no call uses `inner` any more, and none will: each call holds a direction's I/O lock, for which C3 has
        // waited, and checks the closed bit under that lock; or it is one of the users, the last of which `wait_idle` has seen
        // leave.
        drop(unsafe { std::ptr::read(&*self.inner) });
        Ok(())
    }

    /// # Errors
    /// `closed`.
    pub(crate) fn set_deadline(&self, direction: Direction, at: Option<Instant>) -> io::Result<()> {
        let _open = self.enter()?;
        self.lane(direction).limit.set_deadline(at);
        self.nudge_all(direction);
        Ok(())
    }

    /// # Errors
    /// `closed`; `InvalidInput` for zero.
    pub(crate) fn set_timeout(&self, direction: Direction, length: Option<Duration>) -> io::Result<()> {
        let _open = self.enter()?;
        self.lane(direction).limit.set_timeout(length)
    }

    /// # Errors
    /// `closed`.
    pub(crate) fn timeout(&self, direction: Direction) -> io::Result<Option<Duration>> {
        let _open = self.enter()?;
        Ok(self.lane(direction).limit.timeout())
    }

    /// Whether an operation may go on, and until when it may wait.
    #[inline]
    fn look(&self, lane: &Lane, begun: Begun) -> io::Result<Option<Nanos>> {
        if self.users.is_closed() {
            return Err(closed());
        }
        lane.limit.until(begun)
    }

    /// Makes all operations in a direction call `look`, after the caller has marked the socket closed or set a
    /// deadline.
    fn nudge_all(&self, direction: Direction) {
        socket_fence();
        if direction == Direction::Write {
            self.present.end();
        }
        let lane = self.lane(direction);
        // An operation that begins later sees the change: H3 of `io_lock.rs`.
        if lane.io_lock.is_free() {
            return;
        }
        unless!(SocketLeavesTheLine, lane.io_lock.nudge_waiters());
        for (sched, desc) in self.live() {
            mutant!(SocketLooksAtNoSlot: continue);
            if let Some(g) = desc.look(direction) {
                sched.submit(g);
            }
        }
        lane.wake_fd.wake();
    }

    /// Shuts a Unix socket down by `shuts`.
    pub(crate) fn shut_down(
        &self,
        how: Shutdown,
        shuts: impl FnOnce(&S) -> io::Result<()>,
    ) -> io::Result<()> {
        let open = self.enter()?;
        shuts(&self.inner)?;
        // The kernel reports the other ends of this socket by events.
        if how == Shutdown::Write {
            let tasks = self.tell_writers();
            // This thread may have to call a waker, which may close the socket, and a close waits for the socket's users.
            drop(open);
            tasks.wake_elsewhere::<Active>();
        }
        Ok(())
    }

    /// Y2 to Y5. The caller is a user of the descriptor, and wakes the tasks when it is no user any more.
    #[cold]
    fn tell_writers(&self) -> FoundTasks {
        // Relaxed: the lock and the fence order the mark: partner `has_ended`.
        unless!(SocketMarksTheEndLate, self.write.ended.store(true, Relaxed));
        socket_fence();
        let mut tasks = FoundTasks::None;
        for (sched, desc) in self.live() {
            mutant!(SocketEndsInSilence: continue);
            let mut found = GList::new();
            desc.unblock(Readiness::WRITABLE, &mut found, &mut |waker| tasks.push(waker));
            while let Some(g) = found.pop() {
                sched.submit(g);
            }
        }
        mutant!(SocketMarksTheEndLate: self.write.ended.store(true, Relaxed));
        self.write.wake_fd.wake();
        tasks
    }

    /// Makes the system call `call` under the direction's I/O lock, and waits each time the call would block.
    pub(crate) fn run<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let begun = self.lane(direction).limit.begin();
        self.operate((direction, begun), || call(&self.inner), |_| false)
    }

    /// Does the same as `run`, for a call that receives, or accepts, on a kind of socket for which the kernel reports the end
    /// of reads only to a call that waits: a call that does not wait gets `EAGAIN`, and no event follows. Returns the result of
    /// `end` then. A holder of a duplicate of the descriptor, in any process, may have ended the reads, too.
    pub(crate) fn run_receive<R>(
        &self,
        mut receives: impl FnMut(&S) -> io::Result<R>,
        end: impl Fn() -> io::Result<R>,
    ) -> io::Result<R> {
        self.run(Direction::Read, |socket| self.receive(|| receives(socket), &end))
    }

    /// Does the same as `run_receive`, for one poll of a task.
    pub(crate) fn poll_receive<R>(
        &self,
        cx: &mut Context<'_>,
        mut receives: impl FnMut(&S) -> io::Result<R>,
        end: impl Fn() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll(cx, Direction::Read, |socket| self.receive(|| receives(socket), &end))
    }

    /// One try of `run_receive`. The caller is a user of the descriptor, or has the I/O lock.
    fn receive<R>(
        &self,
        mut receives: impl FnMut() -> io::Result<R>,
        end: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let has_ended = || self.may_have_ended() && sys::has_ended_reads(self.inner.as_fd());
        match receives() {
            Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock && has_ended() => {}
            received => return received,
        }
        // A datagram may have come since the call, and before the end.
        match receives() {
            Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock => end(),
            received => received,
        }
    }

    /// Returns `false` if the poller of the caller's runtime works and watches the descriptor, and has reported no end.
    fn may_have_ended(&self) -> bool {
        let told = Sched::<Active>::current().filter(|sched| !sched.was_refused(Refusal::Poll));
        let desc = told.and_then(|sched| self.registered(sched));
        desc.is_none_or(PollDesc::has_told_of_an_end)
    }

    /// Does the same as `run` for writing to the address that `find` returns. `find` is given a function that waits in line for
    /// a turn to look the name up. If `find` calls it, then the time that `find` takes counts, and the timeout ends the call,
    /// too.
    pub(crate) fn run_to<R, T>(
        &self,
        find: impl FnOnce(WaitsForName<'_>) -> io::Result<T>,
        mut call: impl FnMut(&S, &T) -> io::Result<R>,
    ) -> io::Result<R> {
        let begun = self.write.limit.begin();
        self.look(&self.write, begun.of_calls())?;
        let by_name = Cell::new(false);
        // Before the I/O lock is taken: a close, and other writers, do not wait for a name.
        let to = find(&|wait| {
            by_name.set(true);
            self.wait_for_name(begun, wait)
        })?;
        let begun = if by_name.get() { begun.to_the_call() } else { begun };
        let call = || call(&self.inner, &to);
        self.operate((Direction::Write, begun), call, |_| false)
    }

    /// Waits in line until the turn comes, or a close or a limit ends the wait. If the deadline was moved, and has not passed,
    /// the caller waits again, behind the others.
    fn wait_for_name(&self, begun: Begun, wait: WaitInLine<'_>) -> io::Result<()> {
        loop {
            let present = self.present.context();
            // A change that this look does not see ends the context.
            let until = self.look(&self.write, begun)?;
            match present.under(|| wait(until)) {
                Err(_) if present.err().is_some() => {}
                waited => return waited,
            }
        }
    }

    /// Calls `f`, a function of the program's, within an operation in this direction.
    pub(crate) fn apart<R>(&self, direction: Direction, f: impl FnOnce() -> R) -> R {
        self.lane(direction).io_lock.apart(&self.users, f)
    }

    /// Does the same as `run`, with a time limit of this call alone.
    pub(crate) fn run_until<R>(
        &self,
        direction: Direction,
        until: Option<Nanos>,
        call: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        self.run_within((direction, Begun::until(until)), call)
    }

    /// Does the same as `run`, with the time limits of this call alone.
    pub(crate) fn run_within<R>(
        &self,
        within: (Direction, Begun),
        mut call: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        self.operate(within, || call(&self.inner), |_| false)
    }

    /// Returns the limits of a read that begins now, for a call that waits on another descriptor, an epoll set, in place of
    /// this one.
    pub(crate) fn limits_of_a_read(&self) -> Begun {
        self.read.limit.begin_elsewhere()
    }

    /// Does the same as `run` for writing, for a call that no event tells to try again: connecting to a Unix listener whose
    /// queue is full, sending to a Unix socket that is not the connected peer. Such a call is made again after pauses.
    pub(crate) fn run_unannounced<R>(&self, mut call: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let begun = self.write.limit.begin();
        self.operate_unannounced(begun, || call(&self.inner))
    }

    /// Does the same as `run`, for a read from a stream into `len` bytes.
    pub(crate) fn run_read(
        &self,
        len: usize,
        mut call: impl FnMut(&S) -> io::Result<(usize, Rest)>,
    ) -> io::Result<usize> {
        if len == 0 {
            return self.read_nothing();
        }
        let begun = self.read.limit.begin();
        mutant!(SocketFullReadDrains: let len = len + 1);
        let drains = |&read: &(usize, Rest)| self.is_drained(read, len);
        self.operate((Direction::Read, begun), || call(&self.inner), drains).map(|(got, _)| got)
    }

    /// Returns `true` if a read from a stream, of `got` bytes into `len`, says that nothing is left. Zero bytes are the end of
    /// the stream, and all later reads return zero as well.
    #[inline(always)]
    fn is_drained(&self, (got, rest): (usize, Rest), len: usize) -> bool {
        rest == Rest::AsTold && got > 0 && got < len && !self.foreign
    }

    /// A read of zero bytes from a stream, which makes no system call and never waits.
    fn read_nothing(&self) -> io::Result<usize> {
        if self.users.is_closed() { Err(closed()) } else { Ok(0) }
    }
}

/// The end of a close.
struct WakesTasks<'s, S: AsFd>(&'s Socket<S>);

impl<S: AsFd> Drop for WakesTasks<'_, S> {
    fn drop(&mut self) {
        self.0.wake_tasks();
    }
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        // Relaxed: the caller has the socket for itself.
        let freed = self.freed.load(Relaxed);
        if !freed {
            self.deregister();
        }
        // The tasks' wakers are dropped after `inner`: dropping a waker runs foreign code, which may wait for the peer, and the
        // peer must have seen the end by then.
        let mut wakers = Discarded::<Active>::new();
        // Relaxed: the caller has the socket for itself.
        let mut at = self.registrations.load(Relaxed);
        while !at.is_null() {
            // SAFETY: each entry came from `Box::into_raw`.
            let entry = unsafe { Box::from_raw(at) };
            wakers.add(entry.desc.take_wakers().into_iter().flatten());
            at = entry.next;
        }
        if !freed {
            // The user's code, which may panic.
            // SAFETY: `inner` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

impl<S: AsFd> AsFd for Socket<S> {
    /// # Panics
    /// When the socket is closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let _open =
            self.users.enter().expect("as_fd: the handle was closed, there is no descriptor to borrow");
        self.users.lend();
        // Makes the dead socket now rather than at the close, when the table of descriptors may be full.
        let _not_yet = sys::dead();
        self.inner.as_fd()
    }
}
