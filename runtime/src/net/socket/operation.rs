//! One operation on a socket: under the I/O lock of its direction the caller makes the system call, and waits each time the
//! call would block. The protocol is in `net/socket.rs`.

use super::registry::Marks;
use super::{Lane, Socket};
use crate::context::interrupted;
use crate::host::{Active, Clock};
use crate::net::desc::{Direction, PollDesc, Waited};
use crate::net::io_lock::{Denied, Holder};
use crate::net::limit::Begun;
use crate::net::sys;
use crate::prim::Relaxed;
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::wait::waiter::Wait;
use gmp_timers::Nanos;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The pauses between two tries of a call of `operate_unannounced`: each is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// An operation, which holds the I/O lock of its direction.
struct Operation<'s, S: AsFd> {
    socket: &'s Socket<S>,
    lane: &'s Lane,
    direction: Direction,
    begun: Begun,
    io_lock: Holder<'s, Active>,
    /// The goroutine's scheduler; `None` on a plain thread.
    sched: Option<&'s Sched<Active>>,
    /// The registration with that scheduler's poller, once there is one.
    desc: Option<&'s PollDesc<Active>>,
    /// How long a plain thread that has waited pauses before its next wait.
    pause: Option<Duration>,
}

impl<S: AsFd> Socket<S> {
    /// Makes the system call `call` under the direction's I/O lock, and waits as often as the call would block. `drains`
    /// tells whether a read has taken all that there was.
    pub(super) fn operate<R>(
        &self,
        (direction, begun): (Direction, Begun),
        mut call: impl FnMut() -> io::Result<R>,
        drains: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        let mut operation = self.begin(direction, begun)?;
        let lane = operation.lane;
        // Relaxed, here and below: the I/O lock orders its holders.
        let mut wait_first = lane.drained.load(Relaxed);
        loop {
            operation.may_call()?;
            if wait_first && operation.begun.may_wait().is_ok() && operation.may_wait_first() {
                wait_first = false;
                mutant!(SocketDrainedClears: operation.clear());
                operation.wait()?;
                continue;
            }
            wait_first = false;
            unless!(SocketClearsLate, operation.clear());
            unless!(SocketStaysDrained, lane.drained.store(false, Relaxed));
            let called = call();
            mutant!(SocketClearsLate: operation.clear());
            match called {
                Ok(done) => {
                    if drains(&done) {
                        lane.drained.store(true, Relaxed);
                    }
                    return Ok(done);
                }
                // `kind` is a call into std's tables, made once.
                Err(refused) => match refused.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        operation.begun.may_wait()?;
                        operation.wait()?;
                    }
                    _ => return Err(refused),
                },
            }
        }
    }

    /// Does the same as `operate` for writing, for a call that no event tells to try again: the call is made again after
    /// pauses.
    pub(super) fn operate_unannounced<R>(
        &self,
        begun: Begun,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut operation = self.begin(Direction::Write, begun)?;
        let mut pause = SHORTEST_PAUSE;
        loop {
            operation.may_call()?;
            match call() {
                Err(refused) if refused.kind() == io::ErrorKind::Interrupted => {}
                Err(refused) if refused.kind() == io::ErrorKind::WouldBlock => {
                    operation.begun.may_wait()?;
                    operation.pause(Active::after(pause))?;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Takes the I/O lock.
    #[inline(always)]
    fn begin(&self, direction: Direction, begun: Begun) -> io::Result<Operation<'_, S>> {
        let lane = self.lane(direction);
        let io_lock = lane.io_lock.take(|| self.look(lane, begun)).map_err(|denied| match denied {
            Denied::Look(refused) => refused,
            Denied::Interrupted(why) => interrupted::<Active>(why).into(),
        })?;
        let sched = Sched::current();
        let desc = sched.and_then(|sched| self.registered(sched));
        Ok(Operation { socket: self, lane, direction, begun, io_lock, sched, desc, pause: None })
    }
}

impl<'s, S: AsFd> Operation<'s, S> {
    #[inline(always)]
    fn look(&self) -> io::Result<Option<Nanos>> {
        self.socket.look(self.lane, self.begun)
    }

    /// Does the same as `look`, before a system call, which a timeout does not end.
    #[inline(always)]
    fn may_call(&self) -> io::Result<()> {
        self.socket.look(self.lane, self.begun.of_calls()).map(drop)
    }

    /// Does the same as `look`, for a wait: `WouldBlock` when the timeout is over, so that the caller makes its system call
    /// once more.
    fn look_to_wait(&self) -> io::Result<Option<Nanos>> {
        self.may_call()?;
        self.look().map_err(|_over| io::ErrorKind::WouldBlock.into())
    }

    /// Does the same as `look_to_wait`, for a wait that ends at `end` at the latest.
    fn look_until(&self, end: Nanos) -> io::Result<Nanos> {
        Ok(self.look_to_wait()?.map_or(end, |until| until.min(end)))
    }

    /// Whether the operation on a drained socket may wait before its system call. A descriptor that is not registered is
    /// registered now: the kernel then reports what is there already. If the registration is refused, the caller makes its
    /// system call instead of waiting.
    #[inline(always)]
    fn may_wait_first(&mut self) -> bool {
        mutant!(SocketAsksUnwatched: if self.desc.is_none() { return false });
        match (self.desc, self.sched) {
            (Some(desc), _) => desc.may_trust_a_short_read(),
            (None, Some(sched)) => self.register(sched).is_ok(),
            (None, None) => true,
        }
    }

    /// Empties the event slot.
    #[inline(always)]
    fn clear(&self) {
        if let Some(desc) = self.desc {
            desc.clear(self.direction);
        }
    }

    /// Waits for an event, or until the operation has to call `look` again.
    #[inline(always)]
    fn wait(&mut self) -> io::Result<()> {
        let Some(sched) = self.sched else { return self.poll() };
        let is_new = self.desc.is_none();
        mutant!(SocketLooksBeforeItWatches: keep early = self.lane.has_ended());
        let desc = self.register(sched)?;
        // X3.
        mutant!(SocketLooksBeforeItWatches: let is_new = is_new && early == Some(true));
        if is_new && self.direction == Direction::Write && self.lane.has_ended().unless(SocketMissesTheEnd) {
            return Ok(());
        }
        self.park(desc, || self.look().ok())
    }

    /// Waits until `end`, whatever events come, or until the operation has to call `look` again.
    fn pause(&mut self, end: Nanos) -> io::Result<()> {
        let Some(sched) = self.sched else { return self.pause_thread(end) };
        let desc = self.register(sched)?;
        while Active::now() < end {
            self.may_call()?;
            if self.begun.may_wait().is_err() {
                // The caller makes its system call once more.
                break;
            }
            desc.clear(self.direction);
            self.park(desc, || Some(Some(self.look_until(end).ok()?)))?;
        }
        Ok(())
    }

    /// Does the same as `pause`, for a plain thread.
    fn pause_thread(&self, end: Nanos) -> io::Result<()> {
        early(self.lane.wake_fd.wait(None, 0, || match Active::now() < end {
            true => Ok(Some(self.look_until(end)?)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }))
    }

    /// Returns the registration with the poller of `sched`, which is made if there is none.
    #[inline(always)]
    fn register(&mut self, sched: &'s Sched<Active>) -> io::Result<&'s PollDesc<Active>> {
        let desc = match self.desc {
            Some(desc) => desc,
            // When a descriptor is added, the kernel reports events that are ready already.
            None => *self.desc.insert(self.socket.register(sched, self.direction, Marks::No)?.0),
        };
        if self.direction == Direction::Write && !desc.watches_writes() {
            mutant!(SocketWatchesReadsAlone: return Ok(desc));
            // The kernel then also reports room that has come since the call that found none.
            self.socket.watch_writes(sched, desc)?;
        }
        Ok(desc)
    }

    /// Parks the calling goroutine until an event comes or the goroutine has to call `look` again; `look` as with
    /// `PollDesc::wait`.
    #[inline(always)]
    fn park(&self, desc: &PollDesc<Active>, look: impl FnOnce() -> Option<Option<Nanos>>) -> io::Result<()> {
        // Rests before the wait begins, as beginning a wait may park for want of a P.
        self.io_lock.rest();
        let waited = desc.wait(Wait::begin(), self.direction, look);
        self.io_lock.go_on();
        match waited {
            Waited::Ready | Waited::Look => Ok(()),
            Waited::Interrupted(why) => Err(interrupted::<Active>(why).into()),
        }
    }

    /// Blocks the calling thread, which is no goroutine's, until the descriptor is ready. It can happen that `poll(2)` reports
    /// the descriptor as ready each time while the system call finds nothing each time: a tracer keeps a child's status, a
    /// socket's queue of errors is not empty, a file tells of changes. So there are pauses between such waits, like those of
    /// `operate_unannounced`.
    fn poll(&mut self) -> io::Result<()> {
        let mut again = None;
        if let Some(pause) = self.pause {
            let end = Active::after(pause);
            self.pause_thread(end)?;
            again = Some((pause, Active::after(SHORTEST_PAUSE)));
        }
        let events = sys::events(self.direction);
        early(self.lane.wake_fd.wait(
            Some(self.socket.inner.as_fd()),
            events,
            || match self.lane.has_ended() {
                false => self.look_to_wait(),
                true => Err(io::ErrorKind::WouldBlock.into()),
            },
        ))?;
        self.pause = Some(match again {
            Some((pause, soon)) if Active::now() < soon => (2 * pause).min(LONGEST_PAUSE),
            // The thread had to wait.
            _ => SHORTEST_PAUSE,
        });
        Ok(())
    }
}

/// Returns the outcome of a thread's wait, where `WouldBlock` only says that the thread's look has ended the wait.
fn early(ended: io::Result<()>) -> io::Result<()> {
    match ended {
        Err(over) if over.kind() == io::ErrorKind::WouldBlock => Ok(()),
        ended => ended,
    }
}
