//! The tree of contexts, and how the end of a node reaches all nodes and runners below it.
//!
//! ```text
//!   open ── end, once: by a Cancel, its deadline, or the end of the node above ──▶ done
//! ```
//! A node holds the node above. A node's list of dependents, under the node's lock, has the nodes below (weakly), and the
//! runners under the node. A dependent leaves the list in constant time; a node that is dropped does so before its memory is
//! freed, so all dependents in a list are alive as long as the list's lock is held.
//!
//! An ender walks the tree with a private list, not by recursion (the tree may be deep), and holds one lock at a time,
//! for one node:
//!
//! ```text
//!   ender:   the verdict · C1 done + ENDING · C2 fence · C3 dependents: runners are nudged, tasks readied, nodes go on this
//!            walk's list · C4 the channel is closed · C5 done, without ENDING        (C1 to C5 under the node's lock)
//!            after the walk: S1 `swept` in each of its nodes · the wakers of the tasks are called · the requested calls
//!            start · the values that the nodes have kept are dropped
//!   err():   done with ENDING? takes the lock, and so waits for C5
//!   done():  the channel is made under the lock; if C1 came before, the channel is closed before it is published
//! ```
//! So for each node, once `err` has returned an error the channel is closed, and once the channel is closed `err`
//! returns an error. A runner may be nudged after C1; the runner learns the error from `err`, or from [`interrupted`],
//! which waits for C5 as `err` does.
//!
//! Nodes stay in the list of a node that is done. A second ender that finds `swept` unset walks over them as well, and ends the
//! nodes below a done node by the verdict of that node. An ender does not descend below a node that is `swept`: otherwise a
//! chain that is ended from below, one node after the other, would take a walk for each node. So when any ender returns, its
//! node and all nodes below are done, each by the verdict of the node above whose end reached it first. A caller can ask for a
//! call when the node is done but an ender is still in the middle of its walk: that caller first walks as a second ender, and
//! then starts the call.
//!
//! A node's lock is the outermost of all (`prim/lock.rs`), and no thread holds the locks of two nodes. Neither user code nor
//! the end of another node runs under a node's lock.
//!
//! Invariants: `done` leaves 0 once, under the lock, after the verdict was written; no holder of the lock but the
//! ender sees ENDING.
//!
//! Checked by `models/context.rs`, and `models/interrupt.rs` for the goroutines and threads that run under a node.

use super::after::AfterEnd;
use super::deadline::{self, Deadline, DeadlineTimer};
use super::{Cause, ContextError};
use crate::chan::{self, Receiver, Woken};
use crate::g::call_undisturbed;
use crate::g::list::GList;
use crate::host::{Active, Clock, Host};
use crate::prim::hooks::*;
use crate::prim::{Acquire, Arc, AtomicBool, AtomicPtr, AtomicU32, Mutex, Rank, Relaxed, Release, Weak};
use crate::sched::run::wake::queue_nudged;
use crate::wait::interrupt::{self, Interrupt};
use crate::wait::queue::{self, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{Runner, Waiter};
use gmp_timers::Nanos;
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::time::Instant;

const OPEN: u32 = 0;
const CANCELED: u32 = 1;
const EXCEEDED: u32 = 2;
/// A bit beside one of the two codes: the channel may still be open. The ender that has set the bit holds the lock.
const ENDING: u32 = 4;

/// The end of a context.
pub(super) struct Verdict {
    pub(super) error: ContextError,
    pub(super) cause: Option<Cause>,
}

impl Verdict {
    fn code(&self) -> u32 {
        match self.error {
            ContextError::Canceled => CANCELED,
            ContextError::DeadlineExceeded => EXCEEDED,
        }
    }
}

/// The verdict by which a node ends.
#[derive(Copy, Clone)]
enum Of {
    /// The verdict of the ender.
    Ender,
    /// The verdict of a node on the way that was done before the ender came: its number.
    Earlier(usize),
}

/// An ender on its way down the tree.
struct Walk<'a> {
    verdict: &'a Verdict,
    /// The verdicts of nodes that were done before.
    earlier: Vec<Verdict>,
    /// The nodes that the walk ends next.
    open: Vec<(Arc<Node>, Of)>,
    calls: Vec<AfterEnd>,
    tasks: Readied<Active>,
}

