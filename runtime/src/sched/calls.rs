//! Calls of the program's functions that the library does not make on its own threads: what becomes of them if no other thread
//! is available.
//!
//! A goroutine of the library calls a callback that is due, or a foreign waker. If that goroutine gets no stack, or its runtime
//! ends, a thread makes the call: a callback thread, for which the call is left to the timer thread
//! (`sched/timers/timer_thread.rs`), or a thread aside (`host/native/aside.rs`). Both are threads of the process.
//!
//! *The obvious way*, if such a thread is refused, is that the thread that asks for it makes the call. That thread might be
//!
//! * an M on its own stack, which counts as inside: a call that parks would enter once more, and suspend a goroutine that is
//!   not there;
//! * the monitor, for which all other threads would wait meanwhile;
//! * the ender, which has a time limit, and whose caller might hold a lock for which the waker waits;
//! * a goroutine or a thread whose own wait is open: a call that waits would open another one.
//!
//! So the call stays in its queue, which outlives all runtimes:
//!
//! ```text
//!   who asks                                       monitor of any runtime
//!
//!   C1  lock: the call is in the queue;            L1  `calls_wait`?  1 and 10 ms after it has seen that, and
//!       a thread is refused: `calls_wait`              then every 100 ms, asks for a thread; refused: counts
//!   C2  calls the monitor of each runtime              that, and tells the operator, once
//! ```
//! C2 comes after C1: a monitor that has missed the word looks again before it sleeps for good. The next thread that leaves a
//! call also asks, and so does the ender as its last act, when its runtime has no monitor any more, so that the report counts
//! the calls that the end has left. Without any runtime a call waits for the next thread that leaves a call; a call that was
//! left to the timer thread also waits for the next thread that sets a timer outside of runtimes. If the machine never gives a
//! thread, the call is never made. Timers for which the timer thread was refused wait in the same way, in the heaps in which
//! they stand.
//!
//! A thread aside that makes a call does C2 as well, if another thread to stand by is refused.
//!
//! A call that waits might wake a goroutine, so the judge of deadlocks takes the process for awake; when no call waits any
//! more, the monitor makes the judge look anew.
//!
//! If the caller may be kept waiting, in a function of the program's that ends a context, and on the timer thread, the caller
//! makes the call at once ([`run_aside_or_here`]).

use crate::host::Host;
use crate::m::M;
use crate::sched::Sched;
use crate::sched::stacks::StackWatch;
use crate::sched::switch;
use crate::sched::watch::told::Refusal;
use gmp_timers::Nanos;
use std::time::Duration;

/// Leaves the call of `f` to a thread that belongs to no runtime, and is not the caller. The caller holds none of the library's
/// locks.
pub(crate) fn run_aside<H: Host>(f: impl FnOnce() + Send + 'static) {
    if H::run_aside(f, call_monitors::<H>).is_err() {
        call_monitors::<H>();
    }
}

/// As `run_aside`; but if no thread can be started, this thread makes the call, if a call may park here.
pub(crate) fn run_aside_or_here<H: Host>(f: impl FnOnce() + Send + 'static) {
    let Err(number) = H::run_aside(f, call_monitors::<H>) else { return };
    // Other calls might have relied on that thread.
    call_monitors::<H>();
    let may_park = |m: &M<H>| m.g().is_some() && !m.is_inside() && !switch::is_in_hook(m);
    if M::<H>::current().is_none_or(may_park)
        && let Some(f) = H::take_back_aside(number)
    {
        f();
    }
}

/// Returns `true` if calls, or timers outside of runtimes, might be waiting for a thread.
pub(crate) fn calls_wait<H: Host>() -> bool {
    H::waits_aside() || H::shared().timer_thread.calls_wait()
}

/// C2.
#[cold]
pub(crate) fn call_monitors<H: Host>() {
    if let Some(runtimes) = &H::shared().runtimes {
        runtimes.for_each(|sched: &Sched<H>| sched.central.lock().call_monitor(&sched.monitor_note));
    }
}

impl<H: Host> Sched<H> {
    /// L1. Returns how soon the monitor has to look again; `None` while neither calls nor timers wait.
    pub(crate) fn watch_calls(&self, watch: &mut StackWatch, now: Nanos) -> Option<Duration> {
        let waited = watch.waits();
        let mut left = watch.look(calls_wait::<H>(), now);
        if left.is_some_and(|left| left.is_zero()) {
            self.ask_for_callers();
            left = watch.look(calls_wait::<H>(), now);
        }
        if waited
            && left.is_none()
            && let Some(runtimes) = &H::shared().runtimes
        {
            runtimes.judge_anew();
        }
        left
    }

    /// Tries to start a thread for calls, or timers outside of runtimes, that wait for one.
    pub(crate) fn ask_for_callers(&self) {
        if !calls_wait::<H>() {
            return;
        }
        for asked in [H::shared().timer_thread.ask_again(), H::ask_aside()] {
            if let Err(refused) = asked {
                self.tell_refused(Refusal::Call, || {
                    format!(
                        "a function of the program waits for a thread that calls it, the callback of a timer or the waker of a \
                         task, or a timer outside of runtimes waits for one; each runtime asks ten times a second: {refused}"
                    )
                });
            }
        }
    }
}
