//! The timer thread: one thread of the process, for the callbacks that no runtime runs.
//!
//! Callbacks made outside of any runtime stand in the timer thread's own heap; callbacks that outlive their runtime stay in
//! that runtime's heaps, which the timer thread takes over. Callbacks that a runtime has fired but not run before its end are
//! *left* to the timer thread as well. A callback is called on one of a few *callback threads*, which the timer thread starts.
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
//! T2 and B1 exclude each other. If B1 comes second, the thread sees the callback; if T2 comes second, the setter sees how long
//! the thread is about to sleep, and its alarm is kept until the thread sleeps. In B1 heaps without a callback leave the list:
//! a setter that puts one in comes to T2 after that.
//!
//! The thread goes on to the next heap when it has fired all callbacks that were due at B1: so callbacks that set themselves
//! again can't keep the thread from another heap that has an earlier callback.
//!
//! The thread exists as long as there is a callback, and a moment longer ([`LINGER`](capacity::LINGER)), so that a
//! program that sets and stops one timer at a time does not start a thread for each. The thread ends in B1, in the
//! critical section in which it clears `thread`. A stop of the last callback of a heap alarms the thread, unless the
//! thread would look soon anyway.
//!
//! The system can refuse to start the thread. Then the heaps stay on the list, and each callback that is set in one of them
//! comes to T2, until there is a thread; and the monitors ask again, as for calls that were left (`sched/calls.rs`).
//!
//! ```text
//!   timer thread                                   callback thread
//!
//!   C1  timer thread's lock: appends the calls to  D1  makes the call; drops the function
//!       `waiting`                                  D2  timer thread's lock: takes the first of
//!   C2  timer thread's lock: while fewer than          `waiting`, and goes on with D1;
//!       MOST_CALLBACK_THREADS call, takes the          none: `callback_threads` -= 1,
//!       first of `waiting`;                            ends
//!       `callback_threads` += 1
//!   C3  starts a thread for that call
//! ```
//! So as long as a call waits, either there are callback threads, each of which looks at `waiting` before it ends, or the timer
//! thread looks. After a refused start the call goes back to the front of `waiting`, and C2 is repeated after a while; if there
//! is no callback thread, the timer thread makes the call.
//!
//! The end of a context is not left to callback threads: functions that wait under contexts might occupy all of them. Such a
//! call is made aside (`host/native/aside.rs`), where a call that blocks delays the next one only for a moment; if there is no
//! thread for that, the timer thread makes the call.
//!
//! If the timer thread itself is refused, the calls that were left stay in `left`: `sched/calls.rs` says which thread asks
//! again. A thread that leaves a call never makes it.
//!
//! Not done: a thread for each callback. Thousands of timers that outlive their runtime can be due together, and would take all
//! threads that the process may have. The thread that leaves a firing starts no callback thread: it might be the ender of the
//! runtime, which has a time limit, and starting a thread takes some 50 µs, or a millisecond on a busy machine.
//!
//! Not done: T2 without the lock while a thread starts. Another setter then would not wait for that start; but the judge of
//! deadlocks would find a timer thread to count that may not be there yet, and would have to ask again.
//!
//! Callback threads are not counted as the library's own: they run the user's code, which can wake goroutines.
//!
//! Checked by `models/timer.rs`.

use crate::g::call_undisturbed;
use crate::host::Host;
use crate::m::cpus_of_the_process;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{Arc, AtomicBool, Mutex, MutexGuard, Rank, Relaxed, capacity};
use crate::sched::calls::{call_monitors, run_aside_or_here};
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
    /// For the thread that owns the call. Makes the call, and drops the function, perhaps as its last owner. A panic of the
    /// user's code ends here: the panic hook has printed it.
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
    /// Calls that other threads have left to the timer thread. If there is no timer thread, they wait for it.
    left: VecDeque<Call<H>>,
    /// Calls for which there was no callback thread.
    waiting: VecDeque<Call<H>>,
    /// How many callback threads there are, or are about to be started. At most `MOST_CALLBACK_THREADS`.
    callback_threads: usize,
    /// When the timer thread tries again to start a callback thread, after a refusal.
    again: Option<Nanos>,
    thread: bool,
    /// The operator was told that the thread was refused, and no start has succeeded since.
    told: bool,
    /// The thread fires callbacks, and has not looked again since.
    fires: bool,
    /// Until when the thread sleeps, which is asleep, about to be, or coming back.
    until: Nanos,
}

/// The timer thread.
pub(crate) struct TimerThread<H: Host> {
    own: Arc<Timers<H>>,
    state: Mutex<State<H>>,
    /// The system has refused the thread for which heaps wait. Written under the lock.
    refused: AtomicBool,
    /// The system has refused the thread for which calls wait. Written under the lock.
    calls_wait: AtomicBool,
    note: Note<H>,
}