impl<'a> Walk<'a> {
    fn new(verdict: &'a Verdict) -> Self {
        let (earlier, open, calls) = (Vec::new(), Vec::new(), Vec::new());
        Walk { verdict, earlier, open, calls, tasks: Readied::new() }
    }

    fn verdict(&self, of: Of) -> &Verdict {
        match of {
            Of::Ender => self.verdict,
            Of::Earlier(number) => &self.earlier[number],
        }
    }

    fn note(&mut self, earlier: Verdict) -> Of {
        self.earlier.push(earlier);
        Of::Earlier(self.earlier.len() - 1)
    }
}

/// The values that a node keeps until it is done, or has no owner left. Their drops are user code, and so come after the walk.
#[derive(Default)]
struct Kept {
    /// Holds the cause that the user gave with the deadline.
    timer: Option<DeadlineTimer>,
    it: Option<Box<dyn Send>>,
}

impl Kept {
    fn drop_parts(self) {
        drop_foreign(self.timer);
        drop_foreign(self.it);
    }
}

fn drop_foreign<T>(it: Option<T>) {
    if it.is_some() {
        call_undisturbed::<Active>(move || drop(it));
    }
}

/// Returns the error for a caller that was interrupted by a context under which the caller runs. Unwinds for `goexit`
/// and the end of the runtime.
pub(crate) fn interrupted<H: Host>(why: Interrupt) -> ContextError {
    match why {
        Interrupt::Exit | Interrupt::Shutdown => why.throw::<H>(),
        Interrupt::Context(frame) => {
            // SAFETY: the caller runs under the frame, whose `Entered` holds the node; the frame's `done` came from
            // `done_word`.
            let node = unsafe { Node::of_word(frame.as_ref().done).as_ref() };
            node.err().expect("interrupted: the context is done")
        }
    }
}

/// Returns the error for a value of the word `done`.
fn error_of(code: u32) -> Option<ContextError> {
    match code & !ENDING {
        CANCELED => Some(ContextError::Canceled),
        EXCEEDED => Some(ContextError::DeadlineExceeded),
        _ => None,
    }
}

/// A dependent of a node, which the node's ender tells.
pub(super) enum Dependent {
    /// A future that waits for the end of the node. The record lies in the future.
    Task(Waiter<Active>),
    /// A node below. That node leaves the list in `drop`, so its memory exists, but its last owner may be gone.
    Node(Weak<Node>),
    /// A runner under the node. The record lies on the runner's stack.
    Runner(Runner<Active>),
}

/// A record in the list of dependents.
pub(super) type DependentNode = queue::Node<Dependent>;

struct State {
    dependents: Queue<Dependent>,
    calls: BTreeMap<u64, AfterEnd>,
    next_key: u64,
    cause: Option<Cause>,
    kept: Kept,
}

/// A context without values. `done` comes first, for [`Node::of_word`].
#[repr(C)]
pub(super) struct Node {
    done: AtomicU32,
    above: Option<Arc<Node>>,
    /// The node's place in the list of the node above.
    place: Option<NonNull<DependentNode>>,
    deadline: Option<Deadline>,
    /// Set if the node is done, and so are all nodes below.
    swept: AtomicBool,
    /// The channel that is closed when the node is done, made under the lock at the first request. Null before. No message is
    /// sent there, and only `end_one` and `receiver` close it: users can't, and the drop of the context does not, since a
    /// context can be dropped before its end while a receiver still waits.
    channel: AtomicPtr<Receiver<()>>,
    state: Mutex<State>,
}

// SAFETY: `place` is touched under the lock of the node above, or while only one thread has the node; the other
// fields are Send and Sync.
unsafe impl Send for Node {}
// SAFETY: as for `Send`.
unsafe impl Sync for Node {}

impl Node {
    fn new(above: Option<(Arc<Node>, NonNull<DependentNode>)>, deadline: Option<Deadline>) -> Self {
        let (above, place) = above.unzip();
        let state = State {
            dependents: Queue::new(),
            calls: BTreeMap::new(),
            next_key: 0,
            cause: None,
            kept: Kept::default(),
        };
        Node {
            done: AtomicU32::new(OPEN),
            above,
            place,
            deadline,
            swept: AtomicBool::new(false),
            channel: AtomicPtr::new(ptr::null_mut()),
            state: Mutex::new(Rank::Context, state),
        }
    }

