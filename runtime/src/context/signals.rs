//! A context that a signal ends.

use super::tree::{Node, Verdict};
use super::{Cancel, Context, ContextError, cause_of};
use crate::os::signal::{Signal, registry};
use crate::prim::Arc;
use std::io;

/// Derives a context that is done at the first of these signals, when cancelled, or when `context` is done. Go's
/// `signal.NotifyContext`. Does not block.
///
/// A signal ends the context by [`ContextError::Canceled`]; the [`cause`](Context::cause) is the [`Signal`]. Once the context
/// is done, or no handle of it is left, the signals' own actions are back, unless others listen for them: so a second Ctrl-C
/// kills a server that takes too long to stop. [`signal`](crate::signal) has more on signals. Where nothing can be unwound
/// (`panic = "abort"`, the `generator` backend) the context ends only waits in calls that return an error: [`Context::run`]
/// says which.
///
/// ```
/// use gmp::context::{self, Context, ContextError};
/// use gmp::signal::{SIGINT, SIGTERM, Signal};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (ctx, _stop) = context::with_signals(&Context::background(), &[SIGINT, SIGTERM]).unwrap();
///         let server = ctx.go(|| gmp::sync::Event::new().wait());
///         libc::raise(libc::SIGTERM);
///         assert_eq!(server.join().unwrap(), Err(ContextError::Canceled));
///         assert_eq!(ctx.cause().unwrap().downcast_ref::<Signal>(), Some(&SIGTERM));
///     })
/// }
/// ```
///
/// # Errors
/// As [`signal::notify`](crate::signal::notify).
#[doc(alias = "NotifyContext")]
pub fn with_signals(context: &Context, signals: &[Signal]) -> io::Result<(Context, Cancel)> {
    let set = registry::set_to_hear("with_signals", signals)?;
    let (context, cancel) = context.with_cancel();
    let node = Arc::downgrade(&cancel.node);
    let registration = registry::listen(set, move |signal| {
        if let Some(node) = node.upgrade() {
            // First: code that sees that the context is done relies on the signals' own actions.
            drop(node.give_up());
            node.end(&Verdict { error: ContextError::Canceled, cause: Some(cause_of(signal)) });
        }
    })?;
    Node::keep(&cancel.node, Box::new(registration));
    Ok((context, cancel))
}
