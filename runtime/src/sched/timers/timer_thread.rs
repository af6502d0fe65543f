//! The timer thread: one thread of the process, for the callbacks that no runtime runs.
//!
//! Callbacks made outside of any runtime stand in the timer thread's own heap; callbacks that outlive their runtime
//! stay in that runtime's heaps, which the timer thread takes over. What an ended runtime has fired and not run is *left* to
//! the timer thread as well. A callback is called on one of a few *callback threads*, which the timer thread starts.
//!
//! ```text
//!   setter                                         timer thread
//!
//!   T1  heap's lock: a callback becomes the        B1  timer thread's lock: the earliest of the heaps
//!       earliest of its heap                           on the list; `until` := that
//!   T2  timer thread's lock: the heap is on        B2  sleep until then
//!       the list; no thread?  start one;
//!       it sleeps longer?  `until` := the new
//!       time, alarm
//! ```
//! T2 and B1 exclude each other. If B1 comes second, the thread sees the callback; if T2 does, the setter sees how long the
//! thread is about to sleep, and an alarm is kept until the thread sleeps. In B1 heaps without a callback leave the list: a
//! setter that puts one in comes to T2 after that.
//!
//! A heap is left when all is fired that was due at B1: callbacks that set themselves again can't keep the thread from a heap
//! with an earlier one.
//!
//! The thread exists as long as there is a callback, and a moment longer ([`LINGER`](capacity::LINGER)), so that a
//! program that sets and stops one timer at a time does not start a thread for each. The thread ends in B1, in the
//! critical section in which it clears `thread`. A stop of the last callback of a heap alarms the thread, unless the
//! thread would look soon anyway.
//!
//! A start of the thread may be refused. Then the heaps stay on the list, and T2 comes with each callback that is set in one of
//! them, until there is a thread.
//!
//! ```text
//!   timer thread                                   callback thread
//!
//!   C1  timer thread's lock: appends the calls to  D1  calls; drops what was called
//!       `waiting`                                  D2  timer thread's lock: takes the first of
//!   C2  timer thread's lock: while fewer than          `waiting`, and goes on with D1;
//!       MOST_CALLERS call, takes the first of          none: `callers` -= 1, ends
//!       `waiting`; `callers` += 1
//!   C3  starts a thread for that call
//! ```
//! So as long as a call waits, there are callback threads, each of which looks at `waiting` before it ends, or the timer
//! thread looks. A start that is refused gives the call back to the front of `waiting`, and C2 is repeated after a while;
//! without any callback thread the timer thread calls.
//!
//! The end of a context is no call for these threads: functions on all of them may wait under a context. It is made aside
//! (`host/native/aside.rs`), where a call that blocks holds up the next one for a moment only.
//!
//! Not done: a thread for each callback. Thousands of timers that outlive their runtime may be due together, and would take all
//! threads that the process may have. Nor does the thread that leaves a firing start anything: it may be the ender of the
//! runtime, which has a limit, and to start a thread takes some 50 µs, or a millisecond on a busy machine.
//!
//! Callback threads are not counted as the library's own: they run user's code, which may wake goroutines.
//!
//! Checked by `models/timer.rs`.

use crate::g::call_undisturbed;
use crate::host::Host;
use crate::m::cpus_of_the_process;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{Arc, AtomicBool, Mutex, MutexGuard, Rank, Relaxed, capacity};
use crate::sched::timers::Timers;
use crate::sched::timers::callback::{Callback, RunMode};
use crate::sched::timers::shared::Shared;
use crate::sched::watch::deadlock::Verdict;
use gmp_timers::Nanos;
use std::collections::VecDeque;
use std::io;

/// What a callback thread calls.
pub(crate) enum Call<H: Host> {
    /// A callback that is due.
    Timer(Shared<Callback<H>>),
    /// A function that a context calls after its end.
    Function(Box<dyn FnOnce() + Send>),
}

impl<H: Host> Call<H> {
    /// For the thread that owns the call. Drops what was called, as the last owner perhaps. A panic of the user's code ends
    /// here: the panic hook has printed it. Where there is no thread for the call, the caller may be one that ends a runtime,
    /// under a context.
    fn call(self) {
        call_undisturbed::<H>(move || match self {
            Call::Timer(call) => call.call(),
            Call::Function(f) => f(),
        });
    }
}

struct State<H: Host> {
    /// Heaps with callbacks.
    kept: Vec<Arc<Timers<H>>>,
    /// Calls that others have left to the thread. Empty without a thread.
    left: VecDeque<Call<H>>,
    /// Calls for which there was no callback thread.
    waiting: VecDeque<Call<H>>,
    /// How many callback threads there are, or are about to be started. At most `MOST_CALLERS`.
    callers: usize,
    /// When the timer thread tries again to start a callback thread, after a refusal.
    again: Option<Nanos>,
    thread: bool,
    /// The thread fires callbacks, and has not looked again since.
    fires: bool,
    /// How long the thread sleeps. The thread sleeps now, or is about to, or comes back.
    until: Nanos,
}

