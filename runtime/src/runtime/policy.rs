//! Scheduling policies: the order in which goroutines run, and how they move between the queues.
//!
//! A policy is for experiments, for programs with an unusual load, and for tests that want another order. The default is Go's
//! scheduler with the additions of this crate, and is the one that is measured and tuned. `docs/policies.md` says, with
//! figures, what each policy does to a program.
//!
//! | policy | where a runnable goroutine stands | which one runs next |
//! | --- | --- | --- |
//! | [`WorkStealing`] | in the queue of a P (at most 256, and the one that was readied last); goroutines that do not fit, and those that plain threads submit, in the global queue | the one that was readied last, within its time slice; then the first of the P's queue; now and then one from the global queue |
//! | [`Policy::GlobalFifo`] | in the global queue | the first; a sleeper that is due may go before it |
//! | [`Policy::Random`] | in the global queue | one that is drawn by a seed |
//!
//! Under each policy a ready goroutine runs at some time (a goroutine of [`Priority::Background`](crate::Priority::Background)
//! only when no other is ready), and all that this crate says about blocking, unwinding, time slices and threads holds. Only
//! the order and the cost are different.
//!
//! A policy is set by [`RuntimeBuilder::policy`](crate::RuntimeBuilder::policy), in an attribute of the feature `macros` by
//! `policy = ..`, or from outside by `GMPDEBUG=policy=..`, in the form that [`Policy`] prints and reads:
//!
//! ```
//! use gmp::policy::{FromGlobal, Policy, Steal, WorkStealing};
//!
//! let one_by_one = WorkStealing::new().steal(Steal::One).global(FromGlobal::One);
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let runtime = unsafe { gmp::Runtime::builder().policy(one_by_one).build()? };
//! assert_eq!(runtime.run(|| gmp::go(|| 6 * 7).join().unwrap()), 42);
//!
//! let text = "stealing:steal=one:overflow=half:global=one:tick=61";
//! assert_eq!(Policy::from(one_by_one).to_string(), text);
//! assert_eq!("stealing:steal=one:global=one".parse(), Ok(Policy::from(one_by_one)));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;
use std::str::FromStr;

/// Go's number of goroutines from one look at the global queue to the next.
const TICK: u32 = 61;
/// The least tick: an M that looked at the global queue before each goroutine would never come to its own queue while others
/// fill the global one.
const LEAST_TICK: u32 = 2;
/// The largest tick.
const MOST_TICK: u32 = 1 << 20;

/// How a runtime schedules its goroutines. See the [module](self).
#[derive(Copy, Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Policy {
    /// Each P has a queue of its own, and an M without work steals from the others: the default.
    WorkStealing(WorkStealing),
    /// All goroutines stand in one queue, under a lock, in the order in which they became runnable.
    ///
    /// No goroutine runs before another of its class that was ready earlier, except that a goroutine whose sleep is over may go
    /// first, as under each policy. [Classes](crate::Priority) other than `Normal` have queues of their own, before or after
    /// this one. Each switch, spawn and wake-up takes the lock, once to queue the goroutine and once to take it: a multiple of
    /// the cost of work stealing, which grows with each core.
    GlobalFifo,
    /// All goroutines stand in one queue, and each M draws its next one by this seed.
    ///
    /// Another seed gives another order, which can reveal orders that a program relies on. A goroutine that yields is not drawn
    /// again before all others that were ready at that moment. With one P, and as long as nothing depends on time, input, or
    /// other threads, the same seed gives the same order. (A `select!` draws from the seed, too, but among channels in the
    /// order of their addresses. A goroutine loses its P by time, unless `GMPDEBUG=handoff=0`.)
    ///
    /// ```
    /// use gmp::policy::Policy;
    /// use std::sync::Mutex;
    ///
    /// let order = |seed| {
    ///     // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    ///     let runtime = unsafe { gmp::Runtime::builder().procs(1).policy(Policy::Random(seed)).build() }.unwrap();
    ///     let order = Mutex::new(Vec::new());
    ///     runtime.run(|| {
    ///         let order = &order;
    ///         gmp::scope(|s| (0..20).for_each(|who| drop(s.go(move || order.lock().unwrap().push(who)))));
    ///     });
    ///     order.into_inner().unwrap()
    /// };
    /// assert_eq!(order(1), order(1));
    /// assert_ne!(order(1), order(2));
    /// ```
    ///
    /// Costs as much as `GlobalFifo`.
    Random(u64),
}

/// How much an M that has no work takes from the queue of another P.
#[derive(Copy, Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Steal {
    /// The goroutine that has waited longest.
    One,
    /// Half of the queue, rounded up.
    #[default]
    Half,
}

