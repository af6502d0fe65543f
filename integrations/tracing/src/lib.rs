//! Spans of [`tracing`](https://docs.rs/tracing) that follow goroutines of gmp from thread to thread.
//!
//! A subscriber keeps the spans that are entered for each *thread*. A goroutine that parks inside a span goes on on another
//! thread, and the next goroutine on the first thread is in that span: events have the spans of others, new spans have wrong
//! parents, an exit meets a thread on which nothing was entered. `#[instrument]` on a function that parks suffices to cause
//! that.
//!
//! [`follow`] wraps a subscriber, and makes each goroutine leave its spans before it leaves its thread, and enter them again on
//! the thread on which it goes on. The subscriber sees exits and enters, as with a future that is polled by turns.
//!
//! ```
//! use tracing::{info, instrument};
//!
//! #[instrument]
//! fn work(request: u32) {
//!     gmp::time::sleep(std::time::Duration::from_millis(1));
//!     // In the span of `work`, with this request, whichever thread this is.
//!     info!("done");
//! }
//!
//! let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).finish();
//! tracing::subscriber::set_global_default(gmp_tracing::follow(subscriber)).expect("the first one");
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call, but for spans, which are carried along.
//! unsafe {
//!     gmp::run(|| {
//!         let requests: Vec<_> = (0..100).map(|request| gmp::go(move || work(request))).collect();
//!         requests.into_iter().for_each(|request| request.join().unwrap());
//!     })
//! }
//! ```
//!
//! # What follows
//!
//! * Every span that a goroutine has entered, by [`Span::enter`], `entered`, `in_scope` or `#[instrument]`, also a span that
//!   was entered twice, and in the order of the enters. A guard that is kept across a park is then no breach of
//!   [`gmp::migration`]. An `EnteredSpan` must not be sent elsewhere; it is not `Send`.
//! * A goroutine that unwinds leaves its spans by the destructors of their guards, on the right thread.
//! * A span that a goroutine has entered is not closed before the goroutine has left it, even if all handles are gone.
//! * If guards were forgotten (`mem::forget`), the goroutine leaves their spans when it ends, so the next goroutine on that
//!   thread is in none of them.
//!
//! A new goroutine is in no span. As with threads, hand the span over: `let span = Span::current();` before [`gmp::go`], and
//! `let _in = span.enter();` in the goroutine. On plain threads nothing changes.
//!
//! # What does not
//!
//! * **A subscriber of a scope**, by `tracing::subscriber::with_default` or `set_default`: `tracing` itself keeps it for the
//!   thread. Set a global subscriber, and keep no other one inside a goroutine across a call that parks.
//! * **Layers and writers must not park.** A layer's `on_enter` and `on_exit` run in functions of [`gmp::hooks`], where a call
//!   of gmp that may park ends the process; and `tracing` marks the thread as being in an event. Layers and writers may lock
//!   and write as std does, if no thread holds such a lock while it waits in gmp. A layer that writes a line at each enter and
//!   exit (`FmtSpan::ACTIVE`) does so at each switch.
//! * A goroutine that the end of its runtime leaves behind has left its spans, and never closes them.
//!
//! [`Span::enter`]: https://docs.rs/tracing/latest/tracing/struct.Span.html#method.enter

use std::any::TypeId;
use std::cell::RefCell;
use std::sync::{Arc, Once, Weak};
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, LevelFilter, Metadata, Subscriber};

type AnySubscriber = dyn Subscriber + Send + Sync;

/// A span that a goroutine has entered.
struct InSpan {
    /// Weak: a goroutine does not keep a subscriber alive that all others have dropped.
    subscriber: Weak<AnySubscriber>,
    /// The id by which the span was entered, and will be exited.
    entered: Id,
    /// An id that the subscriber counts like a handle, so that the span stays. A subscriber may give each handle an id of its
    /// own.
    kept: Id,
}

/// The spans that a goroutine has entered, in the order of the enters.
struct Entered(RefCell<Vec<InSpan>>);

