//! The kernel's side: one epoll descriptor that many threads share through `&self`.
//!
//! mio creates the epoll descriptor, registers, deregisters and wakes. The wait is our own: `Poll::poll` needs `&mut`
//! and rounds up to milliseconds, so a busy M could not poll while another M waits, and timers would be late.
//!
//! What mio 1.2 does underneath, checked in its source:
//! - `register` with READABLE, WRITABLE and PRIORITY gives `EPOLLIN | EPOLLRDHUP | EPOLLOUT | EPOLLPRI | EPOLLET`.
//!   The kernel adds `EPOLLERR` and `EPOLLHUP` by itself, and reports a descriptor that is ready already at the next wait.
//! - `Waker` is an eventfd, registered READABLE and edge-triggered. `wake` adds one to the counter; only `wake` drains the
//!   eventfd, just before the counter would overflow. So each wake is an edge, and several wakes before a wait are one. Both
//!   descriptors are close-on-exec.
//!
//! **A wait with [`Timeout::Zero`] may swallow a wake.** An edge is reported once, to the wait that comes first. If a
//! wait with `Timeout::Zero` returns [`Woken::Yes`] while another thread is blocked in a wait, that thread sleeps on;
//! so the caller must [`wake`](Poller::wake) again.
//!
//! | timeout   | [`WaitCall::EpollPwait2`]        | [`WaitCall::Ppoll`]                              | [`WaitCall::EpollPwait`] |
//! | --------- | -------------------------------- | ------------------------------------------------ | --- |
//! | `Zero`    | `epoll_pwait2`, zero             | `epoll_wait`, zero                               | `epoll_pwait`, zero |
//! | `After`   | `epoll_pwait2`, in nanoseconds   | `ppoll` on the epoll descriptor, in nanoseconds, then `epoll_wait`, zero | `epoll_pwait`, in milliseconds, rounded up; by several calls if that is more than 24.8 days |
//! | `Forever` | `epoll_pwait2`, no timeout       | `epoll_wait`, no timeout                         | `epoll_pwait`, no timeout |
//!
//! An old kernel does not have the first call. A sandbox may refuse any of them, with any error, and from any moment on: a wait
//! whose call fails goes on with the next call of the table, and so do all later waits.
//!
//! Put aside for kernels before 5.11: a timerfd in the same epoll. It costs as many system calls and one more descriptor, a
//! look can swallow its edge, and a second wait would change the time of the first. `ppoll` keeps no state.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::event::Key;
use crate::events::{Events, WAKER};
use crate::forks::ProcessMark;
use crate::refused::refused;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("gmp-netpoll needs 64-bit Linux: it waits by epoll, and keeps 64 bits in mio's token");

/// The longest wait that one `epoll_pwait(2)` takes; short in unit tests, which can't last for a month.
const MOST_MILLIS: libc::c_int = if cfg!(test) { 5 } else { libc::c_int::MAX };

/// What is reported of each descriptor; the end of a connection, and an error, are always reported.
const READS: mio::Interest = mio::Interest::READABLE.add(mio::Interest::PRIORITY);

/// How long a wait may last.
///
/// ```
/// use gmp_netpoll::{Events, Poller, Timeout, Woken};
/// use std::time::{Duration, Instant};
///
/// let (poller, mut events) = (Poller::new()?, Events::with_capacity(8));
/// let begun = Instant::now();
/// assert_eq!(poller.wait(&mut events, Timeout::After(Duration::from_millis(2)))?, Woken::No);
/// assert!(begun.elapsed() >= Duration::from_millis(2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Timeout {
    /// Do not wait: return the events that are there.
    Zero,
    /// Wait for about this time at most; if there is nothing to report, not shorter either, unless a signal comes.
    After(Duration),
    /// Until there is something to report.
    Forever,
}

