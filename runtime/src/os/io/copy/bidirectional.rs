//! Copies in both directions between two streams.

use super::end::Duplex;
use super::{CopyError, copy};
use crate::context::{Cancel, Context, interrupted};
use crate::goroutine::current;
use crate::goroutine::scope::scope;
use crate::host::{Active, Threads};
use crate::net::is_closed;
use crate::net::methods::with_a_frame;
use crate::prim::{Mutex, Rank};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::error::Error;
use std::fmt;
use std::io;
use std::thread;

/// Copies from `a` to `b` and from `b` to `a`, until both have ended, and returns how many bytes went each way: from `a`, from
/// `b`. Blocks the goroutine, or the plain thread, which copies from `b`; a second goroutine or thread, started here, copies
/// from `a`.
///
/// *Half-close.* When one stream has ended, the writing half of the other is shut down, and the other direction goes on: so a
/// protocol works in which a client sends all that it has and then waits for the answer. Neither stream is closed. A connection
/// that is reset has no end, and the other stream sees none. A stream's writing half may be shut down before the call; if other
/// code shuts it down during the call, the call may take the stream's own end for a reset.
///
/// *Limits.* A read timeout of a stream ends both directions when the stream is silent for so long, even if the peer only
/// receives. A proxy that ends idle connections watches what the kernel has sent and received on both streams, and ends a
/// context under which this call runs: `examples/port_forward` does that.
///
/// ```
/// use gmp::io;
/// use gmp::net::UnixStream;
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (mut client, a) = UnixStream::pair().unwrap();
///         let (b, mut server) = UnixStream::pair().unwrap();
///         let proxy = gmp::go(move || io::copy_bidirectional(&a, &b));
///
///         client.write_all(b"hello").unwrap();
///         client.shutdown(Shutdown::Write).unwrap();
///         let mut text = String::new();
///         // The server sees the end, and answers.
///         server.read_to_string(&mut text).unwrap();
///         server.write_all(b"good day").unwrap();
///         drop(server);
///         assert_eq!(proxy.join().unwrap().unwrap(), (5, 8));
///         client.read_to_string(&mut text).unwrap();
///         assert_eq!(text, "hellogood day");
///     })
/// }
/// ```
///
/// # Unwinds
/// When a wait is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind). The other direction has ended then, too.
///
/// # Errors
/// The first error of one direction ends both; [`BidirectionalError`] has that error, and both counts. If there is no stack for
/// the second goroutine, or the second thread can't be started, nothing was copied.
pub fn copy_bidirectional<A, B>(a: &A, b: &B) -> Result<(u64, u64), BidirectionalError>
where
    A: Duplex + ?Sized,
    B: Duplex + ?Sized,
{
    let (stop, cancel) = Context::background().with_cancel();
    let writes_ended = [b.has_ended_writes(), a.has_ended_writes()];
    let state = State { writes_ended, ..State::default() };
    let both = Both { stop, cancel, state: Mutex::new(Rank::Copies, state) };
    match current() {
        Some(_) => scope(|s| {
            // Dropped at the end of this block, and if the caller is unwound: before the scope waits.
            let _ends = EndsOther(&both);
            match s.try_go(|| both.a_to_b(a, b)) {
                Ok(_joined_by_the_scope) => both.b_to_a(b, a),
                Err(refused) => both.fails(not_started(refused)),
            }
        }),
        None => thread::scope(|s| {
            let both = &both;
            let _ends = EndsOther(both);
            match Active::spawn_scoped(s, "gmp-copy", || both.a_to_b(a, b)) {
                Ok(()) => both.b_to_a(b, a),
                Err(refused) => both.fails(not_started(refused)),
            }
        }),
    }
    let state = std::mem::take(&mut *both.state.lock());
    with_a_frame(state.outcome())
}

fn not_started(refused: io::Error) -> io::Error {
    io::Error::new(
        refused.kind(),
        format!("copy_bidirectional: the second direction can't be started: {refused}"),
    )
}

/// The error of a [`copy_bidirectional`]: the first one, and how far each direction came.
#[derive(Debug)]
pub struct BidirectionalError {
    from: [(u64, Vec<u8>); 2],
    error: io::Error,
}

impl BidirectionalError {
    /// Returns how many bytes were copied from `a`, and from `b`.
    pub fn copied(&self) -> (u64, u64) {
        (self.from[0].0, self.from[1].0)
    }

    /// Returns the bytes that were taken from `a`, and from `b`, and could not be written.
    pub fn undelivered(&self) -> (&[u8], &[u8]) {
        (&self.from[0].1, &self.from[1].1)
    }

    /// Returns how many bytes were copied from `a`, with those that could not be written; the same from `b`; and the error.
    ///
    /// ```
    /// use gmp::io;
    /// use gmp::net::UnixStream;
    ///
    /// let [a, b] = [UnixStream::pair()?.0, UnixStream::pair()?.0];
    /// b.close()?;
    /// let ([(from_a, _), (from_b, _)], error) = io::copy_bidirectional(&a, &b).unwrap_err().into_parts();
    /// assert_eq!((from_a, from_b), (0, 0));
    /// assert!(io::is_closed(&error));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_parts(self) -> ([(u64, Vec<u8>); 2], io::Error) {
        (self.from, self.error)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }

    /// Returns the first error of a read or write.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

