//! Signals: [`notify`] has them sent to a [`Receiver`]; Go's package `os/signal`.
//!
//! Each receiver gets each signal for which it was made. While a signal waits to be received, further ones of the same number
//! are dropped, so a receiver holds at most one of each. While a receiver lives that asked for a signal, the signal's own
//! action is not taken; with the last such receiver the action from before comes back, the default one mostly: a server that
//! has begun to stop, and has dropped its receiver, is killed by a second Ctrl-C.
//! [`with_signals`](crate::context::with_signals) is a context that does so.
//!
//! ```
//! use gmp::signal::{self, SIGTERM, SIGUSR1};
//!
//! # fn main() -> std::io::Result<()> {
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let signals = signal::notify(&[SIGTERM, SIGUSR1])?;
//!         // From another process, mostly.
//!         libc::raise(libc::SIGUSR1);
//!         assert_eq!(signals.recv(), Ok(SIGUSR1));
//!         Ok(())
//!     })
//! }
//! # }
//! ```
//!
//! * A receiver belongs to the process, not to a runtime: it works on plain threads, beside several runtimes, and after
//!   their ends. One thread serves all receivers, as long as there are any; it sleeps while no signal comes.
//! * A program with a receiver is never taken for a deadlock: a signal may come.
//! * Handlers of other libraries that were installed before go on being called, and one that is installed later is called
//!   first and decides whether this library hears of the signal. System calls that a signal interrupts are restarted, unless
//!   a handler from before asked for the opposite.
//! * A signal that is blocked in all threads, as a launcher may have left it, is unblocked in that one thread while a receiver
//!   asks for it.
//! * SIGPIPE is ignored in Rust programs, and is ignored again once its last receiver is dropped.
//! * SIGQUIT asks a runtime for a [`dump`](crate::dump()), but not while the signal has a receiver, or is [`ignore`]d; that the
//!   receiver was there before the first runtime makes no difference.
//! * A child process has the default action for each signal that was caught here. A signal that is ignored is ignored in
//!   children too, whatever starts them ([`process::Command`](crate::process::Command), std's): [`reset`] it before, or
//!   set the action between fork and exec. A child that a bare `fork` has made receives nothing.

// The kernel's side: `action.rs`. From the handler to the thread: `pending.rs`. From the thread to receivers: `registry.rs`.
//
// Not `signal-hook-registry`: its handler, once installed, stays for good. After its last action was removed the signal is
// swallowed, where Go's, and this module's, rule is that the action from before comes back; and an action that is put back by
// hand would not be replaced by the next `register`, which finds its slot taken. A handler that resets itself to the default
// action and raises the signal again comes close, but a child would then start with the default action where its parent ignored
// the signal, as under nohup(1), and SIGPIPE would not be ignored again.
mod action;
mod number;
pub(crate) mod pending;
mod receiver;
pub(crate) mod registry;

pub use number::*;
pub use receiver::{IntoIter, Receiver};

use std::io;

/// Makes a receiver of these signals. Until it is dropped, their own actions are not taken. A signal that came just before this
/// call, while another receiver had asked for it, may be received too. Does not block.
///
/// # Errors
/// The list is empty, or has a signal that can't be caught (`SIGKILL`, `SIGSTOP`), one by which the processor tells of a fault
/// (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`), or a number that no signal has: `InvalidInput`. Or the thread that serves
/// receivers can't be started.
///
/// ```
/// use gmp::signal::{self, SIGINT, SIGKILL, SIGTERM};
///
/// let signals = signal::notify(&[SIGINT, SIGTERM]).unwrap();
/// assert!(signals.try_recv().is_err());
/// let refused = signal::notify(&[SIGINT, SIGKILL]).unwrap_err();
/// assert_eq!(refused.to_string(), "notify: SIGKILL can't be caught or ignored");
/// ```
#[doc(alias = "signal.Notify")]
pub fn notify(signals: &[Signal]) -> io::Result<Receiver> {
    registry::set_to_hear("notify", signals).and_then(Receiver::new)
}

/// Has the process ignore these signals, and children that it starts from now on. Receivers get none of them any more: one
/// that is left without a signal to hear of is closed. A signal that came just before this call may reach no receiver. Does
/// not block.
///
/// # Errors
/// The list has a signal that [`notify`] refuses; nothing was done then.
///
/// ```
/// use gmp::signal::{self, SIGHUP};
///
/// let signals = signal::notify(&[SIGHUP]).unwrap();
/// signal::ignore(&[SIGHUP]).unwrap();
/// // Not the end of the process.
/// unsafe { libc::raise(libc::SIGHUP) };
/// assert!(signals.recv().is_err());
/// ```
#[doc(alias = "signal.Ignore")]
pub fn ignore(signals: &[Signal]) -> io::Result<()> {
    number::set_of("ignore", signals).and_then(registry::ignore)
}

/// Undoes what [`notify`] and [`ignore`] have done for these signals: the action is back that was there before the first of
/// those calls. Receivers get none of these signals any more: one that is left without a signal to hear of is closed. A signal
/// that came just before this call may reach no receiver. Does not block.
///
/// A handler that another library has set over this one's meanwhile stays. As that handler may call this one's, a receiver that
/// is made afterwards counts on that call: it hears of nothing while a handler stands there that calls no other.
///
/// # Errors
/// The list has a signal that [`notify`] refuses; nothing was done then.
///
/// ```
/// use gmp::signal::{self, SIGWINCH};
///
/// let signals = signal::notify(&[SIGWINCH]).unwrap();
/// signal::reset(&[SIGWINCH]).unwrap();
/// assert!(signals.recv().is_err());
/// ```
#[doc(alias = "signal.Reset")]
pub fn reset(signals: &[Signal]) -> io::Result<()> {
    number::set_of("reset", signals).map(registry::reset)
}