/// What goes to the global queue when the queue of a P is full.
#[derive(Copy, Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Overflow {
    /// The goroutine that does not fit.
    PutOne,
    /// Half of the queue, and the goroutine that does not fit.
    #[default]
    PutHalf,
}

/// How many goroutines an M takes out of the global queue when its P's queue is empty, and at each fourth tick.
#[derive(Copy, Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FromGlobal {
    /// The goroutine that has waited longest.
    One,
    /// The share of one P, at most half of the capacity of its queue.
    #[default]
    Share,
    /// As many as fit into the P's queue. Other Ms steal them from there.
    All,
}

/// Work stealing, and its variants. The default is Go's: half, half, the share, and a tick of 61.
///
/// ```
/// use gmp::policy::{Overflow, Policy, WorkStealing};
///
/// assert_eq!(Policy::default(), Policy::WorkStealing(WorkStealing::new()));
/// let often = WorkStealing::new().overflow(Overflow::PutOne).tick(7);
/// assert_eq!(Policy::from(often).to_string(), "stealing:steal=half:overflow=one:global=share:tick=7");
/// ```
#[derive(Copy, Clone, Debug, Eq, Hash, PartialEq)]
pub struct WorkStealing {
    pub(crate) steal: Steal,
    pub(crate) overflow: Overflow,
    pub(crate) global: FromGlobal,
    pub(crate) tick: u32,
    /// Set if the queue of a P is under a lock.
    #[cfg(gmp_policies)]
    pub(crate) locked: bool,
}

impl WorkStealing {
    /// Returns the default.
    pub const fn new() -> Self {
        WorkStealing {
            steal: Steal::Half,
            overflow: Overflow::PutHalf,
            global: FromGlobal::Share,
            tick: TICK,
            #[cfg(gmp_policies)]
            locked: false,
        }
    }

    /// Sets how much a thief takes. Default: [`Steal::Half`].
    #[must_use]
    pub const fn steal(mut self, steal: Steal) -> Self {
        self.steal = steal;
        self
    }

    /// Sets what goes to the global queue when a P's queue is full. Default: [`Overflow::PutHalf`].
    #[must_use]
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Sets how much an M takes from the global queue. Default: [`FromGlobal::Share`].
    #[must_use]
    pub const fn global(mut self, global: FromGlobal) -> Self {
        self.global = global;
        self
    }

    /// Puts the queue of each P under a lock: a peer for the ring, in the bench of policies only.
    #[cfg(gmp_policies)]
    #[must_use]
    pub const fn mutex_queue(mut self) -> Self {
        self.locked = true;
        self
    }

    /// Sets after how many goroutines of its own queue an M looks at the global queue, and at the poller if no M waits there: 2
    /// to 2²⁰. An M also looks half a millisecond after its last look, unless `GMPDEBUG=helping=0` (see
    /// [`RuntimeBuilder`](crate::RuntimeBuilder)). Default: 61. For a number outside of that range
    /// [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) returns an error.
    #[must_use]
    pub const fn tick(mut self, tick: u32) -> Self {
        self.tick = tick;
        self
    }
}

impl Default for WorkStealing {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy::WorkStealing(WorkStealing::new())
    }
}

impl From<WorkStealing> for Policy {
    fn from(variant: WorkStealing) -> Self {
        Policy::WorkStealing(variant)
    }
}

impl Policy {
    /// Returns the amounts of work stealing; those of the default if all goroutines stand in the global queue.
    pub(crate) fn stealing(self) -> WorkStealing {
        match self {
            Policy::WorkStealing(variant) => variant,
            // An M takes single goroutines: a batch in a P's queue would break the order.
            Policy::GlobalFifo | Policy::Random(_) => WorkStealing::new().global(FromGlobal::One),
        }
    }

    /// Returns `true` if all goroutines stand in the global queue.
    pub(crate) fn has_one_queue(self) -> bool {
        !matches!(self, Policy::WorkStealing(_))
    }

    /// Returns `true` if the queue of a P is under a lock.
    #[cfg(gmp_policies)]
    pub(crate) fn has_locked_queues(self) -> bool {
        matches!(self, Policy::WorkStealing(WorkStealing { locked: true, .. }))
    }

    /// Returns the seed of all draws; `None` for the runtime's own.
    pub(crate) fn seed(self) -> Option<u64> {
        match self {
            Policy::Random(seed) => Some(seed),
            _ => None,
        }
    }

    /// Refuses a tick that is out of range.
    pub(crate) fn check(self) -> Result<Self, String> {
        let tick = self.stealing().tick;
        if (LEAST_TICK..=MOST_TICK).contains(&tick) {
            Ok(self)
        } else {
            Err(format!("policy: a tick of {tick} is not within {LEAST_TICK}..={MOST_TICK}"))
        }
    }
}