/// How far both directions came. The reason is the source, [`error`](BidirectionalError::error).
impl fmt::Display for BidirectionalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from_a, from_b) = self.copied();
        write!(f, "the copies failed after {from_a} bytes one way and {from_b} the other")
    }
}

impl Error for BidirectionalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl From<BidirectionalError> for io::Error {
    /// The error of the read or write, by itself.
    fn from(failed: BidirectionalError) -> io::Error {
        failed.error
    }
}

/// What the two directions tell each other.
#[derive(Default)]
struct State {
    /// How far each direction came, and what it could not deliver.
    from: [(u64, Vec<u8>); 2],
    /// The writes of the direction's sink have ended, or are about to end: by the direction itself, or before the call.
    writes_ended: [bool; 2],
    /// The direction has come to the end of its source.
    is_through: [bool; 2],
    first_error: Option<io::Error>,
    /// The direction from `a` has ended.
    is_over: bool,
    /// The caller, if it waits for the end of that direction.
    caller: Option<Waiter<Active>>,
}

struct Both {
    /// The context of both directions.
    stop: Context,
    cancel: Cancel,
    state: Mutex<State>,
}

impl Both {
    /// On the second goroutine.
    fn a_to_b<A: Duplex + ?Sized, B: Duplex + ?Sized>(&self, a: &A, b: &B) {
        let _over = IsOver(self);
        self.one_way(0, a, b);
    }

    /// On the caller's goroutine.
    fn b_to_a<A: Duplex + ?Sized, B: Duplex + ?Sized>(&self, b: &B, a: &A) {
        self.one_way(1, b, a);
        if let Err(interrupt) = self.wait_until_over() {
            self.fails(interrupt);
        }
    }

    fn one_way<F: Duplex + ?Sized, T: Duplex + ?Sized>(&self, which: usize, from: &F, to: &T) {
        let copied = self.stop.under(|| copy(from, to));
        let copied = copied.and_then(|copied| match self.end(which, from, to) {
            Ok(()) => Ok(copied),
            Err(error) => Err(CopyError { copied, undelivered: Vec::new(), error }),
        });
        let (came, error) = match copied {
            Ok(copied) => ((copied, Vec::new()), None),
            Err(CopyError { copied, undelivered, error }) => ((copied, undelivered), Some(error)),
        };
        self.state.lock().from[which] = came;
        if let Some(error) = error {
            self.fails(error);
        }
    }

    /// Hands on the end of `from`. The kernel reports a reset once: if a write has got that error, a read sees an end. So a
    /// connection whose writes have not ended, and which is over without an error left to report, was reset.
    fn end<F: Duplex + ?Sized, T: Duplex + ?Sized>(&self, which: usize, from: &F, to: &T) -> io::Result<()> {
        let reset = || io::Error::from_raw_os_error(libc::ECONNRESET);
        let other = 1 - which;
        let is_over = from.is_over_and_told();
        let mut state = self.state.lock();
        if is_over && !state.writes_ended[other] {
            return Err(reset());
        }
        state.is_through[which] = true;
        let had_ended = std::mem::replace(&mut state.writes_ended[which], true);
        let tells_nobody = state.is_through[other] && !had_ended;
        drop(state);
        match to.end_writes() {
            Err(closed) if is_closed(&closed) => Err(closed),
            // The connection has gone in both directions. The other direction reports that, if it still reads.
            Err(gone) if gone.kind() == io::ErrorKind::NotConnected && !tells_nobody => Ok(()),
            Err(gone) if gone.kind() == io::ErrorKind::NotConnected => Err(reset()),
            ended => ended,
        }
    }

    /// Ends both directions, by `error` if it is the first one.
    fn fails(&self, error: io::Error) {
        self.state.lock().first_error.get_or_insert(error);
        self.cancel.cancel();
    }

    /// Waits for the second goroutine to end its direction.
    fn wait_until_over(&self) -> io::Result<()> {
        let mut wait = Wait::begin();
        let mut state = self.state.lock();
        if state.is_over {
            drop(state);
            wait.withdraw();
            return Ok(());
        }
        state.caller = Some(wait.waiter());
        let woke = wait.park(How::new(WaitReason::Scope).ends(OnInterrupt::Returning), move || {
            drop(state);
            Commit::Park
        });
        match woke {
            Woke::Interrupted(why) => Err(interrupted::<Active>(why).into()),
            _ => Ok(()),
        }
    }
}

impl State {
    fn outcome(self) -> Result<(u64, u64), BidirectionalError> {
        match self.first_error {
            None => Ok((self.from[0].0, self.from[1].0)),
            Some(error) => Err(BidirectionalError { from: self.from, error }),
        }
    }
}

/// Tells the caller that the direction from `a` has ended, also by unwinding.
struct IsOver<'a>(&'a Both);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_over = true;
        let caller = state.caller.take();
        drop(state);
        if let Some(caller) = caller {
            caller.wake();
        }
    }
}

/// Ends the direction from `a` with the caller's.
struct EndsOther<'a>(&'a Both);

impl Drop for EndsOther<'_> {
    fn drop(&mut self) {
        self.0.cancel.cancel();
    }
}