    /// Makes a node at the top.
    pub(super) fn top() -> Arc<Self> {
        Arc::new(Node::new(None, None))
    }

    /// Makes a node below `above`, if `above` can be done, with a timer if `deadline` is earlier than the deadlines of all
    /// nodes above.
    pub(super) fn derive(
        above: Option<&Arc<Node>>,
        deadline: Option<Deadline>,
        cause: Option<Cause>,
    ) -> Arc<Self> {
        let before = above.and_then(|above| above.deadline);
        let own = deadline.filter(|own| before.is_none_or(|before| own.instant() < before.instant()));
        let node = match above {
            None => Arc::new(Node::new(None, own)),
            Some(above) => Arc::new_cyclic(|node| {
                let place = Box::new(queue::Node::new(Dependent::Node(Weak::clone(node))));
                Node::new(Some((Arc::clone(above), NonNull::from(Box::leak(place)))), own.or(before))
            }),
        };
        if let Some(verdict) = node.enter() {
            node.end(&verdict);
        } else if let Some(own) = own {
            let verdict = Verdict { error: ContextError::DeadlineExceeded, cause };
            if own.at <= Active::now() {
                node.end(&verdict);
            } else {
                node.arm(own.at, verdict);
            }
        }
        node
    }

    /// Takes the node's place in the list of the node above; returns the verdict if the node above is done.
    fn enter(&self) -> Option<Verdict> {
        let (above, place) = (self.above.as_ref()?, self.place?);
        // SAFETY: the place is a box in no list; `leave` takes the place out before freeing the box.
        unsafe { above.add(place) }.err()
    }

    /// Leaves the list of the node above, if still there. Returns the node above.
    fn leave(&mut self) -> Option<Arc<Node>> {
        let (above, place) = (self.above.take()?, self.place.take()?);
        // SAFETY: the place stands in that list or in none. Out of the list the place belongs to this node alone, and came from
        // a box.
        unsafe {
            above.remove(place);
            drop(Box::from_raw(place.as_ptr()));
        }
        Some(above)
    }

    /// Puts a dependent into the list. If the node is done, returns the verdict as the error.
    ///
    /// # Safety
    /// The place stands in no list, and stays valid until removed.
    pub(super) unsafe fn add(&self, place: NonNull<DependentNode>) -> Result<(), Verdict> {
        let mut state = self.state.lock();
        // Relaxed: under the lock.
        let done = error_of(self.done.load(Relaxed));
        mutant!(ContextAddsBlindly: let done = None);
        if let Some(error) = done {
            return Err(Verdict { error, cause: state.cause.clone() });
        }
        // SAFETY: by this function's contract.
        unsafe { state.dependents.push_back(place) };
        Ok(())
    }

    /// Removes a dependent from the list, if still there.
    ///
    /// # Safety
    /// The place is valid, and stands in this list or in none.
    pub(super) unsafe fn remove(&self, place: NonNull<DependentNode>) {
        // SAFETY: by this function's contract; the lock is held.
        unsafe { self.state.lock().dependents.remove(place) };
    }

    fn arm(self: &Arc<Self>, deadline: Nanos, verdict: Verdict) {
        let timer = deadline::arm(deadline, Arc::downgrade(self), verdict);
        let mut state = self.state.lock();
        if self.done.load(Relaxed) == OPEN {
            state.kept.timer = Some(timer);
        }
        // Otherwise the call is dropped, after the lock.
    }

    /// Keeps `it` until the node is done; drops `it` at once if the node is done. The drop is called without a lock.
    pub(super) fn keep(&self, it: Box<dyn Send>) {
        let mut state = self.state.lock();
        let before = match self.done.load(Relaxed) {
            OPEN => state.kept.it.replace(it),
            _ => Some(it),
        };
        drop(state);
        drop(before);
    }

    /// Takes out the value that is kept.
    pub(super) fn give_up(&self) -> Option<Box<dyn Send>> {
        self.state.lock().kept.it.take()
    }

