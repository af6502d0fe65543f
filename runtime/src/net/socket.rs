//! What all sockets share: a descriptor that is never blocking, a turn for each direction, and a registration in
//! the poller of each runtime whose goroutines have waited for it.
//!
//! An operation takes its direction's turn, makes the system call, and waits when the kernel says `EAGAIN`: a
//! goroutine in its runtime's poller, a plain thread in `poll(2)`. `errno` is read before anything parks.
//!
//! *Drained without asking.* On a TCP stream a read that filled less than its buffer has emptied the socket. The
//! next read then waits for an event first, which saves the system call that would only say `EAGAIN`; unless the
//! peer's end, or an error, was seen: it may have come in the same event as the data, and no other will follow.
//! The event slot is emptied before each system call, never after it; a drained read that finds an event there
//! takes it and asks the kernel.

use crate::host::{Active, Host};
use crate::net::desc::{Direction, PollDesc, Waited};
use crate::net::turn::Turn;
use crate::prim::{
    Acquire, Arc, AtomicBool, AtomicPtr, Mutant, Mutex, Relaxed, Release, Weak, mutated, unless,
};
use crate::sched::Sched;
use crate::waiter::Wait;
use gmp_netpoll::Key;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Whether a short read of this kind of socket says that it is empty.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum ShortRead {
    /// It does: a TCP stream.
    Drained,
    /// It says nothing: a listener, a datagram.
    Unknown,
}

struct Registration {
    sched: Weak<Sched<Active>>,
    key: Key,
    desc: Arc<PollDesc<Active>>,
    next: *mut Registration,
}

struct Lane {
    turn: Turn<Active>,
    /// Belongs to the holder of the turn.
    drained: AtomicBool,
}

impl Lane {
    fn new() -> Self {
        Lane { turn: Turn::new(), drained: AtomicBool::new(false) }
    }
}

/// A descriptor with what it takes to wait for it.
pub(crate) struct Socket<S: AsFd> {
    /// `None` only after `into_inner`.
    inner: Option<S>,
    read: Lane,
    write: Lane,
    /// A list that only grows, one entry for each runtime, freed with the socket.
    registrations: AtomicPtr<Registration>,
    registering: Mutex<()>,
}

// SAFETY: `registrations` is a list of shared, immutable entries; the rest is Send by itself.
unsafe impl<S: AsFd + Send> Send for Socket<S> {}
// SAFETY: as above.
unsafe impl<S: AsFd + Sync> Sync for Socket<S> {}

impl<S: AsFd + fmt::Debug> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<S: AsFd> Socket<S> {
    /// Takes a descriptor that is in non-blocking mode already.
    pub(crate) fn new(inner: S) -> Self {
        Socket {
            inner: Some(inner),
            read: Lane::new(),
            write: Lane::new(),
            registrations: AtomicPtr::new(std::ptr::null_mut()),
            registering: Mutex::new(()),
        }
    }

    pub(crate) fn get(&self) -> &S {
        self.inner.as_ref().expect("get: a socket has its descriptor until into_inner")
    }

    fn fd(&self) -> RawFd {
        self.get().as_fd().as_raw_fd()
    }

    /// Gives the descriptor back, no longer watched by any poller.
    pub(crate) fn into_inner(mut self) -> S {
        self.deregister();
        self.inner.take().expect("into_inner: taken once")
    }