/// Whether a [`wake`](Poller::wake) was among what a wait reported.
///
/// ```
/// use gmp_netpoll::{Events, Poller, Timeout, Woken};
///
/// let (poller, mut events) = (Poller::new()?, Events::with_capacity(8));
/// poller.wake()?;
/// poller.wake()?;
/// // Several wakes before a wait are one.
/// assert_eq!(poller.wait(&mut events, Timeout::Forever)?, Woken::Yes);
/// assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Woken {
    /// A wake was reported. This wait has used the wake up.
    Yes,
    /// No wake was reported.
    No,
}

/// Which system call a [`Poller`] waits by.
///
/// ```
/// use gmp_netpoll::{Poller, WaitCall};
///
/// let poller = Poller::with_wait_call(WaitCall::Ppoll)?;
/// assert_eq!(poller.wait_call(), WaitCall::Ppoll);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum WaitCall {
    /// `epoll_pwait2(2)`, Linux 5.11.
    EpollPwait2,
    /// `ppoll(2)` and `epoll_wait(2)`, any Linux.
    Ppoll,
    /// `epoll_pwait(2)`, any Linux: for sandboxes that refuse one of the others.
    EpollPwait,
}

impl WaitCall {
    const ALL: [WaitCall; 3] = [WaitCall::EpollPwait2, WaitCall::Ppoll, WaitCall::EpollPwait];

    /// The call to use if this one is refused.
    fn next(self) -> Option<WaitCall> {
        Self::ALL.get(self as usize + 1).copied()
    }
}

/// Waits for many descriptors at once; every method takes `&self`, and any number of threads may wait.
///
/// ```
/// use gmp_netpoll::{Events, Poller, Timeout, Woken};
///
/// let poller = Poller::new()?;
/// std::thread::scope(|scope| {
///     // One thread blocks, another one ends that wait.
///     let waits = scope.spawn(|| poller.wait(&mut Events::with_capacity(8), Timeout::Forever));
///     poller.wake()?;
///     assert_eq!(waits.join().unwrap()?, Woken::Yes);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Poller {
    poll: mio::Poll,
    waker: mio::Waker,
    /// An eventfd that is readable for ever, used when `waker` can't be written to: see `wake`. Registered for no events until
    /// then.
    spare: OwnedFd,
    /// A `WaitCall`'s number.
    call: AtomicUsize,
    /// The process that has made the poller.
    made_by: ProcessMark,
}

impl Poller {
    /// Creates a poller that waits by the best call that this kernel has and allows.
    ///
    /// # Errors
    /// When the process or the system has no descriptors left; a poller needs three. When all calls are refused.
    #[doc(alias = "netpollinit")]
    pub fn new() -> io::Result<Self> {
        let poller = Self::with_wait_call(WaitCall::EpollPwait2)?;
        let _nobody_woke = poller.wait(&mut Events::with_capacity(1), Timeout::Zero)?;
        Ok(poller)
    }

    /// Creates a poller that waits by `call` at first. [`new`](Self::new) chooses by itself; this function is for comparing the
    /// calls, and for testing the others on a kernel that has the first.
    ///
    /// # Errors
    /// When the process or the system has no descriptors left.
    pub fn with_wait_call(call: WaitCall) -> io::Result<Self> {
        let poll = mio::Poll::new().map_err(|err| refused("create an epoll descriptor", err))?;
        let waker = mio::Waker::new(poll.registry(), token(WAKER))
            .map_err(|err| refused("create the eventfd that ends a wait", err))?;
        let spare = spare().map_err(|err| refused("create the spare eventfd that ends a wait", err))?;
        let (call, made_by) = (AtomicUsize::new(call as usize), ProcessMark::of_this_process());
        let poller = Self { poll, waker, spare, call, made_by };
        poller
            .register_spare(libc::EPOLL_CTL_ADD, 0)
            .map_err(|err| refused("register the spare eventfd that ends a wait", err))?;
        Ok(poller)
    }

    /// Returns the system call by which the poller waits.
    pub fn wait_call(&self) -> WaitCall {
        // Relaxed: a thread that reads an old call meets the refusal once more.
        WaitCall::ALL[self.call.load(Relaxed)]
    }

