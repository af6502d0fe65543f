//! Binding a goroutine to a thread: [`lock_os_thread`], [`unlock_os_thread`].

use crate::host::Active;
use crate::sched::threads::locked;

/// Binds the calling goroutine to the thread on which it runs: until [`unlock_os_thread`] was called as often, only this
/// goroutine runs on this thread, and it runs on no other. Go's `runtime.LockOSThread`. Never blocks; on a plain thread the
/// call does nothing.
///
/// For code that depends on its thread: a C library that keeps state in thread-locals (OpenGL, many GUIs, some language
/// runtimes), `setns`, `unshare`, a thread's credentials, its CPU affinity or priority, `pthread_kill`. Between the two calls
/// the clauses of [`migration`](crate::migration)'s contract about threads do not apply: a reference to a `thread_local!`, a
/// guard of std, a handle that is not `Send` may be kept across calls that park. Those calls can still unwind, and the stack is
/// as small. A library that insists on the process's *first* thread needs [`Runtime::run_locked`](crate::Runtime::run_locked).
///
/// When a locked goroutine ends, so does its thread: no other goroutine runs on a thread that was changed. So do not unlock
/// after a change that can't be undone. Goroutines that a locked goroutine starts are not bound, and run elsewhere. But a new
/// thread of the runtime may be started from this one, when the locked goroutine parks, and then inherits this thread's
/// affinity, priority and namespaces: start the threads that are needed before, or make such changes on a thread of your own.
///
/// The binding has a price: when the goroutine parks, the thread sleeps, and the P goes to another thread; when the goroutine
/// is readied, another thread hands its P over to this one. Each time two threads are woken (some 10 µs each), where other
/// goroutines take nanoseconds. And as the thread of a locked goroutine runs no other goroutine, the others have one thread
/// less of [`max_threads`](crate::RuntimeBuilder::max_threads).
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call, except while it is locked to its thread.
/// unsafe {
///     gmp::run(|| {
///         gmp::lock_os_thread();
///         let before = std::thread::current().id();
///         gmp::time::sleep(std::time::Duration::from_millis(1));
///         assert_eq!(std::thread::current().id(), before);
///         gmp::unlock_os_thread();
///     })
/// }
/// ```
///
/// # Panics
/// When called 65,536 times more often than `unlock_os_thread`.
#[doc(alias = "LockOSThread")]
pub fn lock_os_thread() {
    locked::lock_thread::<Active>();
}

/// Takes back one [`lock_os_thread`]; the last call lets the goroutine run on any thread. More calls than there were locks have
/// no effect. Never blocks; on a plain thread the call does nothing.
///
/// In the main goroutine of [`Runtime::run_locked`](crate::Runtime::run_locked) the call takes back only a lock of that
/// goroutine itself, not the binding to the thread of `run_locked`'s caller.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         gmp::lock_os_thread();
///         gmp::lock_os_thread();
///         gmp::unlock_os_thread();
///         // Still bound: there was one more lock.
///         let here = std::thread::current().id();
///         gmp::yield_now();
///         assert_eq!(std::thread::current().id(), here);
///         gmp::unlock_os_thread();
///     })
/// }
/// ```
#[doc(alias = "UnlockOSThread")]
pub fn unlock_os_thread() {
    locked::unlock_thread::<Active>();
}