gmp::local! {
    static ENTERED: Entered = Entered(RefCell::new(Vec::new()));
}

impl Entered {
    /// Calls `f` with the span at `index`; `None` beyond the end. No borrow lasts while `f` runs.
    fn at<R>(&self, index: usize, f: impl FnOnce(&AnySubscriber, &Id) -> R) -> Option<R> {
        let entered = self.0.borrow();
        let InSpan { subscriber, entered: id, .. } = entered.get(index)?;
        let (subscriber, id) = (subscriber.upgrade()?, id.clone());
        drop(entered);
        Some(f(&*subscriber, &id))
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Takes the innermost entry of the span out, and returns the id that keeps the span.
    fn take(&self, subscriber: &Weak<AnySubscriber>, id: &Id) -> Option<Id> {
        let mut entered = self.0.borrow_mut();
        let at =
            entered.iter().rposition(|span| span.entered == *id && span.subscriber.ptr_eq(subscriber))?;
        Some(entered.remove(at).kept)
    }
}

/// The goroutine ends and has forgotten guards: it leaves their spans, because the thread is the next goroutine's.
impl Drop for Entered {
    fn drop(&mut self) {
        while let Some(span) = { self.0.borrow_mut().pop() } {
            if let Some(subscriber) = span.subscriber.upgrade() {
                subscriber.exit(&span.entered);
                subscriber.try_close(span.kept);
            }
        }
    }
}

fn suspend() {
    ENTERED.peek(|entered| {
        for index in (0..entered.len()).rev() {
            entered.at(index, |subscriber, id| subscriber.exit(id));
        }
    });
}

fn resume() {
    ENTERED.peek(|entered| {
        for index in 0..entered.len() {
            entered.at(index, |subscriber, id| subscriber.enter(id));
        }
    });
}

/// Wraps `subscriber` so that the spans of goroutines follow them. Does not block.
///
/// The wrapper must be the outermost one, and the global default: see [the crate](crate).
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let layers = tracing_subscriber::registry().with(tracing_subscriber::fmt::layer());
/// let first = tracing::subscriber::set_global_default(gmp_tracing::follow(layers));
/// assert!(first.is_ok());
/// ```
pub fn follow<S: Subscriber + Send + Sync>(subscriber: S) -> Following<S> {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| gmp::hooks::register(suspend, resume));
    let inner = Arc::new(subscriber);
    let shared: Arc<AnySubscriber> = Arc::clone(&inner) as Arc<AnySubscriber>;
    Following { weak: Arc::downgrade(&shared), inner }
}

/// A subscriber whose spans follow goroutines; made by [`follow`].
#[derive(Debug)]
pub struct Following<S> {
    inner: Arc<S>,
    weak: Weak<AnySubscriber>,
}

impl<S> Following<S> {
    /// Returns the subscriber inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Subscriber + Send + Sync> Subscriber for Following<S> {
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        self.inner.on_register_dispatch(dispatch);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.inner.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.inner.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
    }

    fn enter(&self, span: &Id) {
        self.inner.enter(span);
        if gmp::current().is_some() {
            // A goroutine whose variables are dropped is about to end; the span stays entered on its thread.
            let _gone = ENTERED.try_with(|entered| {
                let (subscriber, kept) = (self.weak.clone(), self.inner.clone_span(span));
                entered.0.borrow_mut().push(InSpan { subscriber, entered: span.clone(), kept });
            });
        }
    }

    fn exit(&self, span: &Id) {
        self.inner.exit(span);
        if gmp::current().is_some()
            && let Some(Some(kept)) = ENTERED.peek(|entered| entered.take(&self.weak, span))
        {
            self.inner.try_close(kept);
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.inner.try_close(id)
    }

    fn current_span(&self) -> Current {
        self.inner.current_span()
    }

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        // SAFETY: by this function's contract; `inner` lives as long as `self`.
        unsafe { self.inner.downcast_raw(id) }
    }
}