/// The timer thread.
pub(crate) struct TimerThread<H: Host> {
    own: Arc<Timers<H>>,
    state: Mutex<State<H>>,
    /// The thread was refused, and heaps wait for it. Written under the lock.
    refused: AtomicBool,
    note: Note<H>,
}

/// What the thread is to do next.
enum Next<H: Host> {
    /// What is due in this heap at this time.
    Fire(Arc<Timers<H>>, Nanos),
    /// What others have left.
    Call(VecDeque<Call<H>>),
    Sleep(Nanos),
    End,
}

impl<H: Host> TimerThread<H> {
    pub(crate) fn new() -> Self {
        let state = State {
            kept: Vec::new(),
            left: VecDeque::new(),
            waiting: VecDeque::new(),
            callers: 0,
            again: None,
            thread: false,
            fires: false,
            until: Nanos::ZERO,
        };
        TimerThread {
            own: Arc::new(Timers::of_nobody()),
            state: Mutex::new(Rank::TimerThread, state),
            refused: AtomicBool::new(false),
            note: Note::new(),
        }
    }

    /// Returns the heap of callbacks that are made outside of any runtime.
    pub(crate) fn own(&self) -> &Arc<Timers<H>> {
        &self.own
    }

    /// For models: returns how many threads there are, callback threads too.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn threads(&self) -> usize {
        let state = self.state.lock();
        usize::from(state.thread) + state.callers
    }

    /// For the DeadlockWatch. `Err(Awake)`: a callback is being fired, or waits for a callback thread. `Err(Waits)`: one is
    /// pending. `Ok((guard, threads))`: none is, and none can fire while the guard lives; `threads` is 1 while the timer
    /// thread exists, else 0.
    pub(crate) fn freeze(&self) -> Result<(impl Sized + '_, u32), Verdict> {
        let state = self.state.lock();
        let calls_wait = !(state.left.is_empty() && state.waiting.is_empty());
        if state.fires.unless(TimerThreadFiresUnseen) || calls_wait {
            return Err(Verdict::Awake);
        }
        if state.kept.iter().any(|timers| !timers.is_empty()) {
            return Err(Verdict::Waits);
        }
        let threads = u32::from(state.thread);
        Ok((state, threads))
    }

    /// T2: a callback was put into one of the timer thread's heaps, or the thread has taken a heap over.
    pub(crate) fn keep(&'static self, timers: &Arc<Timers<H>>) {
        let mut state = self.state.lock();
        if !state.kept.iter().any(|kept| Arc::ptr_eq(kept, timers)) {
            state.kept.push(Arc::clone(timers));
        }
        if !state.thread {
            // Relaxed: a hint, the lock decides.
            let told = self.refused.load(Relaxed);
            if let Err(refused) = self.start(&mut state) {
                // Relaxed: as above.
                self.refused.store(true, Relaxed);
                drop(state);
                // Once until a thread was to be had.
                if !told {
                    H::warn(&format!(
                        "cannot start the timers' thread: {refused}; timers outside of runtimes wait until the next one is set"
                    ));
                }
            }
        } else if let Some(due) = timers.earliest()
            && due < state.until
        {
            self.alarm(state, due);
        }
    }

    /// Has `call` made by a callback thread. Starts at most the timer thread; where that is refused, the caller makes the call.
    pub(crate) fn leave(&'static self, call: Call<H>) {
        let mut state = self.state.lock();
        if state.thread || self.start(&mut state).is_ok() {
            state.left.push_back(call);
            if state.until > Nanos::ZERO {
                mutant!(LeftInSilence: return);
                self.alarm(state, Nanos::ZERO);
            }
        } else {
            drop(state);
            call.call();
        }
    }

    /// Starts the thread. In the lock: the first that finds no thread, and that one alone, starts it.
    fn start(&'static self, state: &mut State<H>) -> io::Result<()> {
        let cpus = cpus_of_the_process::<H>();
        let started = H::start("gmp-timers", move || {
            if let Some(cpus) = cpus {
                // Refused where none of these CPUs is left: then it has those of the caller.
                let _set = H::set_own_affinity(&cpus);
            }
            self.serve()
        });
        state.thread = started.is_ok();
        if state.thread {
            // Relaxed: a hint, the lock decides.
            self.refused.store(false, Relaxed);
        }
        started.map(|_detached| ())
    }

    /// Whether heaps wait for a thread that was refused: whoever sets a callback in one of them asks again, also when theirs is
    /// not the earliest there. The earliest would lie in the past at some time, and nobody would ask any more.
    pub(crate) fn was_refused(&self) -> bool {
        // Relaxed: a hint, the lock decides.
        self.refused.load(Relaxed).unless(TimerThreadRefusedForGood)
    }

    /// The last callback of a heap was stopped: the thread need not sleep until that callback's time.
    pub(crate) fn look_again(&self) {
        let state = self.state.lock();
        let now = H::now();
        if state.thread && state.until > now.saturating_add(capacity::LINGER) {
            mutant!(TimerThreadNotTold: return);
            self.alarm(state, now);
        }
    }

    fn alarm(&self, mut state: MutexGuard<'_, State<H>>, until: Nanos) {
        state.until = until;
        drop(state);
        self.note.alarm();
    }

    fn serve(&'static self) {
        let mut idle_since = None;
        loop {
            match self.next(&mut idle_since) {
                Next::Fire(timers, now) => {
                    // What becomes due meanwhile waits for B1: another heap's callback may be earlier.
                    self.run(std::iter::from_fn(|| timers.pop_orphan(now).map(Call::Timer)));
                }
                Next::Call(left) => self.run(left),
                Next::Sleep(until) => {
                    self.note.doze(Some(until));
                }
                Next::End => break,
            }
        }
        mutant!(TimerThreadEndsLate: self.state.lock().thread = false);
    }

    /// B1.
    fn next(&self, idle_since: &mut Option<Nanos>) -> Next<H> {
        let mut state = self.state.lock();
        state.fires = false;
        if !state.left.is_empty() {
            *idle_since = None;
            state.fires = true;
            return Next::Call(std::mem::take(&mut state.left));
        }
        state.kept.retain(|timers| !timers.is_empty());
        let now = H::now();
        if state.again.take_if(|again| *again <= now).is_some() && !state.waiting.is_empty() {
            *idle_since = None;
            state.fires = true;
            return Next::Call(VecDeque::new());
        }
        let first =
            state.kept.iter().filter_map(|timers| Some((timers.earliest()?, timers))).min_by_key(|f| f.0);
        let until = match first {
            Some((due, timers)) if due <= now => {
                *idle_since = None;
                let timers = Arc::clone(timers);
                state.fires = true;
                return Next::Fire(timers, now);
            }
            Some((due, _)) => {
                *idle_since = None;
                due
            }
            None if state.again.is_some() => {
                *idle_since = None;
                now.saturating_add(capacity::LINGER)
            }
            None => {
                let end = idle_since.get_or_insert(now).saturating_add(capacity::LINGER);
                if end <= now {
                    unless!(TimerThreadEndsLate, state.thread = false);
                    return Next::End;
                }
                end
            }
        };
        mutant!(TimerThreadLooksEarly: drop(state); state = self.state.lock());
        let until = state.again.map_or(until, |again| again.min(until));
        state.until = until;
        Next::Sleep(until)
    }

    /// Makes calls that are due: on this thread those that are inline, the others on callback threads, in their order.
    fn run(&'static self, calls: impl IntoIterator<Item = Call<H>>) {
        let mut others = VecDeque::new();
        for call in calls {
            match call {
                Call::Timer(call) if call.run() == RunMode::Wakes => call.call(),
                // The end of a context, for which all callback threads may wait.
                Call::Timer(call) if call.run() == RunMode::Uncounted => {
                    H::run_aside(move || Call::Timer(call).call());
                }
                other => others.push_back(other),
            }
        }
        self.state.lock().waiting.append(&mut others);
        while let Some(call) = self.take_for_a_thread() {
            let mut called = OnItsWay(self, Some(call));
            if let Err(refused) = H::start("gmp-callback", move || called.arrives()) {
                H::warn(&format!("cannot start a thread for a timer's callback: {refused}"));
                // A callback thread that there is takes what waits when its call ends, and this thread tries again: that call
                // may block.
                let mut state = self.state.lock();
                if state.callers > 0 {
                    state.again = Some(H::now().saturating_add(capacity::LINGER));
                    return;
                }
            }
        }
    }

    /// C2.
    fn take_for_a_thread(&self) -> Option<Call<H>> {
        let mut state = self.state.lock();
        if state.callers >= capacity::MOST_CALLERS {
            return None;
        }
        let call = state.waiting.pop_front()?;
        state.callers += 1;
        Some(call)
    }

    /// D2.
    fn take_or_end(&self) -> Option<Call<H>> {
        let mut state = self.state.lock();
        let call = state.waiting.pop_front();
        mutant!(CallerEndsLate: drop(state); state = self.state.lock());
        if call.is_none() {
            state.callers -= 1;
            // Its memory goes: there were thousands, perhaps.
            state.waiting = VecDeque::new();
        }
        call
    }

    /// C3 was refused. Returns the call if there is no callback thread that would take it.
    fn take_back(&self, call: Call<H>) -> Option<Call<H>> {
        let mut state = self.state.lock();
        state.callers -= 1;
        if state.callers == 0 {
            return Some(call);
        }
        state.waiting.push_front(call);
        None
    }
}

/// A call on the way to its thread, the only owner for this firing: otherwise the starter of the thread could be the last
/// owner, and would drop the user's closure. If no thread can be started, the drop takes the call back.
struct OnItsWay<H: Host>(&'static TimerThread<H>, Option<Call<H>>);

impl<H: Host> OnItsWay<H> {
    fn arrives(&mut self) {
        while let Some(call) = self.1.take() {
            call.call();
            self.1 = self.0.take_or_end();
        }
    }
}

impl<H: Host> Drop for OnItsWay<H> {
    fn drop(&mut self) {
        if let Some(call) = self.1.take().and_then(|call| self.0.take_back(call)) {
            call.call();
        }
    }
}
