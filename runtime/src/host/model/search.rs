//! One model: how far loom searches, and which world the model's host plays.

use super::barrier::{REFUSED, RETAKER, Retaker, relies_on_entries, switch_point};
use super::schedule;
use crate::prim::{self, Machine};
use crate::runtime::cpu_sets::CpuSet;
use std::cell::Cell;
use std::sync::Once;
use std::time::Instant;

/// One model: how far loom explores it.
#[derive(Clone, Debug)]
pub struct Model {
    preemptions: Option<usize>,
    max_branches: usize,
    retaker: Retaker,
    helpers: bool,
    refusals: u32,
    weighs: bool,
}

thread_local! {
    /// Whether the model's busy Ps help each other.
    static HELPERS: Cell<bool> = const { Cell::new(false) };
    /// How many more thieves find that the queue at which they look changes meanwhile.
    static REFUSALS: Cell<u32> = const { Cell::new(0) };
    /// Whether loom explores which goroutine other threads see an M run.
    static WEIGHS: Cell<bool> = const { Cell::new(false) };
    /// In this execution no thread can be started any more.
    pub(super) static THREADS_REFUSED: Cell<bool> = const { Cell::new(false) };
    /// The CPUs that there are: a thread has those of them for which it has asked.
    pub(super) static MACHINE: Cell<CpuSet> = const { Cell::new(CpuSet::ALL) };
    /// The functions around the switches of this execution's goroutines.
    pub(super) static SWITCH_HOOKS: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// Returns `true` if the queue that a thief looks at does not change meanwhile.
fn stays_the_same() -> bool {
    let left = REFUSALS.get();
    REFUSALS.set(left.saturating_sub(1));
    left == 0
}

fn weighs_single_writers() -> bool {
    WEIGHS.get()
}

fn has_helpers() -> bool {
    HELPERS.get()
}

/// Makes the host refuse each start of a thread of the library, until `grant_threads` or the end of the execution.
pub fn refuse_threads() {
    THREADS_REFUSED.set(true);
}

/// Undoes `refuse_threads`.
pub fn grant_threads() {
    THREADS_REFUSED.set(false);
}

/// From here to the end of the execution the machine has these CPUs.
pub fn have_cpus(cpus: &[usize]) {
    let mut machine = CpuSet::EMPTY;
    cpus.iter().for_each(|&cpu| machine.add(cpu));
    MACHINE.set(machine);
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Makes a model with two preemptions; three if the environment has `GMP_LOOM_FULL`.
    pub fn new() -> Self {
        let preemptions = if std::env::var_os("GMP_LOOM_FULL").is_some() { 3 } else { 2 };
        Model {
            preemptions: Some(preemptions),
            max_branches: 20_000,
            retaker: Retaker::None,
            helpers: false,
            refusals: 0,
            weighs: false,
        }
    }

    /// Explores all schedules with at most so many preemptions.
    pub fn preemptions(mut self, bound: usize) -> Self {
        self.preemptions = Some(bound);
        self
    }

    /// Returns the same as `preemptions`, with one more if the environment has `GMP_LOOM_FULL`.
    pub fn preemptions_by_default(self, bound: usize) -> Self {
        let more = usize::from(std::env::var_os("GMP_LOOM_FULL").is_some());
        self.preemptions(bound + more)
    }

    /// Explores all schedules.
    pub fn unbounded(mut self) -> Self {
        self.preemptions = None;
        self
    }

    /// Says that a thread of the model plays a retaker, which takes Ps away from running goroutines.
    pub fn with_retaker(mut self) -> Self {
        self.retaker = Retaker::Heavy;
        self
    }

    /// Does the same as `with_retaker`, over a host that has no barrier for all threads.
    pub fn with_retaker_that_fences(mut self) -> Self {
        self.retaker = Retaker::Fences;
        self
    }

    /// Does the same as `with_retaker`, over a host that refuses the barrier from the first time on.
    pub fn with_retaker_that_is_refused(mut self) -> Self {
        self.retaker = Retaker::Refused;
        self
    }

    /// Makes busy Ps help each other, before each goroutine and whatever the ages of their queues.
    pub fn with_helpers(mut self) -> Self {
        self.helpers = true;
        self
    }

    /// Makes the first `count` thieves of each execution find that the owner is at work on the queue from which they would
    /// take.
    pub fn with_refusals(mut self, count: u32) -> Self {
        self.refusals = count;
        self
    }

    /// Makes loom also choose which goroutine other threads see an M run, among the values that the orderings permit. Without
    /// this, they see the value that was written last.
    pub fn weighing_single_writers(mut self) -> Self {
        self.weighs = true;
        self
    }

    /// Runs `f` in every schedule within the bounds, prints how many schedules there were, and returns that number. If the
    /// environment has `GMP_LOOM_MOST`, no bound is above that number, so a failure that needs few preemptions is found before
    /// those that need more.
    ///
    /// # Panics
    /// In the first schedule in which `f`, or anything that it started, panics, blocks for ever, or makes two accesses that
    /// nothing orders. The events of that schedule are printed before. If a destructor then meets a loom that has failed, the
    /// process is aborted: a test that a model fails runs the model in a process of its own, as `docs/models.md` shows.
    pub fn check(&self, name: &str, f: impl Fn() + Send + Sync + 'static) -> usize {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                schedule::print();
                previous(info);
            }));
            prim::run_on(Machine {
                relies_on_entries,
                switch_point,
                stays_the_same,
                has_helpers,
                weighs_single_writers,
                event: schedule::add,
            });
        });
        let start = Instant::now();
        let mut builder = loom::model::Builder::new();
        let most = std::env::var("GMP_LOOM_MOST")
            .map_or(usize::MAX, |text| text.parse().expect("GMP_LOOM_MOST is a number"));
        let preemptions = self.preemptions.map(|bound| bound.min(most));
        builder.preemption_bound = preemptions;
        builder.max_branches = self.max_branches;
        // Either limit would end the search early and call that a success.
        builder.max_duration = None;
        builder.max_permutations = None;
        schedule::reset();
        RETAKER.set(self.retaker);
        HELPERS.set(self.helpers);
        WEIGHS.set(self.weighs);
        let refusals = self.refusals;
        builder.check(move || {
            schedule::begin();
            super::stage::begin();
            REFUSALS.set(refusals);
            REFUSED.set(false);
            THREADS_REFUSED.set(false);
            MACHINE.set(CpuSet::ALL);
            SWITCH_HOOKS.set(std::ptr::null());
            f();
        });
        let executions = schedule::reset();
        let bound = preemptions.map_or("unbounded".to_owned(), |bound| format!("bound {bound}"));
        println!("model {name}: {executions} executions, {bound}, {:.2} s", start.elapsed().as_secs_f64());
        executions
    }
}
