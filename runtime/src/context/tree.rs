//! The tree of contexts, and how the end of a node reaches all nodes and runners below it.
//!
//! ```text
//!   open ── end, once: by a Cancel, its deadline, or the end of the one above ──▶ done
//! ```
//! A node holds the node above. A node's list of dependents, under the node's lock, has the nodes below (weakly), and
//! the runners under the node. A dependent leaves the list in constant time; a node that is dropped does so before its
//! memory is freed, so what a list names is alive as long as the list's lock is held.
//!
//! An ender walks the tree with a private list, not by recursion (the tree may be deep), and holds one lock at a time,
//! for one node:
//!
//! ```text
//!   ender:   the verdict · C1 done + ENDING · C2 fence · C3 dependents: runners are nudged, tasks readied, nodes go on this
//!            walk's list · C4 the channel is closed · C5 done, without ENDING        (C1 to C5 under the node's lock)
//!            after the walk: S1 `swept` in each node of it · the wakers of the tasks are called · the calls that were asked
//!            for start · what the nodes have kept is dropped
//!   err():   done? with ENDING: takes the lock, and so waits for C5
//!   done():  the channel is made under the lock, and closed before it is shown where C1 was before
//! ```
//! So for each node, once `err` has returned an error the channel is closed, and once the channel is closed `err`
//! returns an error. A runner may be nudged after C1; the runner learns the error from `err`, or from [`interrupted`],
//! which waits for C5 as `err` does.
//!
//! Nodes stay in the list of a node that is done. A second ender that finds `swept` unset walks over them as well, and ends
//! what is below a node that is done by the verdict of that node. So when any ender returns, the node that was to be ended and
//! all nodes below are done, each by the verdict of the one above that reached it. A call that is asked for when the
//! node is done may come in the middle of an ender's walk: the asker first walks as a second ender, and then starts the
//! call.
//!
//! A node's lock is the outermost of all (`prim/lock.rs`), and no thread holds those of two. Neither the user's code nor
//! the end of another node runs under it.
//!
//! Invariants: `done` leaves 0 once, under the lock, after the verdict was written; no holder of the lock but the
//! ender sees ENDING.
//!
//! Checked by `models/context.rs`, and `models/interrupt.rs` for the goroutines and threads that run under a node.