/// The next step of the thread.
enum Next<H: Host> {
    /// Fire the callbacks of this heap that are due at this time.
    Fire(Arc<Timers<H>>, Nanos),
    /// Make the calls that other threads have left.
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
            callback_threads: 0,
            again: None,
            thread: false,
            told: false,
            fires: false,
            until: Nanos::ZERO,
        };
        TimerThread {
            own: Arc::new(Timers::of_nobody()),
            state: Mutex::new(Rank::TimerThread, state),
            refused: AtomicBool::new(false),
            calls_wait: AtomicBool::new(false),
            note: Note::new(),
        }
    }

    /// Returns the heap of callbacks that are made outside of any runtime.
    pub(crate) fn own(&self) -> &Arc<Timers<H>> {
        &self.own
    }

    /// For models: returns how many threads there are, including callback threads.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn threads(&self) -> usize {
        let state = self.state.lock();
        usize::from(state.thread) + state.callback_threads
    }

    /// For the DeadlockWatch. `Err(Awake)`: a callback is being fired, or waits for a callback thread. `Err(Waits)`: a callback
    /// is pending. `Ok((guard, threads))`: no callback is pending, and none can fire while the guard lives; `threads` is 1
    /// while the timer thread exists, else 0.
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

    /// T2: a callback was put into one of the timer thread's heaps, or the thread has taken a heap over. The caller holds none
    /// of the library's locks.
    pub(crate) fn keep(&'static self, timers: &Arc<Timers<H>>) {
        let mut state = self.state.lock();
        if !state.kept.iter().any(|kept| Arc::ptr_eq(kept, timers)) {
            state.kept.push(Arc::clone(timers));
        }
        if !state.thread {
            if let Err(refused) = self.start(&mut state) {
                // Relaxed: a hint, the lock decides.
                self.refused.store(true, Relaxed);
                let told = std::mem::replace(&mut state.told, true);
                drop(state);
                call_monitors::<H>();
                if !told {
                    H::warn(&format!(
                        "cannot start the timers' thread: {refused}; timers outside of runtimes wait; each runtime asks again ten \
                         times a second, and the next such timer asks, too"
                    ));
                }
            }
        } else if let Some(due) = timers.earliest()
            && due < state.until
        {
            self.alarm(state, due);
        }
    }

    /// Leaves `call` to a callback thread. Starts at most the timer thread; if that is refused, the call waits. The caller
    /// holds none of the library's locks.
    pub(crate) fn leave(&'static self, call: Call<H>) {
        let mut state = self.state.lock();
        if state.thread || self.start(&mut state).is_ok() {
            state.left.push_back(call);
            if state.until > Nanos::ZERO {
                mutant!(LeftInSilence: return);
                self.alarm(state, Nanos::ZERO);
            }
        } else {
            mutant!(LeaverCalls: { drop(state); return call.call() });
            state.left.push_back(call);
            // Relaxed: a hint, the lock decides.
            self.calls_wait.store(true, Relaxed);
            drop(state);
            call_monitors::<H>();
        }
    }

    /// Returns `true` if calls or heaps wait for a thread that was refused.
    pub(crate) fn calls_wait(&self) -> bool {
        // Relaxed: hints, the lock decides.
        self.calls_wait.load(Relaxed) || self.refused.load(Relaxed)
    }

    /// Tries to start the thread once more, if calls or heaps wait for it.
    ///
    /// # Errors
    /// The system's, if it refuses the thread.
    pub(crate) fn ask_again(&'static self) -> io::Result<()> {
        mutant!(MonitorLeavesCalls: return Ok(()));
        let mut state = self.state.lock();
        if state.thread.unless(LookStartsAnother) {
            return Ok(());
        }
        state.kept.retain(|timers| !timers.is_empty());
        mutant!(MonitorLeavesTimers: if state.left.is_empty() { return Ok(()) });
        if state.left.is_empty() && state.kept.is_empty() {
            // Relaxed: a hint, the lock decides. All timers were stopped meanwhile.
            self.refused.store(false, Relaxed);
            return Ok(());
        }
        self.start(&mut state)
    }

    /// Starts the thread. Under the lock: only the first caller that finds no thread starts it.
    fn start(&'static self, state: &mut State<H>) -> io::Result<()> {
        let cpus = cpus_of_the_process::<H>();
        let started = H::start("gmp-timers", move || {
            if let Some(cpus) = cpus {
                // Refused if none of these CPUs is left: then the thread keeps the CPUs of the caller.
                let _set = H::set_own_affinity(&cpus);
            }
            self.serve()
        });
        state.thread = started.is_ok();
        if state.thread {
            state.told = false;
            // Relaxed: hints, the lock decides.
            self.refused.store(false, Relaxed);
            self.calls_wait.store(false, Relaxed);
        }
        started.map(|_detached| ())
    }

    /// Returns `true` if heaps wait for a thread that was refused: each setter of a callback in one of them asks for a thread
    /// again, even if its callback is not the earliest there. Otherwise, once the earliest callback is overdue, no setter would
    /// ask again.
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
        // Callback threads are refused, and the operator was told.
        let mut told = false;
        loop {
            match self.next(&mut idle_since) {
                Next::Fire(timers, now) => {
                    // Callbacks that become due meanwhile wait for B1: another heap's callback might be earlier.
                    self.run(std::iter::from_fn(|| timers.pop_orphan(now).map(Call::Timer)), &mut told);
                }
                Next::Call(left) => self.run(left, &mut told),
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
        let since = idle_since.take();
        let mut state = self.state.lock();
        state.fires = false;
        if !state.left.is_empty() {
            state.fires = true;
            return Next::Call(std::mem::take(&mut state.left));
        }
        state.kept.retain(|timers| !timers.is_empty());
        let now = H::now();
        if state.again.take_if(|again| *again <= now).is_some() && !state.waiting.is_empty() {
            state.fires = true;
            return Next::Call(VecDeque::new());
        }
        let first =
            state.kept.iter().filter_map(|timers| Some((timers.earliest()?, timers))).min_by_key(|f| f.0);
        let until = match first {
            Some((due, timers)) if due <= now => {
                let timers = Arc::clone(timers);
                state.fires = true;
                return Next::Fire(timers, now);
            }
            Some((due, _)) => due,
            None if state.again.is_some() => now.saturating_add(capacity::LINGER),
            None => {
                let since = *idle_since.insert(since.unwrap_or(now));
                let end = since.saturating_add(capacity::LINGER);
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

    /// Makes calls that are due: inline calls on this thread, the others on callback threads, in their order. `told`: a
    /// callback thread was refused, and none was started since.
    fn run(&'static self, calls: impl IntoIterator<Item = Call<H>>, told: &mut bool) {
        let mut others = VecDeque::new();
        for call in calls {
            match call {
                Call::Timer(call) if call.run() == RunMode::Wakes => call.call(),
                // The end of a context, for which all callback threads might wait.
                Call::Timer(call) if call.run() == RunMode::Uncounted => {
                    run_aside_or_here::<H>(move || Call::Timer(call).call());
                }
                other => others.push_back(other),
            }
        }
        self.state.lock().waiting.append(&mut others);
        while let Some(call) = self.take_for_a_thread() {
            let mut called = OnItsWay(self, Some(call));
            let started = H::start("gmp-callback", move || called.arrives());
            let told = std::mem::replace(told, started.is_err());
            if let Err(refused) = started {
                if !told {
                    H::warn(&format!("cannot start a thread for a timer's callback: {refused}"));
                }
                // An existing callback thread takes the waiting calls when its own call ends. This thread tries again, because
                // that call might block.
                let mut state = self.state.lock();
                if state.callback_threads > 0 {
                    state.again = Some(H::after(capacity::LINGER));
                    return;
                }
            }
        }
    }

    /// C2.
    fn take_for_a_thread(&self) -> Option<Call<H>> {
        let mut state = self.state.lock();
        if state.callback_threads >= capacity::MOST_CALLBACK_THREADS {
            return None;
        }
        let call = state.waiting.pop_front()?;
        state.callback_threads += 1;
        Some(call)
    }

    /// D2.
    fn take_or_end(&self) -> Option<Call<H>> {
        let mut state = self.state.lock();
        let call = state.waiting.pop_front();
        mutant!(CallbackThreadEndsLate: drop(state); state = self.state.lock());
        if call.is_none() {
            state.callback_threads -= 1;
            // Frees the memory: perhaps thousands of calls have waited.
            state.waiting = VecDeque::new();
        }
        call
    }

    /// Undoes C2 after C3 was refused. Returns the call if there is no callback thread that would take it.
    fn take_back(&self, call: Call<H>) -> Option<Call<H>> {
        let mut state = self.state.lock();
        unless!(RefusedCallerStaysCounted, state.callback_threads -= 1);
        if state.callback_threads == 0 {
            return Some(call);
        }
        state.waiting.push_front(call);
        None
    }
}

/// A call on the way to its thread, and the only owner for this firing: otherwise the starter of the thread could be the last
/// owner, and would drop the user's closure. If no thread can be started, the drop of this value takes the call back.
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
