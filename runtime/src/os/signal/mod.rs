//! Signals: [`notify`] has them sent to a [`Receiver`]; Go's package `os/signal`.
//!
//! Each receiver gets each signal for which it was made. While a signal waits to be received, further ones of the same number
//! are dropped, so a receiver holds at most one of each. As long as a receiver for a signal lives, the signal's own action is
//! not taken; when the last such receiver is dropped, the action from before comes back, mostly the default one: a server that
//! has begun to stop, and has dropped its receiver, is killed by a second Ctrl-C. A context of
//! [`with_signals`](crate::context::with_signals) does so.
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
//! * A receiver belongs to the process, not to a runtime: it works on plain threads, beside several runtimes, and after their
//!   ends. One thread serves all receivers, as long as there are any, and sleeps while no signal comes.
//! * A program with a receiver is never taken for a deadlock: a signal may come.
//! * Handlers that other libraries have installed before are still called. A handler that is installed later is called first,
//!   and decides whether this library hears of the signal. System calls that a signal interrupts are restarted, unless a
//!   handler from before asked for the opposite.
//! * A handler from before runs on the stack for which it was installed: with `SA_ONSTACK` on the thread's signal stack, else
//!   on the stack that the signal interrupts, which may be a goroutine's.
//! * A signal that is blocked in all threads, as a launcher may have left it, is unblocked in the thread that serves receivers
//!   while a receiver asks for the signal.
//! * SIGPIPE is ignored in Rust programs, and is ignored again once its last receiver is dropped.
//! * If a sandbox refuses `sigaction` when the last receiver is dropped, the action from before can't come back: a handler from
//!   before is still called, but a default action is not taken any more, so a second Ctrl-C ends nothing.
//! * SIGQUIT asks a runtime for a [`dump`](crate::dump()), but not while the signal has a receiver, even one from before the
//!   first runtime, or is [`ignore`]d.
//! * A child process has the default action for each signal that was caught here. A signal that is ignored is ignored in
//!   children too, no matter how they are started ([`process::Command`](crate::process::Command), or std's): [`reset`] it
//!   before, or set the action between fork and exec. Until exec, and in a child that never calls exec, a signal that was
//!   caught here takes the action from before: no thread there serves the receivers. A receiver that such a child makes is
//!   served there, and the parent's are not.

// The kernel's side: `action.rs`. From the handler to the thread: `pending.rs`. From the thread to receivers: `registry.rs`.
//
// Not `signal-hook-registry`: its handler, once installed, stays for good. After its last action was removed the signal is
// swallowed, while in Go, and in this module, the action from before comes back; and the next `register` would not replace an
// action that was put back by hand, as it finds its slot taken. A handler that resets the action to the default one and raises
// the signal again comes close, but a child would then start with the default action even if its parent ignored the signal, as
// under nohup(1), and SIGPIPE would not be ignored again.
mod action;
mod number;
pub(crate) mod pending;
mod receiver;
pub(crate) mod registry;

pub use number::*;
pub use receiver::{IntoIter, Receiver};

use std::io;

/// Makes a receiver for these signals. Until the receiver is dropped, the signals' own actions are not taken. A signal that
/// came just before this call, while another receiver listened for it, may be received too. Does not block.
///
/// # Errors
/// `InvalidInput` if the list is empty, or has a signal that can't be caught (`SIGKILL`, `SIGSTOP`), a signal for a fault
/// (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`), or a number that no signal has. Another error if the thread that serves receivers
/// can't be started, or if the system refuses to set an action, as a sandbox may.
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

/// Makes the process, and children that it starts from now on, ignore these signals. Receivers get none of them any more: a
/// receiver that is left without a signal is closed. A signal that came just before this call may reach no receiver. Does not
/// block.
///
/// # Errors
/// The list has a signal that [`notify`] refuses; nothing was done then. Or the system refuses to set the action of a signal,
/// as a sandbox may: then only signals with lower numbers are ignored.
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

/// Returns `true` if the process ignores the signal now: because of [`ignore`], or because the process was started so, as by
/// nohup(1). A signal that has a receiver is not ignored. Returns `false` if there is no such signal, and if the system does
/// not tell, as in a sandbox; also in a forked child whose parent has a receiver, whatever the action from before. Does not
/// block.
///
/// A program that ends at a SIGHUP should not listen for one that its starter wants it to ignore:
///
/// ```
/// use gmp::signal::{self, SIGHUP, SIGTERM};
///
/// let mut ends = vec![SIGTERM];
/// if !signal::is_ignored(SIGHUP) {
///     ends.push(SIGHUP);
/// }
/// let signals = signal::notify(&ends).unwrap();
/// assert!(!signal::is_ignored(SIGTERM));
/// drop(signals);
/// signal::ignore(&[SIGTERM]).unwrap();
/// assert!(signal::is_ignored(SIGTERM));
/// ```
#[doc(alias = "signal.Ignored")]
pub fn is_ignored(signal: Signal) -> bool {
    action::is_ignored(signal)
}

/// Undoes the effect of [`notify`] and [`ignore`] on these signals: the action from before the first of those calls comes back.
/// Receivers get none of these signals any more: a receiver that is left without a signal is closed. A signal that came just
/// before this call may reach no receiver. Does not block.
///
/// A handler that another library has set over this library's handler meanwhile stays. As that handler may call this library's,
/// a receiver that is made afterwards relies on the call: it gets nothing while the handler that is set calls no other.
///
/// # Errors
/// The list has a signal that [`notify`] refuses; nothing was done then. Or the system refuses to set the action of a signal,
/// as a sandbox may: then the effect is undone only for signals with lower numbers.
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
    number::set_of("reset", signals).and_then(registry::reset)
}