    /// Reports from now on what happens to `fd`, in both directions, under `key`: each change once (edge-triggered). Readiness
    /// that is there already is reported first.
    ///
    /// # Panics
    /// If `key.index` is [`u32::MAX`].
    ///
    /// # Errors
    /// When `fd` is registered here already, is of a kind that epoll cannot watch (a regular file), or the
    /// user's limit of watched descriptors is reached.
    #[doc(alias = "netpollopen")]
    #[track_caller]
    pub fn add(&self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.register(fd, key, READS.add(mio::Interest::WRITABLE))
    }

    /// Does the same as [`add`](Self::add), for a descriptor to which no goroutine waits to write yet: room to write is not
    /// reported. A socket has room after nearly every call, so reports of room would end waits that were meant for data.
    ///
    /// ```
    /// use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
    /// use std::os::{fd::AsFd, unix::net::UnixStream};
    ///
    /// let (poller, mut events) = (Poller::new()?, Events::with_capacity(8));
    /// let (near, _far) = UnixStream::pair()?;
    /// let key = Key { index: 0, generation: 1 };
    /// poller.add_for_reads(near.as_fd(), key)?;
    /// assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
    /// assert!(events.is_empty());
    ///
    /// poller.add_writes(near.as_fd(), key)?;
    /// assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
    /// assert_eq!(events.iter().next().map(|event| event.readiness), Some(Readiness::WRITABLE));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `key.index` is [`u32::MAX`].
    ///
    /// # Errors
    /// As with `add`.
    #[track_caller]
    pub fn add_for_reads(&self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.register(fd, key, READS)
    }

    /// Reports from now on also room to write, for a descriptor of [`add_for_reads`](Self::add_for_reads). Readiness that is
    /// there already, in either direction, is reported first, even if it was reported before.
    ///
    /// # Panics
    /// If `key.index` is [`u32::MAX`].
    ///
    /// # Errors
    /// When `fd` is not registered here.
    #[track_caller]
    pub fn add_writes(&self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        refuse_own(key);
        let fd = fd.as_raw_fd();
        let mut source = mio::unix::SourceFd(&fd);
        let registered =
            self.poll.registry().reregister(&mut source, token(key), READS.add(mio::Interest::WRITABLE));
        registered.map_err(|err| refused(&format!("have epoll report room to write to descriptor {fd}"), err))
    }

    #[track_caller]
    fn register(&self, fd: BorrowedFd<'_>, key: Key, interest: mio::Interest) -> io::Result<()> {
        refuse_own(key);
        let fd = fd.as_raw_fd();
        let mut source = mio::unix::SourceFd(&fd);
        let registered = self.poll.registry().register(&mut source, token(key), interest);
        registered.map_err(|err| refused(&format!("register descriptor {fd} with epoll"), err))
    }