    /// Makes the system call `call` in the direction's turn, and waits as often as it would block.
    pub(crate) fn run<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        self.operate(direction, ShortRead::Unknown, || call(self.get()), |_| false)
    }

    /// As `run`, for a read into `len` bytes.
    pub(crate) fn run_read(
        &self,
        kind: ShortRead,
        len: usize,
        mut call: impl FnMut(&S) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // A read of zero bytes from a stream asks nothing and never waits, as in std.
        if len == 0 && kind == ShortRead::Drained {
            return Ok(0);
        }
        // Zero is the end of the stream, and stays one.
        self.operate(Direction::Read, kind, || call(self.get()), |&got| got > 0 && got < len)
    }

    fn operate<R>(
        &self,
        direction: Direction,
        kind: ShortRead,
        mut call: impl FnMut() -> io::Result<R>,
        short: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        let lane = match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        let _turn = lane.turn.take();
        let sched = Sched::current();
        let mut desc = sched.and_then(|sched| self.registered(sched));
        // Relaxed, here and below: the turn orders its holders.
        let mut wait_first = lane.drained.load(Relaxed);
        loop {
            match (sched, desc) {
                (Some(_), Some(desc)) if wait_first && desc.may_trust_a_short_read() => {
                    if mutated(Mutant::SocketDrainedClears) {
                        desc.clear(direction);
                    }
                    let (Waited::Ready | Waited::Look) = desc.wait(Wait::begin(), direction);
                }
                (Some(_), Some(desc)) => unless(Mutant::SocketClearsLate, || desc.clear(direction)),
                (None, _) if wait_first => self.poll(direction)?,
                _ => {}
            }
            wait_first = false;
            lane.drained.store(false, Relaxed);
            let called = call();
            if mutated(Mutant::SocketClearsLate)
                && let Some(desc) = desc
            {
                desc.clear(direction);
            }
            match called {
                Ok(done) => {
                    if kind == ShortRead::Drained && short(&done) {
                        lane.drained.store(true, Relaxed);
                    }
                    return Ok(done);
                }
                Err(refused) if refused.kind() == io::ErrorKind::Interrupted => {}
                Err(refused) if refused.kind() == io::ErrorKind::WouldBlock => match sched {
                    Some(sched) => {
                        let desc = match desc {
                            Some(desc) => desc,
                            // The kernel reports what is ready already when a descriptor is added.
                            None => *desc.insert(self.register(sched)?),
                        };
                        let (Waited::Ready | Waited::Look) = desc.wait(Wait::begin(), direction);
                    }
                    None => self.poll(direction)?,
                },
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Blocks the calling thread, which is no goroutine's, until the descriptor is ready.
    fn poll(&self, direction: Direction) -> io::Result<()> {
        let events = match direction {
            Direction::Read => libc::POLLIN,
            Direction::Write => libc::POLLOUT,
        };
        let mut entry = libc::pollfd { fd: self.fd(), events, revents: 0 };
        // SAFETY: one valid entry, for the length of the call.
        if unsafe { libc::poll(&raw mut entry, 1, -1) } < 0 {
            let refused = io::Error::last_os_error();
            if refused.kind() != io::ErrorKind::Interrupted {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Waits until a connection that was begun has an outcome.
    pub(crate) fn wait_connected(&self) -> io::Result<()> {
        let _turn = self.write.turn.take();
        match Sched::current() {
            Some(sched) => {
                let desc = self.register(sched)?;
                let (Waited::Ready | Waited::Look) = desc.wait(Wait::begin(), Direction::Write);
                Ok(())
            }
            None => self.poll(Direction::Write),
        }
    }

    fn registered(&self, sched: &Sched<Active>) -> Option<&PollDesc<Active>> {
        // Acquire: the entry is complete before it is in the list.
        let mut at = self.registrations.load(Acquire);
        // SAFETY: entries live until the socket is dropped, and are not written after they were linked.
        while let Some(entry) = unsafe { at.as_ref() } {
            // The Weak keeps the address from being reused.
            if std::ptr::eq(entry.sched.as_ptr(), sched) {
                return Some(&entry.desc);
            }
            at = entry.next;
        }
        None
    }

    fn register(&self, sched: &Sched<Active>) -> io::Result<&PollDesc<Active>> {
        let _one_at_a_time = self.registering.lock();
        if let Some(desc) = self.registered(sched) {
            return Ok(desc);
        }
        let weak = Arc::downgrade(&sched.arc().expect("register: a goroutine's runtime is alive"));
        let desc = Arc::new(PollDesc::new());
        let key = sched.descs.insert(Arc::clone(&desc));
        if let Err(refused) = sched.host.watch(self.fd(), key) {
            sched.descs.remove(key);
            return Err(refused);
        }
        let next = self.registrations.load(Relaxed);
        let entry = Box::into_raw(Box::new(Registration { sched: weak, key, desc, next }));
        // Release: see `registered`.
        self.registrations.store(entry, Release);
        // SAFETY: as in `registered`.
        Ok(unsafe { &(*entry).desc })
    }

    fn deregister(&self) {
        let mut at = self.registrations.load(Acquire);
        self.registrations.store(std::ptr::null_mut(), Relaxed);
        while !at.is_null() {
            // SAFETY: each entry came from `Box::into_raw`, and the caller has the socket for itself.
            let entry = unsafe { Box::from_raw(at) };
            at = entry.next;
            if let Some(sched) = entry.sched.upgrade() {
                // It is open and was added, so this can only fail when the poller itself is broken, and then
                // the next wait says so.
                let _unwatched = sched.host.unwatch(self.fd());
                sched.descs.remove(entry.key);
            }
        }
    }
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl<S: AsFd> AsFd for Socket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}