use super::deadline::{self, Alarm};
use super::done::Done;
use super::{Cause, ContextError};
use crate::chan::{Receiver, Woken};
use crate::g::list::GList;
use crate::g::{Birth, call_undisturbed};
use crate::goroutine;
use crate::host::{Active, Clock, Host, Process, Threads};
use crate::prim::hooks::*;
use crate::prim::{Acquire, Arc, AtomicBool, AtomicPtr, AtomicU32, Mutex, Rank, Relaxed, Release, Weak};
use crate::sched::Sched;
use crate::sched::run::wake::queue_nudged;
use crate::sched::timers::timer_thread::Call;
use crate::wait::interrupt::{self, Interrupt};
use crate::wait::queue::{self, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{Runner, Waiter};
use gmp_timers::Nanos;
use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::time::Instant;

const OPEN: u32 = 0;
const CANCELED: u32 = 1;
const EXCEEDED: u32 = 2;
/// A bit beside one of the two codes: the channel may be open. The ender that has set the bit holds the lock.
const ENDING: u32 = 4;

/// How a context ends.
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

/// By whose verdict a node ends.
#[derive(Copy, Clone)]
enum Of {
    /// That of the ender.
    Ender,
    /// That of a node on the way, which was done before the ender came: its number.
    Earlier(usize),
}

/// An ender on its way down the tree.
struct Walk<'a> {
    verdict: &'a Verdict,
    /// Those of nodes that were done before.
    earlier: Vec<Verdict>,
    /// The nodes that are to be ended next.
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

/// What a node keeps until it is done. The drop is the user's code, and so comes after the walk.
#[derive(Default)]
struct Kept {
    /// Has the cause that the user gave with the deadline.
    alarm: Option<Alarm>,
    it: Option<Box<dyn Send>>,
}

impl Kept {
    fn drop_parts(self) {
        drop_foreign(self.alarm);
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

/// The error for a value of the word `done`.
fn error_of(code: u32) -> Option<ContextError> {
    match code & !ENDING {
        CANCELED => Some(ContextError::Canceled),
        EXCEEDED => Some(ContextError::DeadlineExceeded),
        _ => None,
    }
}

/// What the ender of a node tells.
pub(super) enum Dependent {
    /// A future that waits for the end of the node, and has the record.
    Task(Waiter<Active>),
    /// A node below. That node leaves the list in `drop`, so its memory is there, but the last owner may have gone.
    Node(Weak<Node>),
    /// A runner under the node. The record lies on the runner's stack.
    Runner(Runner<Active>),
}

/// A record in the list of dependents.
pub(super) type DependentNode = queue::Node<Dependent>;

/// A function to be called when a node is done, and the runtime for the call.
pub(super) struct AfterEnd {
    pub(super) f: Box<dyn FnOnce() + Send>,
    pub(super) home: Option<Weak<Sched<Active>>>,
}

struct State {
    dependents: Queue<Dependent>,
    calls: BTreeMap<u64, AfterEnd>,
    next_key: u64,
    cause: Option<Cause>,
    alarm: Option<Alarm>,
    /// What is dropped when the node is done, or has no owner any more.
    kept: Option<Box<dyn Send>>,
}

/// When a node is done at the latest.
#[derive(Copy, Clone)]
pub(super) struct Deadline {
    pub(super) at: Nanos,
    /// The instant that the user gave, which may lie outside of the clock's range.
    pub(super) given: Option<Instant>,
}

impl Deadline {
    fn instant(&self) -> Instant {
        self.given.unwrap_or_else(|| Active::instant(self.at))
    }
}

/// A context without values. `done` comes first, for [`Node::of_word`].
#[repr(C)]
pub(super) struct Node {
    done: AtomicU32,
    above: Option<Arc<Node>>,
    /// The node's place in the list of the node above.
    place: Option<NonNull<DependentNode>>,
    deadline: Option<Deadline>,
    /// The node is done, and so are all nodes below.
    swept: AtomicBool,
    /// The channel, made under the lock at the first request. Null before.
    channel: AtomicPtr<Done>,
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
            alarm: None,
            kept: None,
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

    /// Makes a node below `above`, if that can be done, with a timer if `deadline` is earlier than those of all nodes above.
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

    /// Takes the node's place in the list of the node above; returns the verdict if that one is done.
    fn enter(&self) -> Option<Verdict> {
        let (above, place) = (self.above.as_ref()?, self.place?);
        // SAFETY: the place is a box in no list; `leave` takes the place out before freeing the box.
        unsafe { above.add(place) }.err()
    }

    /// Leaves the list of the node above, if still there. Returns the node above.
    fn leave(&mut self) -> Option<Arc<Node>> {
        let (above, place) = (self.above.take()?, self.place.take()?);
        // SAFETY: the place stands in that list or in none. Out of the list the place is this node's alone, and came
        // from a box.
        unsafe {
            above.remove(place);
            drop(Box::from_raw(place.as_ptr()));
        }
        Some(above)
    }

    /// Puts a dependent into the list. The error is the verdict, if the node is done.
    ///
    /// # Safety
    /// The place stands in no list, and stays valid until removed.
    pub(super) unsafe fn add(&self, place: NonNull<DependentNode>) -> Result<(), Verdict> {
        let mut state = self.state.lock();
        // Relaxed: under the lock.
        if let Some(error) = error_of(self.done.load(Relaxed)) {
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
        let alarm = deadline::arm(deadline, Arc::downgrade(self), verdict);
        let mut state = self.state.lock();
        if self.done.load(Relaxed) == OPEN {
            state.alarm = Some(alarm);
        }
        // Else the call is dropped, after the lock.
    }

    /// Keeps `it` until the node is done: not at all if it is. The drop is called without a lock.
    pub(super) fn keep(&self, it: Box<dyn Send>) {
        let mut state = self.state.lock();
        let before = match self.done.load(Relaxed) {
            OPEN => state.kept.replace(it),
            _ => Some(it),
        };
        drop(state);
        drop(before);
    }

    /// Returns what is kept.
    pub(super) fn give_up(&self) -> Option<Box<dyn Send>> {
        self.state.lock().kept.take()
    }

    /// A pointer to `done` with provenance for the whole node, of which `done` is the first field.
    pub(super) fn done_word(&self) -> NonNull<AtomicU32> {
        NonNull::from(self).cast()
    }

    /// The node with this `done_word`.
    fn of_word(done: NonNull<AtomicU32>) -> NonNull<Node> {
        done.cast()
    }

    /// Returns why the node is done; the node's channel is closed then.
    pub(super) fn err(&self) -> Option<ContextError> {
        // Acquire: what came before the cancel, and C4; partners: C1 and C5.
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
        if self.swept.load(Acquire) {
            return;
        }
        // Most nodes have none below: these then allocate nothing.
        let (mut walk, mut walked) = (Walk::new(verdict), Vec::new());
        let kept = self.end_one(&mut walk, Of::Ender);
        while let Some((node, of)) = walk.open.pop() {
            let kept = node.end_one(&mut walk, of);
            walked.push((node, kept));
        }
        for node in walked.iter().map(|(node, _)| node).chain([self]) {
            // S1. Release: they are done: partner `end`.
            node.swept.store(true, Release);
        }
        let Walk { earlier, calls, tasks, .. } = walk;
        unless!(ContextWakesNoTask, tasks.call_wakers());
        calls.into_iter().for_each(AfterEnd::start);
        // Without a lock, and last: a drop of the user's may wait, and panic.
        kept.drop_parts();
        for (node, kept) in walked {
            kept.drop_parts();
            drop_foreign(Some(node));
        }
        earlier.into_iter().for_each(|verdict| drop_foreign(verdict.cause));
    }

    /// Ends this node by the verdict that came from above, unless the node is done. Adds to the walk what is below, with the
    /// verdict of this node, the functions to be called, and the tasks to be woken. Returns what the node has kept until now.
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
            // C1. Release: what the canceller did before; partner: `Frame::is_done`.
            self.done.store(verdict.code() | ENDING, Release);
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
                        waiter.ready_with(&mut walk.tasks);
                    }
                }
                Dependent::Runner(_) | Dependent::Task(_) => {}
            }
        }
        if !ends {
            return Kept::default();
        }
        let kept = Kept { alarm: state.alarm.take(), it: state.kept.take() };
        walk.calls.extend(std::mem::take(&mut state.calls).into_values());
        // C4. Those that wait are readied after the lock, and tasks among them are told after the walk: their wakers are
        // foreign code.
        let mut woken = Woken::new();
        if let Some(channel) = self.channel() {
            channel.close(&mut woken);
        }
        // C5. Release: C4, for a reader that finds the verdict without the lock; partner: `err`.
        self.done.store(walk.verdict(of).code(), Release);
        drop(state);
        // Now: the walk may be long. Not under the lock: a thread that queues a goroutine of a runtime that ends sets aside
        // what is queued there, and tells those that wait for it.
        queue_nudged(nudged);
        woken.ready_with(&mut walk.tasks);
        walk.tasks.queue();
        kept
    }

    /// Keeps the call until the node is done, and returns the call's key; starts the call at once if the node is done.
    pub(super) fn call_when_done(self: &Arc<Self>, call: AfterEnd) -> Option<u64> {
        let mut state = self.state.lock();
        if let Some(error) = error_of(self.done.load(Relaxed)) {
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

    /// Removes the call, if neither started nor removed before. The caller drops the call, without the lock.
    pub(super) fn take_back(&self, key: u64) -> Option<AfterEnd> {
        self.state.lock().calls.remove(&key)
    }

    fn channel(&self) -> Option<&Done> {
        // Acquire: the channel's content: partner `receiver`. The channel stays until the node goes. SAFETY: `receiver`
        // made the pointer from a box, which `drop` takes back.
        unsafe { self.channel.load(Acquire).as_ref() }
    }

    /// The channel that is closed at the end. The maker of the channel and `end_one` meet under the lock: the second of
    /// the two finds the work of the first.
    pub(super) fn receiver(&self) -> &Receiver<()> {
        if self.channel().is_none() {
            let fresh = Box::new(Done::new());
            let state = self.state.lock();
            if self.channel().is_none() {
                let done = self.done.load(Relaxed) != OPEN;
                if done.unless(ContextShowsItsChannelOpen) {
                    // No goroutine waits there yet.
                    fresh.close(&mut Woken::new());
                }
                // Release: partner `channel`.
                self.channel.store(Box::into_raw(fresh), Release);
                drop(state);
                mutant!(ContextShowsItsChannelOpen: if done { self.channel().unwrap().close(&mut Woken::new()) });
            }
        }
        self.channel().expect("receiver: it was made above").receiver()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let channel = self.channel.load(Relaxed);
        if !channel.is_null() {
            // SAFETY: the pointer came from a box, and this node has no owner any more.
            drop(unsafe { Box::from_raw(channel) });
        }
        // Drops the chain above in a loop, not by recursion, as the chain may be long: nodes whose last owner was the
        // node below leave their lists one by one.
        let mut above = self.leave();
        while let Some(node) = above {
            above = Arc::into_inner(node).and_then(|mut node| node.leave());
        }
    }
}

impl AfterEnd {
    fn start(self) {
        let AfterEnd { f, home } = self;
        match home.and_then(|home| home.upgrade()) {
            Some(sched) if !sched.is_ending() => {
                let birth =
                    Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
                let mut unrun = Unrun(Some(f));
                // If there is no stack for the goroutine, the drop of `unrun` calls the function.
                drop(goroutine::spawn(&sched, birth, move || {
                    if let Some(f) = unrun.0.take() {
                        f();
                    }
                }));
            }
            _ => run_aside(f),
        }
    }
}

/// Runs the function on a thread of the library. Where there is none, this thread runs it, in the middle of an ender's work: a
/// panic of the function ends here, and no interrupt ends its waits.
fn run_aside(f: Box<dyn FnOnce() + Send>) {
    Active::run_aside(move || call_undisturbed::<Active>(f));
}

/// A call on the way to its goroutine. If the goroutine never runs, because the runtime ends or has no stack for it,
/// the drop leaves the call to the timer thread, as the ender of a runtime has no time to start threads.
struct Unrun(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Unrun {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            Active::shared().timer_thread.leave(Call::Function(f));
        }
    }
}
