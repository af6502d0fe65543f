//! [`dump`], the program's interface: the signal for running goroutines, and SIGQUIT. `sched/watch/dump.rs` makes the text.

use crate::host::Active;
use crate::sched::watch::dump::{Wanted, dump_all};

/// Returns what all goroutines of all runtimes of the process are doing, as text. Can be called on any thread, also while every
/// goroutine is stuck; waits for no goroutine. [`Runtime::dump`](crate::Runtime::dump) describes the text.
///
/// # Goroutines that run
///
/// A goroutine that computes for ever, or hangs in a lock of std or in a system call, is shown like the others: the signal
/// SIGRTMIN+12 interrupts its thread, and the signal's handler copies up to 64 KiB of the goroutine's stack, without a lock or
/// an allocation. The first dump that needs the handler installs it, or the first thread of a runtime that has inherited a mask
/// in which the signal is blocked: that thread unblocks the signal.
///
/// A thread that does not answer in 100 ms is shown as such: the thread has blocked the signal, or waits in the kernel where no
/// signal reaches it. The dump waits for all threads together for a second at most. The dump shows only the number of a
/// goroutine that was switching at every attempt, that runs a signal handler on the thread's signal stack, or that has changed
/// to a stack which this library does not know. Code without unwind tables, such as musl's, ends a trace with "...".
///
/// A handler that the program has installed for that signal stays, whether it was installed before or after the first dump;
/// then the dump says so, and shows no calls of running goroutines, except the caller. With `GMPDEBUG=dumpsignal=0` no thread
/// is interrupted at all, and the signal stays blocked where it is blocked. The dump that is printed before the process is
/// ended for a deadlock interrupts no thread.
///
/// **Interrupted system calls** restart by themselves (`SA_RESTART`), and so do locks, condition variables, channels and sleeps
/// of std and of this library. As with any signal that has a handler, the following calls fail with `EINTR` in the interrupted
/// thread, and code that calls them has to expect that:
/// * `nanosleep`, `clock_nanosleep`, `usleep`; `sleep` returns what is left;
/// * `poll`, `ppoll`, `select`, `pselect`, `epoll_wait`, `epoll_pwait`, `io_getevents`;
/// * `recv`, `send`, `accept`, `connect` and their relatives on a socket with `SO_RCVTIMEO` or `SO_SNDTIMEO`;
/// * `semop`, `semtimedop`, `msgrcv`, `msgsnd`; `pause`, `sigsuspend`, `sigtimedwait`, `sigwaitinfo`.
///
/// # Names
///
/// Functions and lines are shown with the feature `symbols`, which is on by default. With `default-features = false` a frame is
/// shown as the loaded file and the offset in it, `target/debug/server+0x1a2b3`: `addr2line -ifCe target/debug/server 0x1a2b3`
/// names it.
///
/// # SIGQUIT
///
/// A program that hangs can be asked from outside: `kill -QUIT`, or `Ctrl-\` at the terminal, prints "SIGQUIT: quit" and this
/// text on standard error and ends the process with status 2, as Go's programs do. The handler only wakes a monitor, a thread
/// that runs no goroutine; so the dump works while all other threads are stuck, or asleep. With `GMPDEBUG=sigquit=dump` in the
/// environment the process continues after the dump, as Java's do: goroutines run while a separate thread makes the dump, and
/// waits for the reader of standard error. If a second SIGQUIT comes before the first is taken up, or while the process ends by
/// the first, the kernel's default action ends the process at once: so there is a way out whatever hangs. The first process of
/// a PID namespace, for which the kernel has no default action, exits with status 131.
///
/// The signal is caught when the first runtime of the process starts, unless the program has set the signal's action before: a
/// handler of the program stays, and so does a signal that is ignored. A handler that the program sets later replaces this one.
/// A receiver of [`signal::notify`](crate::signal::notify), even one from before the first runtime, has the signal until
/// dropped; then SIGQUIT asks for a dump again. `GMPDEBUG=sigquit=off` leaves the signal alone. While there is no runtime,
/// SIGQUIT ends the process as usual.
///
/// A shell without job control, as in a script, makes a program that it starts by `&` ignore the signal; `env
/// --default-signal=QUIT PROGRAM &` restores it.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let text = unsafe { gmp::run(gmp::dump) };
/// assert!(text.starts_with("1 goroutine, running"));
/// ```
pub fn dump() -> String {
    dump_all::<Active>(Wanted::ByUser)
}