    /// Reports nothing more about `fd`, except events that another wait has fetched before: these are stale, and their
    /// generation tells. Remove a descriptor before closing it: a duplicate would keep the registration alive. In a forked
    /// child, which shares the registrations of this poller with its parent, the call does nothing: a child needs a poller of
    /// its own. [`ProcessMark`] says which children are told from their parents.
    ///
    /// # Errors
    /// When `fd` is not registered here.
    #[doc(alias = "netpollclose")]
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if !self.made_by.is_of_this_process() {
            return Ok(());
        }
        let fd = fd.as_raw_fd();
        let removed = self.poll.registry().deregister(&mut mio::unix::SourceFd(&fd));
        removed.map_err(|err| refused(&format!("deregister descriptor {fd} from epoll"), err))
    }

    /// Waits until there is something to report, or the time is over; `events` then holds only this report. Blocks the thread.
    ///
    /// A signal ends a wait with [`Timeout::After`] early and with nothing to report; other waits go on. With
    /// [`WaitCall::Ppoll`] a look from another thread may do the same, by taking the events away.
    ///
    /// # Errors
    /// When each call of the module's table was refused.
    #[doc(alias = "netpoll")]
    pub fn wait(&self, events: &mut Events, timeout: Timeout) -> io::Result<Woken> {
        loop {
            events.clear();
            let call = self.wait_call();
            let waited = match call {
                WaitCall::EpollPwait2 => self.pwait2(events, timeout),
                WaitCall::Ppoll => self.ppoll(events, timeout),
                WaitCall::EpollPwait => self.pwait(events, timeout),
            };
            match (waited, timeout) {
                (Ok(()), _) => return Ok(events.take_waker()),
                (Err(err), _) if err.kind() != io::ErrorKind::Interrupted => {
                    let Some(next) = call.next() else { return Err(refused("wait for epoll's events", err)) };
                    // Relaxed: as in `wait_call`. Never back to a call that another thread has found to be refused.
                    self.call.fetch_max(next as usize, Relaxed);
                }
                (Err(_), Timeout::After(_)) => return Ok(Woken::No),
                (Err(_), Timeout::Zero | Timeout::Forever) => {}
            }
        }
    }

    /// Ends one wait: a blocked one, or else the next. Does not block; costs a system call. Several wakes before that
    /// wait count once.
    ///
    /// If a sandbox refuses the write to the eventfd that ends a wait, each wake registers anew a spare eventfd, which
    /// is always readable: epoll then reports the spare once more. The spare is made with the poller, as there may be
    /// no descriptor left when a blocked wait has to end.
    ///
    /// # Errors
    /// When both are refused. The wait goes on.
    #[doc(alias = "netpollBreak")]
    pub fn wake(&self) -> io::Result<()> {
        let readable = libc::EPOLLIN | libc::EPOLLET;
        self.waker.wake().or_else(|err| {
            self.register_spare(libc::EPOLL_CTL_MOD, readable)
                .map_err(|_| refused("write to the eventfd that ends a wait", err))
        })
    }

    fn register_spare(&self, operation: libc::c_int, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: WAKER.to_bits() };
        let (epoll, spare) = (self.poll.as_raw_fd(), self.spare.as_raw_fd());
        // SAFETY: the event lives through the call, and both descriptors are ours.
        match unsafe { libc::epoll_ctl(epoll, operation, spare, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn pwait2(&self, events: &mut Events, timeout: Timeout) -> io::Result<()> {
        let spec = match timeout {
            Timeout::Zero => Some(timespec(Duration::ZERO)),
            Timeout::After(dur) => Some(timespec(dur)),
            Timeout::Forever => None,
        };
        let spec = spec.as_ref().map_or(ptr::null(), ptr::from_ref);
        events.fill_by(|buffer, room| {
            let (no_mask, mask_size) = (ptr::null::<libc::sigset_t>(), 0_usize);
            // SAFETY: `fill_by` gives a buffer of `room` entries that is ours alone; `spec` is null or points
            // to the local above; a null mask leaves the signals alone; the epoll descriptor lives as long as
            // `self.poll`.
            let filled = unsafe {
                let epoll = self.poll.as_raw_fd();
                libc::syscall(libc::SYS_epoll_pwait2, epoll, buffer, room, spec, no_mask, mask_size)
            };
            // At most `room`, or -1.
            filled as libc::c_int
        })
    }

    fn ppoll(&self, events: &mut Events, timeout: Timeout) -> io::Result<()> {
        let millis = match timeout {
            Timeout::Zero => 0,
            Timeout::Forever => -1,
            Timeout::After(dur) => {
                let mut epoll = libc::pollfd { fd: self.poll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                let spec = timespec(dur);
                // SAFETY: both pointers are to locals, and there is one entry, as the call says; a null mask leaves the signals
                // alone.
                match unsafe { libc::ppoll(&mut epoll, 1, &spec, ptr::null()) } {
                    0 => return Ok(()),
                    1.. => 0,
                    _ => return Err(io::Error::last_os_error()),
                }
            }
        };
        events.fill_by(|buffer, room| {
            // SAFETY: `fill_by` gives a buffer of `room` entries that is ours alone; the epoll descriptor
            // lives as long as `self.poll`.
            unsafe { libc::epoll_wait(self.poll.as_raw_fd(), buffer, room, millis) }
        })
    }

    fn pwait(&self, events: &mut Events, timeout: Timeout) -> io::Result<()> {
        match timeout {
            Timeout::Zero => self.pwait_millis(events, 0),
            Timeout::Forever => self.pwait_millis(events, -1),
            Timeout::After(dur) => {
                let mut left = dur.as_nanos().div_ceil(1_000_000);
                loop {
                    let part = left.min(MOST_MILLIS as u128);
                    self.pwait_millis(events, part as libc::c_int)?;
                    left -= part;
                    if left == 0 || !events.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn pwait_millis(&self, events: &mut Events, millis: libc::c_int) -> io::Result<()> {
        events.fill_by(|buffer, room| {
            // SAFETY: `fill_by` gives a buffer of `room` entries that is ours alone; a null mask leaves the signals alone;
            // the epoll descriptor lives as long as `self.poll`.
            unsafe { libc::epoll_pwait(self.poll.as_raw_fd(), buffer, room, millis, ptr::null()) }
        })
    }
}

#[track_caller]
fn refuse_own(key: Key) {
    assert!(key.index != WAKER.index, "Poller::add: index {} is the poller's own", key.index);
}

/// Makes an eventfd that is readable and is never read.
fn spare() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and only this function knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("epoll", &self.poll.as_raw_fd())
            .field("call", &self.wait_call())
            .finish()
    }
}

fn token(key: Key) -> mio::Token {
    mio::Token(key.to_bits() as usize)
}

fn timespec(dur: Duration) -> libc::timespec {
    let tv_sec = libc::time_t::try_from(dur.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: dur.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_may_share_a_poller() {
        fn shared<T: Send + Sync>() {}
        shared::<Poller>();
    }

    #[test]
    fn the_longest_timeout_is_one_the_kernel_takes() {
        let longest = timespec(Duration::MAX);
        assert_eq!((longest.tv_sec, longest.tv_nsec), (libc::time_t::MAX, 999_999_999));
        assert_eq!(timespec(Duration::from_nanos(1_000_000_001)).tv_nsec, 1);
    }

    #[test]
    #[should_panic(expected = "is the poller's own")]
    fn the_wakers_index_is_refused() {
        let poller = Poller::new().expect("a poller");
        _ = poller.add(poller.as_fd(), Key { index: u32::MAX, generation: 0 });
    }

    /// Fails by an end after the first of many calls, or by an event for which the last one is waited for.
    #[test]
    fn a_wait_is_as_long_as_several_calls() {
        let poller = Poller::with_wait_call(WaitCall::EpollPwait).unwrap();
        let mut events = Events::with_capacity(1);
        let (begun, dur) = (std::time::Instant::now(), Duration::from_millis(7 * MOST_MILLIS as u64 + 1));
        assert_eq!(poller.wait(&mut events, Timeout::After(dur)).unwrap(), Woken::No);
        assert!(begun.elapsed() >= dur, "{:?}", begun.elapsed());
        poller.wake().unwrap();
        assert_eq!(poller.wait(&mut events, Timeout::After(Duration::MAX)).unwrap(), Woken::Yes);
    }

    /// Fails by a descriptor whose events are taken for wakes.
    #[test]
    #[should_panic(expected = "is the poller's own")]
    fn the_wakers_index_is_refused_when_writes_are_added() {
        let (poller, (near, _far)) =
            (Poller::new().unwrap(), std::os::unix::net::UnixStream::pair().unwrap());
        poller.add_for_reads(near.as_fd(), Key { index: 0, generation: 0 }).unwrap();
        _ = poller.add_writes(near.as_fd(), WAKER);
    }
}
