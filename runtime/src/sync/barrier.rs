//! Going on together.

use crate::host::Active;
use crate::prim::{Mutex, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::line::{Called, Left, Line, Lines, Place, stand};
use crate::waiter::{How, Wait};
use std::fmt;

/// Blocks those who come until there are `n`, and then lets all of them go on; any number of times. Signatures and behaviour
/// are those of `std::sync::Barrier`.
///
/// Goroutines and plain threads may be mixed. One that is interrupted while it waits does not count any more.
///
/// ```
/// use gmp::{go, sync::Barrier};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let barrier = Arc::new(Barrier::new(3));
///         let others = [(); 2].map(|()| {
///             let barrier = Arc::clone(&barrier);
///             go(move || barrier.wait().is_leader())
///         });
///         let mut leaders = usize::from(barrier.wait().is_leader());
///         for other in others {
///             leaders += usize::from(other.join().unwrap());
///         }
///         assert_eq!(leaders, 1);
///     })
/// }
/// ```
pub struct Barrier {
    size: usize,
    state: Mutex<State>,
}

struct State {
    /// How many of this round are there.
    arrived: usize,
    /// Which round this is.
    round: usize,
    line: Line<()>,
}

impl Lines for State {
    type Want = ();
    fn line(&mut self, _want: &()) -> &mut Line<()> {
        &mut self.line
    }
}

/// What [`Barrier::wait`] returns.
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one of each round: the one that came last.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    const_fn! {
        /// For rounds of `n`. With 0, as with 1, nobody waits.
        pub fn new(n: usize) -> Self {
            Barrier { size: n, state: Mutex::new(State { arrived: 0, round: 0, line: Line::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until so many have come.
    pub fn wait(&self) -> BarrierWaitResult {
        let wait = Wait::begin();
        let mut state = self.state.lock();
        state.arrived += 1;
        if state.arrived >= self.size {
            let mut called = Called::new();
            state.arrived = 0;
            state.round = state.round.wrapping_add(1);
            state.line.call_all(&mut called);
            drop(state);
            wait.withdraw();
            called.ready();
            return BarrierWaitResult(true);
        }
        let round = state.round;
        match stand(wait, &self.state, state, ((), Place::Back), How::new(WaitReason::Barrier)) {
            Ok(()) => BarrierWaitResult(false),
            Err(Left { mut state, by }) => {
                if state.round == round {
                    state.arrived -= 1;
                }
                drop(state);
                by.expect("wait: a wait without a limit was called or interrupted").throw::<Active>()
            }
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
