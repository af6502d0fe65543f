//! The models' only access to private parts. Present under the cfg `gmp_loom` only.
//!
//! Each type here is a thin cover of the shipped one of the same name.

mod jobs;
mod net;
mod runq;
mod sched;

pub use jobs::Jobs;
pub use net::{IoLock, PollDesc, Socket};
pub use runq::{Gs, Runq};
pub use sched::{
    Handle, Held, Made, blocking_here, cpus, forbid_the_sent, give_cpus, p_number, switch_point, touch_window,
};

use crate::host::{Active, Clock, Process};
use crate::model::{Flag, runtime};
use crate::prim::{AtomicBool, Relaxed, UnsafeCell};
use crate::runtime::{Report, Runtime};
use crate::sched::park::{Commit, WaitReason};
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use crate::sched::timers::shared::Counted;
use crate::sched::timers::timer_thread::Call;
use crate::sched::watch::quit::Heard;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use gmp_timers::Nanos;
use std::ops::Deref;
use std::time::Duration;

/// `note.rs`.
pub struct Note(crate::m::note::Note<Active>);

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}

impl Note {
    /// Returns a note that is not woken.
    pub fn new() -> Self {
        Note(crate::m::note::Note::new())
    }
    /// Blocks the thread until `wake`.
    pub fn sleep(&self) {
        self.0.sleep();
    }
    /// Blocks the thread until `wake`, or until `until`, in nanoseconds of the model's clock. Returns `false` if no
    /// `wake` came.
    pub fn sleep_until(&self, until: u64) -> bool {
        self.0.sleep_until(Nanos::from_nanos(until))
    }
    /// Ends the sleep.
    pub fn wake(&self) {
        self.0.wake();
    }
    /// Resets the note, between two uses.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// `shared.rs`.
pub struct Shared<T>(crate::sched::timers::shared::Shared<T>);

impl<T> Shared<T> {
    /// Returns both owners of a new value.
    pub fn two(value: T) -> [Self; 2] {
        crate::sched::timers::shared::Shared::two(Counted::boxed(value)).map(Shared)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// `sched/watch/quit.rs`, between two monitors that could answer.
pub struct Quit {
    quit: crate::sched::watch::quit::Quit<Answerer>,
    both: [Answerer; 2],
    dump: Dump,
}

/// The dump, which one monitor at a time prints.
struct Dump(UnsafeCell<()>);

// SAFETY: the cell is empty; loom checks the order of its accesses.
unsafe impl Sync for Dump {}

struct Answerer {
    lives: UnsafeCell<()>,
    woken: AtomicBool,
}

// SAFETY: `lives` is empty; loom checks the order of its accesses.
unsafe impl Sync for Answerer {}

impl Default for Quit {
    fn default() -> Self {
        Self::new()
    }
}

impl Quit {
    /// Returns a table without a monitor.
    pub fn new() -> Self {
        let answerer = || Answerer { lives: UnsafeCell::new(()), woken: AtomicBool::new(false) };
        Quit {
            quit: crate::sched::watch::quit::Quit::new(),
            both: [answerer(), answerer()],
            dump: Dump(UnsafeCell::new(())),
        }
    }
    fn wake(answerer: &Answerer) {
        answerer.lives.with(|_| ());
        answerer.woken.store(true, Relaxed);
    }
    /// Does what the handler does. Returns `true` if a monitor will answer.
    pub fn ask(&self) -> bool {
        self.quit.ask(Self::wake) == Heard::Yes
    }
    /// Does what a monitor that goes on after its answers does. Returns how many answers there were.
    pub fn answer(&self) -> u32 {
        let mut answers = 0;
        while self.quit.take() {
            self.quit.begin();
            self.dump.0.with_mut(|_| ());
            answers += 1;
            self.quit.end();
        }
        answers
    }
    /// Makes monitor `who` the one that answers. The monitor is not moved meanwhile.
    pub fn set(&self, who: usize) {
        // SAFETY: both monitors live as long as the model.
        unsafe { self.quit.set(&raw const self.both[who], Self::wake) };
    }
    /// Accesses monitor `who` as the making of a monitor does.
    pub fn begins(&self, who: usize) {
        self.both[who].lives.with_mut(|_| ());
    }
    /// Accesses monitor `who` as the freeing of a monitor does.
    pub fn gone(&self, who: usize) {
        self.both[who].lives.with_mut(|_| ());
    }
    /// Returns `true` if monitor `who` has been woken, and has not looked yet.
    pub fn is_woken(&self, who: usize) -> bool {
        self.both[who].woken.load(Relaxed)
    }
}

/// `sched/timers/callback.rs`: a callback that runs on the stack of the M that finds it due.
pub struct InlineCall(Guard<Active>);

impl InlineCall {
    /// Arms a callback for `dur` from now.
    pub fn after(dur: Duration, f: impl Fn() + Send + Sync + 'static) -> Self {
        InlineCall(call_at(Active::after(dur), RunMode::Wakes, f))
    }
    /// Returns `true` if the callback was armed.
    pub fn stop(&self) -> bool {
        self.0.stop()
    }
    /// Returns `true` if the callback was armed.
    pub fn reset(&self, dur: Duration) -> bool {
        self.0.set(Active::after(dur))
    }
}

/// Leaves a call to the timer thread, as the end of a runtime does.
pub fn leave_call(f: impl FnOnce() + Send + 'static) {
    Active::shared().timer_thread.leave(Call::Function(Box::new(f)));
}

/// Does what the monitor does at a look: asks for the timer thread if calls or timers wait for it.
pub fn ask_for_the_timer_thread() {
    // If the thread is refused, the next look asks again.
    let _refused = Active::shared().timer_thread.ask_again();
}

/// Waits for the end of the timer thread and its callback threads.
pub fn timer_thread_ends() {
    while Active::shared().timer_thread.threads() > 0 {
        loom::thread::yield_now();
    }
}

/// Returns `true` if the timer thread makes no call, and no call waits for it. The judge of a deadlock asks this first.
pub fn timer_thread_is_quiet() -> bool {
    Active::shared().timer_thread.freeze().is_ok()
}

/// Ends a runtime as if nothing could be unwound: steps 2 to 5 of `sched/stop.rs`.
pub fn leave(runtime: Runtime, limit: Duration) -> Report {
    runtime.leave(limit)
}

/// Makes a goroutine keep the only P of a runtime, and the M, until the returned flag is raised.
pub fn keep_the_thread(runtime: &Runtime) -> Flag {
    let (kept, over) = (Flag::default(), Flag::default());
    drop(runtime.go({
        let (kept, over) = (kept.clone(), over.clone());
        move || {
            kept.raise();
            over.wait_on_thread();
        }
    }));
    kept.wait_on_thread();
    over
}

/// A parker that looks at each nudge, as the threads that nudge it see it.
#[derive(Clone)]
pub struct Looker(Waiter<Active>);

impl Looker {
    /// Nudges the parker.
    pub fn nudge(&self) {
        self.0.nudge();
    }
    /// Ends the parker's wait. Returns `false` if that wait has ended.
    pub fn wake(&self) -> bool {
        self.0.wake()
    }
}

/// Waits until a waker readies the caller, and returns `false`; or until `seen`, which is called at each nudge, ends the wait,
/// and returns `true`.
pub fn park_looking(publish: impl FnOnce(Looker), mut seen: impl FnMut() -> bool) -> bool {
    let how = How::new(WaitReason::Model).looking();
    let mut wait = Wait::<Active>::begin();
    let looker = Looker(wait.waiter());
    let mut woke = wait.park(how, move || {
        publish(looker);
        Commit::Park
    });
    loop {
        match woke {
            Woke::Readied => return false,
            Woke::Nudged if seen() => return wait.claim(),
            Woke::Nudged => woke = wait.park_again(how),
            Woke::Interrupted(why) => why.throw::<Active>(),
            Woke::Refused => unreachable!("park_looking: its hook does not refuse"),
        }
    }
}

/// Begins a wait of the calling goroutine, with a time limit that has passed and a commit hook that refuses after `hook`.
pub fn refuse_after(hook: impl FnOnce()) {
    let how = How::new(WaitReason::Model).until(Some(Active::now()));
    let woke = Wait::<Active>::begin().park(how, || {
        hook();
        Commit::Refuse
    });
    assert!(matches!(woke, Woke::Refused | Woke::Readied), "refuse_after: nobody interrupts it ({woke:?})");
}

/// Runs a goroutine whose commit hook refuses its wait, with the wait's timer armed, while this thread serves the timers.
pub fn refuse_beside_the_timer() -> Runtime {
    let runtime = runtime(1, 1);
    let (handle, armed) = (Handle::of(&runtime), Flag::default());
    let raises = armed.clone();
    let owner = runtime.go(move || {
        refuse_after(|| {
            loom::explore();
            raises.raise();
        });
        // That timer does not ready the next wait.
        refuse_after(|| ());
    });
    armed.wait_on_thread();
    handle.serve_timers();
    owner.join().unwrap();
    runtime
}

/// Parks the calling goroutine until its runtime ends.
pub fn park_for_ever() {
    let mut wait = Wait::<Active>::begin();
    if let Woke::Interrupted(why) = wait.park(How::new(WaitReason::Model), || Commit::Park) {
        why.throw::<Active>();
    }
}