    /// Returns a pointer to `done` with provenance for the whole node, of which `done` is the first field.
    pub(super) fn done_word(&self) -> NonNull<AtomicU32> {
        NonNull::from(self).cast()
    }

    /// Returns the node with this `done_word`.
    fn of_word(done: NonNull<AtomicU32>) -> NonNull<Node> {
        done.cast()
    }

    /// Returns why the node is done; the node's channel is closed then.
    pub(super) fn err(&self) -> Option<ContextError> {
        // Acquire: sees the work before the cancel, and C4; partners: C1 and C5.
        let done = self.done.load(Acquire.unless(ContextErrRelaxed));
        if done & ENDING != 0 {
            unless!(ContextErrDoesNotWait, drop(self.state.lock()));
        }
        error_of(done)
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        let error = self.err()?;
        let given = self.state.lock().cause.clone();
        Some(given.unwrap_or_else(|| Arc::new(error)))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|deadline| deadline.instant())
    }

    /// Ends the node and all nodes below. When the call returns all of them are done.
    pub(super) fn end(self: &Arc<Self>, verdict: &Verdict) {
        // Acquire: partner S1.
        if self.swept.load(Acquire.unless(ContextSweptLooksRelaxed)) {
            return;
        }
        // Most nodes have no node below: then these vectors allocate nothing.
        let (mut walk, mut walked) = (Walk::new(verdict), Vec::new());
        let kept = self.end_one(&mut walk, Of::Ender);
        mutant!(ContextSweptEarly: self.swept.store(true, Release));
        while let Some((node, of)) = walk.open.pop() {
            // Acquire: partner S1, as above.
            let swept = node.swept.load(Acquire.unless(ContextSweptPassesRelaxed));
            let kept = if swept { Kept::default() } else { node.end_one(&mut walk, of) };
            walked.push((node, kept));
        }
        for node in walked.iter().map(|(node, _)| node).chain([self]) {
            // S1. Release: publishes that the nodes are done: partner `end`.
            node.swept.store(true, Release.unless(ContextSweptRelaxed));
        }
        let Walk { earlier, calls, tasks, .. } = walk;
        unless!(ContextWakesNoTask, tasks.call_wakers());
        calls.into_iter().for_each(AfterEnd::start);
        // Without a lock, and last: a drop is user code, which may wait, and panic.
        kept.drop_parts();
        for (node, kept) in walked {
            kept.drop_parts();
            drop_foreign(Some(node));
        }
        earlier.into_iter().for_each(|verdict| drop_foreign(verdict.cause));
    }

    /// Ends this node by the verdict that came from above, unless the node is done. Adds to the walk the nodes below, with the
    /// verdict of this node, the functions to be called, and the tasks to be woken. Returns the values that the node has kept
    /// until now.
    fn end_one(&self, walk: &mut Walk<'_>, of: Of) -> Kept {
        let mut state = self.state.lock();
        let before = error_of(self.done.load(Relaxed));
        mutant!(ContextSecondEndLeaves: if before.is_some() { return Kept::default() });
        let ends = before.is_none();
        let mut of = of;
        if let Some(error) = before {
            let earlier = walk.note(Verdict { error, cause: state.cause.clone() });
            unless!(ContextSecondEndTellsItsOwn, of = earlier);
        } else {
            let verdict = walk.verdict(of);
            state.cause = verdict.cause.clone();
            // C1. Release: publishes the canceller's work; partner: `Frame::is_done`.
            self.done.store(verdict.code() | ENDING, Release.unless(ContextEndsRelaxed));
            interrupt::cancel_fence();
        }
        let mut nudged = GList::new();
        for place in state.dependents.iter() {
            // C3. SAFETY: the place stands in this list, whose lock is held, so the owner has not left.
            match unsafe { &place.as_ref().value } {
                Dependent::Node(node) => walk.open.extend(node.upgrade().map(|node| (node, of))),
                Dependent::Runner(runner) if ends => runner.nudge(&mut nudged),
                Dependent::Task(waiter) if ends => {
                    // The record stays in the list, for the future to take out.
                    if waiter.claim() {
                        waiter.claimed().ready_with(&mut walk.tasks);
                    }
                }
                Dependent::Runner(_) | Dependent::Task(_) => {}
            }
        }
        if !ends {
            return Kept::default();
        }
        let kept = std::mem::take(&mut state.kept);
        walk.calls.extend(std::mem::take(&mut state.calls).into_values());
        // C4. The waiters are readied after the lock, and tasks among them are woken after the walk: their wakers are foreign
        // code.
        let mut woken = Woken::new();
        if let Some(channel) = self.channel() {
            channel.shut_and_tell(&mut woken);
        }
        // C5. Release: publishes C4 to a reader that finds the verdict without the lock; partner: `err`. No model has this:
        // CancelFence publishes what came before C2, and loom does not weigh the flag that C4 sets, by which a receiver decides
        // whether to take the channel's lock.
        self.done.store(walk.verdict(of).code(), Release);
        drop(state);
        // Queued now, as the walk may be long. Not under the lock: a thread that queues a goroutine of a runtime that is ending
        // sets aside the goroutines that are queued there, and notifies the waiters for them.
        queue_nudged(nudged);
        unless!(ContextWakesNoReceiver, woken.ready_with(&mut walk.tasks));
        walk.tasks.queue();
        kept
    }

    /// Keeps the call until the node is done, and returns the call's key; starts the call at once if the node is done.
    pub(super) fn call_when_done(self: &Arc<Self>, call: AfterEnd) -> Option<u64> {
        mutant!(ContextCallsAsksEarly: keep early = error_of(self.done.load(Relaxed)));
        let mut state = self.state.lock();
        let before = error_of(self.done.load(Relaxed));
        mutant!(ContextCallsAsksEarly: let before = early.flatten());
        if let Some(error) = before {
            let verdict = Verdict { error, cause: state.cause.clone() };
            drop(state);
            unless!(ContextCallsInTheWalk, self.end(&verdict));
            call.start();
            return None;
        }
        let key = state.next_key;
        state.next_key += 1;
        state.calls.insert(key, call);
        Some(key)
    }

    /// Removes the call, if it was neither started nor removed before. The caller drops the call, without the lock.
    pub(super) fn take_back(&self, key: u64) -> Option<AfterEnd> {
        self.state.lock().calls.remove(&key)
    }

    fn channel(&self) -> Option<&Receiver<()>> {
        // Acquire: sees the channel's content: partner `receiver`. No model has the two: loom does not model memory that does
        // not exist yet, and no message touches the cell of this channel's buffer. SAFETY: `receiver` made the pointer from a
        // box, which `drop` takes back. The channel lives as long as the node.
        unsafe { self.channel.load(Acquire).as_ref() }
    }

    /// Returns the channel that is closed at the end. The maker of the channel and `end_one` meet under the lock: the second of
    /// the two finds the work of the first.
    pub(super) fn receiver(&self) -> &Receiver<()> {
        if self.channel().is_none() {
            let fresh = Box::new(chan::signal());
            let state = self.state.lock();
            let there = self.channel().is_some().unless(ContextMakesTwoChannels);
            if !there {
                let done = self.done.load(Relaxed) != OPEN;
                if done.unless(ContextShowsItsChannelOpen) {
                    // No goroutine waits there yet.
                    fresh.shut_and_tell(&mut Woken::new());
                }
                // Release: partner `channel`.
                self.channel.store(Box::into_raw(fresh), Release);
                drop(state);
                mutant!(ContextShowsItsChannelOpen: if done { self.channel().unwrap().shut_and_tell(&mut Woken::new()) });
            }
        }
        self.channel().expect("receiver: it was made above")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let channel = self.channel.load(Relaxed);
        if !channel.is_null() {
            // SAFETY: the pointer came from a box, and this node has no owner left.
            drop(unsafe { Box::from_raw(channel) });
        }
        // Drops the chain above in a loop, not by recursion, as the chain may be long: nodes whose last owner was the
        // node below leave their lists one by one. If a drop of what the user has left in a node unwinds, those above the node
        // are dropped all the same. Two drops of one node that unwind end the process, as those of any value do.
        let mut above = self.leave();
        while let Some(node) = above {
            above = Arc::into_inner(node).and_then(|mut node| {
                let above = node.leave();
                drop_foreign(Some(node));
                above
            });
        }
    }
}
