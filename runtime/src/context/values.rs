//! The values and classes that a context carries, in a chain, newest first.

use super::Context;
use crate::g::call_undisturbed;
use crate::host::Active;
use crate::prim::Arc;
use crate::runtime::priority::Priority;
use std::any::Any;

/// A link of the chain of values, with the older ones behind it.
pub(super) struct Value {
    /// `None` for a link that gives a class.
    value: Option<Box<dyn Any + Send + Sync>>,
    /// The class that was given last, by this link or an older one.
    class: Option<Priority>,
    older: Option<Arc<Value>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        // Drops the chain in a loop, not by recursion: the chain may be long. A drop that unwinds, or that a context ends, does
        // not keep those behind it from being dropped.
        let mut older = self.older.take();
        while let Some(it) = older {
            older = Arc::into_inner(it).and_then(|mut it| {
                let older = it.older.take();
                call_undisturbed::<Active>(|| drop(it));
                older
            });
        }
    }
}

impl Context {
    fn with_link(&self, value: Option<Box<dyn Any + Send + Sync>>, class: Option<Priority>) -> Context {
        let link = Value { value, class, older: self.values.clone() };
        Context { node: self.node.clone(), values: Some(Arc::new(link)) }
    }

    /// Derives a context with one more value, which [`value`](Self::value) finds by its type. The derived context is done when
    /// this one is.
    ///
    /// ```
    /// use gmp::context::Context;
    ///
    /// struct RequestId(u64);
    ///
    /// let ctx = Context::background().with_value(RequestId(7)).with_value("other");
    /// assert_eq!(ctx.value::<RequestId>().unwrap().0, 7);
    /// assert!(ctx.value::<u64>().is_none());
    /// ```
    #[must_use = "the context from which this one is derived stays as it is"]
    pub fn with_value<T: Send + Sync + 'static>(&self, value: T) -> Context {
        self.with_link(Some(Box::new(value)), self.priority())
    }

    /// Returns the value of type `T` that was added last, on the way from the background to this context.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let mut at = self.values.as_deref();
        while let Some(it) = at {
            if let Some(value) = it.value.as_ref().and_then(|value| value.downcast_ref()) {
                return Some(value);
            }
            at = it.older.as_deref();
        }
        None
    }

    /// Derives a context whose [`go`](Self::go), and the `go` of each context derived from it, starts goroutines of this class.
    /// The derived context is done when this one is. [`run`](Self::run) does not change the class of its caller, and
    /// [`gmp::go`](crate::go) starts a `Normal` goroutine inside `run`, too.
    ///
    /// ```
    /// use gmp::{Priority, context::Context};
    ///
    /// let requests = Context::background().with_priority(Priority::High);
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (request, _cancel) = requests.with_cancel();
    ///         assert_eq!(request.go(gmp::priority).join().unwrap(), Ok(Priority::High));
    ///     })
    /// }
    /// ```
    #[must_use = "the context from which this one is derived stays as it is"]
    pub fn with_priority(&self, class: Priority) -> Context {
        self.with_link(None, Some(class))
    }

    /// Returns the class that was given last, on the way from the background to this context, by
    /// [`with_priority`](Self::with_priority); `None` if no class was given.
    pub fn priority(&self) -> Option<Priority> {
        self.values.as_ref()?.class
    }
}
