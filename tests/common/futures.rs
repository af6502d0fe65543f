//! Futures, written by hand, so that a reader sees what they do.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Counts signals that were given and not taken, and wakes the future that waits for one.
#[derive(Default)]
pub struct Signal(Mutex<State>);

#[derive(Default)]
struct State {
    given: usize,
    waiter: Option<Waker>,
}

impl Signal {
    pub const fn new() -> Self {
        Signal(Mutex::new(State { given: 0, waiter: None }))
    }

    /// Gives one signal.
    pub fn give(&self) {
        let waiter = {
            let mut state = self.0.lock().unwrap();
            state.given += 1;
            state.waiter.clone()
        };
        // The future that is woken may have what it waited for already: then the wake comes late.
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub fn is_given(&self) -> bool {
        self.0.lock().unwrap().given > 0
    }

    /// Returns `true` if a future has waited here.
    pub fn is_awaited(&self) -> bool {
        self.0.lock().unwrap().waiter.is_some()
    }

    /// Takes one signal, if there is one.
    pub fn try_take(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let left = state.given.checked_sub(1);
        left.inspect(|&left| state.given = left).is_some()
    }

    /// Takes one signal, when there is one. The waker stays behind, so givers call it even when the future has gone.
    pub fn take(&self) -> impl Future<Output = ()> + '_ {
        Take(self)
    }
}

/// A future with a type of its own, not a closure.
struct Take<'a>(&'a Signal);

impl Future for Take<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock().unwrap();
        if let Some(left) = state.given.checked_sub(1) {
            state.given = left;
            return Poll::Ready(());
        }
        match &mut state.waiter {
            Some(waiter) => waiter.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// Is pending `count` times, and wakes itself each time.
pub fn turns(mut count: usize) -> impl Future<Output = ()> {
    poll_fn(move |cx| match count.checked_sub(1) {
        None => Poll::Ready(()),
        Some(left) => {
            count = left;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
}

/// A waker whose drop panics.
pub fn falls() -> Waker {
    struct Falls;

    impl Wake for Falls {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Falls {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("the panic of a waker's drop"));
        }
    }
    Waker::from(Arc::new(Falls))
}

/// Returns the waker of the calling goroutine or thread.
pub fn own_waker() -> Waker {
    gmp::block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())))
}
