//! [`block_on`]: a goroutine, or a plain thread, waits for a future.
//!
//! The caller polls the future on its own stack, and sleeps between two polls until the waker is called (`wait/waker_cell.rs`).
//! The waker's cell is made once for a goroutine, and kept with its `local!` variables; a nested call finds no kept cell and
//! makes one. A plain thread makes a cell for each call.
//!
//! If the wait is ended from outside, the future is dropped before the throw, while nothing unwinds: the destructor may wait,
//! and start goroutines, as after a poll. No interrupt ends the waits of the destructor.
//!
//! A future that was woken during its own poll is polled again. Other goroutines run before that if the P's queue or the global
//! queue holds any; otherwise the caller gives way at each [`POLLS_ALONE`]th such poll, which also serves timers and the
//! poller.

use crate::g::GRef;
use crate::goroutine::own_frame::{MadeInOwnFrame, in_own_frame};
use crate::goroutine::{let_others_run, waker::waker_of};
use crate::host::Active;
use crate::m::M;
use crate::prim::Arc;
use crate::prim::capacity::POLLS_ALONE;
use crate::wait::interrupt::{self, Interrupt, Masked, Undisturbed};
use crate::wait::waker_cell::{Seen, WakerCell};
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::task::{Context, Poll};

/// The use of a cell by one call. The drop keeps the cell for the next call.
struct InUse {
    g: Option<GRef<Active>>,
    cell: ManuallyDrop<Arc<WakerCell<Active>>>,
}

impl InUse {
    #[inline]
    fn begin() -> Self {
        let g = M::<Active>::current().and_then(M::g);
        let kept = g.and_then(|g| g.locals().take_waker_cell());
        InUse { g, cell: ManuallyDrop::new(kept.unwrap_or_else(Self::make)) }
    }

    #[cold]
    fn make() -> Arc<WakerCell<Active>> {
        Arc::new(WakerCell::new())
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the cell is not used again.
        let cell = unsafe { ManuallyDrop::take(&mut self.cell) };
        // The goroutine is the same, on whatever thread.
        if let Some(g) = self.g {
            g.locals().keep_waker_cell(cell);
        }
    }
}

/// The pause between two polls of one call.
struct Pause {
    masked: Masked,
    /// How often in a row no other goroutine had a turn.
    alone: u32,
}

impl Pause {
    /// Waits for a wake, or lets others run if a wake has come already.
    #[inline(always)]
    fn pass(
        &mut self,
        g: Option<GRef<Active>>,
        cell: &WakerCell<Active>,
        seen: Seen,
    ) -> Result<(), Interrupt> {
        if cell.is_notified(seen) {
            return self.pass_awake(g);
        }
        self.alone = 0;
        cell.wait(seen)
    }

    fn pass_awake(&mut self, g: Option<GRef<Active>>) -> Result<(), Interrupt> {
        self.alone += 1;
        if let (Some(g), Some(m)) = (g, M::<Active>::current())
            && self.alone < POLLS_ALONE
            && g.has_no_interrupt(m.sched().duties())
            && m.p().is_some_and(|p| m.sched().is_alone_on(p))
        {
            return Ok(());
        }
        self.look_around(g)
    }

    /// The rest of `pass_awake`, when an interrupt may be due, or others may wait.
    #[inline(never)]
    fn look_around(&mut self, g: Option<GRef<Active>>) -> Result<(), Interrupt> {
        if let Some(interrupt) = interrupt::due(g, &mut self.masked) {
            return Err(interrupt);
        }
        if self.alone >= POLLS_ALONE || others_wait() {
            self.alone = 0;
            // Not `yield_now`, which may throw.
            let_others_run();
        }
        Ok(())
    }
}

/// Returns `true` if another goroutine could run in place of the caller. A hint.
fn others_wait() -> bool {
    M::<Active>::current().is_some_and(|m| {
        let sched = m.sched();
        m.p().is_none_or(|p| sched.has_work_for_now(p)) || !sched.globq_len.is_zero()
    })
}

/// Waits until a future is ready, and returns its output: parks the calling goroutine, whose thread runs others meanwhile; a
/// plain thread sleeps. The caller polls the future on its own stack, so the future may borrow and need not be `Send`.
///
/// The future gets a [`Waker`](std::task::Waker) that can be cloned, sent anywhere and called by any thread, at any time: also
/// after the call has returned, and after the runtime has ended. A wake allocates nothing. A wake that comes after its call has
/// returned can make a later `block_on` of the same goroutine poll once more, and ends no other wait. A future that wakes
/// itself in its poll is polled again after others had a turn.
///
/// There is no reactor here: a future that waits for a socket or a timer of another library needs that library's driver. Calls
/// can be nested: a poll may call `block_on`, and do everything else that a goroutine may do, within the
/// [contract](crate::migration): a thread-bound value that the future keeps from one poll to the next breaks it. The future
/// lies on the caller's stack, which does not grow: box a large one. As code from outside may wake a goroutine that waits here,
/// no deadlock is reported meanwhile.
///
/// ```
/// use std::future::poll_fn;
/// use std::sync::Mutex;
/// use std::task::{Poll, Waker};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let waits: Mutex<Option<Waker>> = Mutex::new(None);
///         let mut answer = 0;
///         gmp::scope(|scope| {
///             let sum = async {
///                 // Pending once; it borrows, as any call may.
///                 let mut polls = 0;
///                 poll_fn(|cx| {
///                     polls += 1;
///                     if polls == 1 {
///                         *waits.lock().unwrap() = Some(cx.waker().clone());
///                         scope.go(|| waits.lock().unwrap().take().unwrap().wake());
///                         return Poll::Pending;
///                     }
///                     Poll::Ready(40 + polls)
///                 })
///                 .await
///             };
///             answer = gmp::block_on(sum);
///         });
///         assert_eq!(answer, 42);
///     })
/// }
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). The future was dropped by then, on
/// the caller's stack, while nothing unwound; no interrupt ends the waits of its destructor. An unwinding out of a poll passes
/// through.
///
/// # Panics
/// If the future panics.
#[inline]
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    // The future stays in the caller's frame, where it was built: a place in this frame would need a copy.
    let mut given = Some(future);
    block_on_made(|| given.take().expect("block_on: made once").into_future())
}

fn block_on_made<F: Future>(make: impl FnOnce() -> F) -> F::Output {
    let used = InUse::begin();
    let (cell, waker) = (&used.cell, waker_of(&used.cell));
    let mut pause = Pause { masked: Masked::new(), alone: 0 };
    let mut place = pin!(MadeInOwnFrame::none());
    let mut future = place.as_mut().make(make);
    let mut context = Context::from_waker(&waker);
    let interrupt = loop {
        let seen = cell.take();
        if let Poll::Ready(output) = in_own_frame(|| future.as_mut().poll(&mut context)) {
            return output;
        }
        if let Err(interrupt) = pause.pass(used.g, cell, seen) {
            break interrupt;
        }
    };
    {
        let _undisturbed = Undisturbed::<Active>::begin();
        place.as_mut().clear();
    }
    interrupt.throw::<Active>()
}
