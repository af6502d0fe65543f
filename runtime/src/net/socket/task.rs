//! One poll of a task on a socket: it makes the system call, and leaves its waker if the call would block.
//!
//! A task takes no I/O lock, which it could not hold from one poll to the next: two tasks, or a task and a goroutine that waits
//! in the same direction, make their system calls beside each other, as through a duplicate of the descriptor, and the kernel
//! orders them. A poll is a user of the descriptor (`net/fd.rs`), so that a closer waits for its system call. The protocol by
//! which the poller's events meet the task is in `net/desc/tasks.rs`.
//!
//! The registration is that of the runtime whose goroutine polls; a thread outside, which has no poller, uses the registration
//! of any runtime that has not ended, and keeps that runtime's scheduler meanwhile, so that no other runtime takes the entry
//! over.
//!
//! The poller reports what is there already to a registration that this poll has made, so the call that would block is not
//! repeated, except after the end of a Unix socket's writes (`net/socket.rs`). The events of a registration that was there
//! before may have come when they were not marked for tasks; then the call is made again.

use super::registry::{Fresh, Marks};
use super::{Rest, Socket};
use crate::host::Active;
use crate::net::desc::{Begun, Direction, Kept, PollDesc, Turn};
use crate::prim::Arc;
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::wait::task::Discarded;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

/// The runtime whose poller tells the task.
enum Home<'s> {
    /// The goroutine's runtime.
    Goroutine(&'s Sched<Active>),
    /// On a thread outside: a runtime whose poller watches the socket, if one was found.
    Thread(Option<Arc<Sched<Active>>>),
}

impl Home<'_> {
    fn sched(&self) -> Option<&Sched<Active>> {
        match self {
            Home::Goroutine(sched) => Some(sched),
            Home::Thread(sched) => sched.as_deref(),
        }
    }
}

impl<S: AsFd> Socket<S> {
    /// Makes the system call `call`; if that would block, has the task woken when another try is worth it.
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut call: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_call(cx, direction, || call(&self.inner), |_| false)
    }

    /// Does the same as `poll`, for a read from a stream into `len` bytes.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        mut call: impl FnMut(&S) -> io::Result<(usize, Rest)>,
    ) -> Poll<io::Result<usize>> {
        if len == 0 {
            return Poll::Ready(self.read_nothing());
        }
        let drains = |&read: &(usize, Rest)| self.is_drained(read, len);
        self.poll_call(cx, Direction::Read, || call(&self.inner), drains).map_ok(|(got, _)| got)
    }

    /// `drains` tells whether a call has taken all that there was.
    fn poll_call<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut call: impl FnMut() -> io::Result<R>,
        drains: impl Fn(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        // Declared first, so dropped when the poll is no user of the descriptor any more.
        let mut old = Discarded::<Active>::new();
        let mut open = self.enter()?;
        let (mut home, mut desc) = self.home();
        loop {
            let begun = desc.map_or(Begun::Unmarked, |desc| desc.begin_task(direction));
            // Without a mark there is no turn, and the call says nothing about later ones.
            let turn = match begun {
                Begun::Call(turn) | Begun::Wait(turn) => Some(turn),
                Begun::Unmarked | Begun::Over => None,
            };
            if !matches!(begun, Begun::Wait(_)) {
                match call() {
                    Ok(done) => {
                        if let (Some(desc), Some(turn)) = (desc, turn)
                            && drains(&done)
                        {
                            desc.note_drained(direction, turn);
                        }
                        return Poll::Ready(Ok(done));
                    }
                    Err(refused) if refused.kind() == io::ErrorKind::Interrupted => continue,
                    Err(refused) if refused.kind() == io::ErrorKind::WouldBlock => {}
                    Err(refused) => return Poll::Ready(Err(refused)),
                }
            }
            if begun == Begun::Over {
                if let Home::Goroutine(_) = home {
                    return Poll::Ready(Err(has_ended()));
                }
                (home, desc) = self.home();
                continue;
            }
            let told = match self.told_by(&home, desc, (direction, turn)) {
                Ok(told) => told,
                Err(refused) => return Poll::Ready(Err(refused)),
            };
            desc = Some(told.desc);
            let Some(turn) = told.turn else { continue };
            mutant!(TaskWaitsBeforeItsWaker: keep early = told.desc.wait_as_task(direction, turn));
            if !told.desc.keeps(direction, cx.waker()) {
                // Foreign code, which may close the socket: the closer would wait for this user.
                drop(open);
                let fresh = cx.waker().clone();
                open = match self.enter() {
                    Ok(open) => open,
                    Err(closed) => {
                        old.add(Some(fresh));
                        return Poll::Ready(Err(closed));
                    }
                };
                old.add(told.desc.keep(direction, fresh));
            }
            mutant!(TaskWaitsBeforeItsWaker: if early == Some(Kept::Pending) { return Poll::Pending });
            match told.desc.wait_as_task(direction, turn) {
                Kept::Pending => return Poll::Pending,
                Kept::Again | Kept::Over => {}
            }
        }
    }

    /// Returns the runtime whose poller tells the caller, and the registration there, if there is one.
    #[inline]
    fn home(&self) -> (Home<'_>, Option<&PollDesc<Active>>) {
        match Sched::current() {
            Some(sched) => (Home::Goroutine(sched), self.registered(sched)),
            None => match self.watched_somewhere() {
                Some((sched, desc)) => (Home::Thread(Some(sched)), Some(desc)),
                None => (Home::Thread(None), None),
            },
        }
    }

    /// After a call that would block: makes sure that the poller tells of this direction, and marks its events.
    #[inline]
    fn told_by<'s>(
        &'s self,
        home: &Home<'_>,
        desc: Option<&'s PollDesc<Active>>,
        (direction, turn): (Direction, Option<Turn>),
    ) -> io::Result<Told<'s>> {
        let Some(sched) = home.sched() else { return Err(unwatched_error()) };
        if turn.is_none() {
            sched.descs.note_task();
        }
        let Some(desc) = desc else {
            let (desc, fresh) = self.register(sched, direction, Marks::Yes)?;
            // The call would block, and an event must come for the task: X3 of `net/socket.rs`.
            let is_told =
                fresh == Fresh::Yes && !self.lane(direction).has_ended().unless(TaskMissesTheShutdown);
            return Ok(Told { desc, turn: is_told.then_some(Turn::FIRST) });
        };
        if turn.is_none() {
            desc.mark_from_now(direction);
        }
        if direction == Direction::Write && !desc.watches_writes() {
            mutant!(TaskWatchesReadsAlone: return Ok(Told { desc, turn }));
            self.watch_writes(sched, desc)?;
            return Ok(Told { desc, turn: None });
        }
        Ok(Told { desc, turn })
    }
}

/// What tells a task of the next event.
struct Told<'s> {
    desc: &'s PollDesc<Active>,
    /// The turn of the call that would block; `None` if the call is to be made again.
    turn: Option<Turn>,
}

#[cold]
fn has_ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "poll: would block, and the runtime of the goroutine that polls has ended",
    )
}

#[cold]
fn unwatched_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "poll: would block, and no runtime's poller watches the socket: poll it on a goroutine first, as in gmp::block_on; a \
         thread outside may poll it after that, until the goroutine's runtime ends",
    )
}