/// Writes the form that `FromStr` reads.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = match self {
            Policy::GlobalFifo => return f.write_str("fifo"),
            Policy::Random(seed) => return write!(f, "random:{seed}"),
            Policy::WorkStealing(variant) => variant,
        };
        let steal = match variant.steal {
            Steal::One => "one",
            Steal::Half => "half",
        };
        let overflow = match variant.overflow {
            Overflow::PutOne => "one",
            Overflow::PutHalf => "half",
        };
        let global = match variant.global {
            FromGlobal::One => "one",
            FromGlobal::Share => "share",
            FromGlobal::All => "all",
        };
        #[cfg(gmp_policies)]
        let queue = if variant.locked { ":queue=mutex" } else { "" };
        #[cfg(not(gmp_policies))]
        let queue = "";
        write!(f, "stealing:steal={steal}:overflow={overflow}:global={global}:tick={}{queue}", variant.tick)
    }
}

/// The error for a text that names no policy; the message lists the policies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParsePolicyError(String);

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParsePolicyError {}

/// Reads `fifo`, `random:SEED`, or `stealing`, which can be followed by `:steal=one|half`, `:overflow=one|half`,
/// `:global=one|share|all` and `:tick=N`, in any order; of several values for a name the last one counts.
impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let refused = || {
            ParsePolicyError(format!(
                "{text:?} is not a policy, expected fifo, random:SEED, or stealing with :steal=one|half :overflow=one|half \
                 :global=one|share|all :tick={LEAST_TICK}..={MOST_TICK}"
            ))
        };
        let mut parts = text.split(':');
        let mut variant = WorkStealing::new();
        let policy = match (parts.next(), text.split_once(':')) {
            (Some("fifo"), None) => return Ok(Policy::GlobalFifo),
            (Some("random"), Some((_, seed))) => {
                return seed.parse().map(Policy::Random).map_err(|_| refused());
            }
            (Some("stealing"), _) => {
                for part in parts {
                    variant = match part.split_once('=').ok_or_else(refused)? {
                        ("steal", "one") => variant.steal(Steal::One),
                        ("steal", "half") => variant.steal(Steal::Half),
                        ("overflow", "one") => variant.overflow(Overflow::PutOne),
                        ("overflow", "half") => variant.overflow(Overflow::PutHalf),
                        ("global", "one") => variant.global(FromGlobal::One),
                        ("global", "share") => variant.global(FromGlobal::Share),
                        ("global", "all") => variant.global(FromGlobal::All),
                        #[cfg(gmp_policies)]
                        ("queue", "mutex") => variant.mutex_queue(),
                        ("tick", tick) => variant.tick(tick.parse().map_err(|_| refused())?),
                        _ => return Err(refused()),
                    };
                }
                Policy::WorkStealing(variant)
            }
            _ => return Err(refused()),
        };
        policy.check().map_err(|_| refused())
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails if a variant is printed as another, or is not read back.
    #[test]
    fn each_policy_is_read_as_it_is_printed() {
        let mut all = vec![Policy::GlobalFifo, Policy::Random(0), Policy::Random(u64::MAX)];
        for steal in [Steal::One, Steal::Half] {
            for overflow in [Overflow::PutOne, Overflow::PutHalf] {
                for global in [FromGlobal::One, FromGlobal::Share, FromGlobal::All] {
                    for tick in [LEAST_TICK, TICK, MOST_TICK] {
                        let variant = WorkStealing::new().steal(steal).overflow(overflow);
                        all.push(variant.global(global).tick(tick).into());
                    }
                }
            }
        }
        let mut texts: Vec<_> = all.iter().map(Policy::to_string).collect();
        for (policy, text) in all.iter().zip(&texts) {
            assert_eq!(text.parse(), Ok(*policy), "{text}");
        }
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
        assert_eq!("stealing".parse(), Ok(Policy::default()));
        assert_eq!("stealing:tick=5:steal=one:tick=61:steal=half".parse(), Ok(Policy::default()));
    }

    /// Fails if a text that is no policy is taken for one.
    #[test]
    fn what_is_no_policy_is_refused_with_what_there_is() {
        for text in [
            "",
            "FIFO",
            "fifo:",
            "random",
            "random:",
            "random:-1",
            "random:1:2",
            "stealing:",
            "stealing:steal",
            "stealing:steal=two",
            "stealing:tick=1",
            "stealing:tick=1048577",
            "stealing:tick=x",
            "steal=one",
        ] {
            let refused = text.parse::<Policy>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{text:?} is not a policy, expected fifo, ")), "{refused}");
        }
        let refused = Policy::from(WorkStealing::new().tick(1)).check().unwrap_err();
        assert_eq!(refused, "policy: a tick of 1 is not within 2..=1048576");
    }
}
