//! Functions that run around each switch of a goroutine: [`register`].
//!
//! The functions are for state that belongs to a thread but should follow the goroutine: a library keeps a stack or a context
//! in thread-locals, and a goroutine that parks resumes on another thread, while another goroutine runs on the first. A pair of
//! functions takes such state off the thread before the goroutine leaves it, and puts it on the next thread. The functions
//! choose where the state lies meanwhile, most often in a [`local!`](crate::local!); at the end of a goroutine, when other
//! destructors may still park, that variable may be gone: [`Local::try_with`](crate::local::Local::try_with) and
//! [`peek`](crate::local::Local::peek) tell. `gmp-tracing` does so with the spans of `tracing`.
//!
//! # When they run
//!
//! | the goroutine | functions for suspend, then for resume |
//! | --- | --- |
//! | parks, in any call of this library that waits | once around the wait, however often the goroutine is woken in it |
//! | finds what it waits for while it is about to park | once, possibly without a switch between them |
//! | does not have to wait | not at all |
//! | calls [`yield_now`](crate::yield_now) | once |
//! | makes a TCP connection at once, as on loopback | once, as the connect yields |
//! | has lost its P, as it blocked its thread or ran for long, and waits for one at its next call that may park, or at the end of [`blocking`](crate::blocking) | once around that wait |
//! | blocks its thread, in `blocking` or unmarked, while others take over | not at all: the goroutine stays on its thread |
//! | begins, or ends | not at all: a thread has nothing of any goroutine then, and the destructors of `local!` run at an end |
//! | unwinds, and parks in a destructor | as usual; the goroutine comes back on the same thread |
//! | is woken to be unwound, by a context or the end of its runtime | those for resume run before the unwinding begins |
//! | is left behind by the end of its runtime | those for suspend only |
//!
//! The functions run on the goroutine's own stack, on the thread that the goroutine is about to leave, or on which it has just
//! arrived, and under no internal lock of this library; [`current`](crate::current) and [`local!`](crate::local!) are that
//! goroutine's. Plain threads that wait call none of them. By then the goroutine may already hold the
//! [`Mutex`](crate::sync::Mutex) or the permit that it waited for, and others wait until the functions have returned. So no
//! thread may hold a lock that a function takes while the thread waits in this library.
//!
//! # What they must not do
//!
//! * **Call what may park**, or [`lock_os_thread`](crate::lock_os_thread): the goroutine is in the middle of a switch. Such a
//!   call ends the process, with a text that names the rule. Some do so even if they would not have to wait: reads and writes
//!   of a descriptor, [`park`](crate::park()), [`Event::wait`](crate::sync::Event::wait),
//!   [`Barrier::wait`](crate::sync::Barrier::wait), the return of [`scope`](crate::scope()), a receive with a limit of zero.
//!   Calls that never park are allowed, such as [`go`](crate::go), `try_send`, `try_lock` or
//!   [`Unparker::unpark`](crate::Unparker::unpark). A lock of std may be taken: it blocks the thread. [`register`] may be
//!   called, too: the switch that is under way keeps the pairs that it began with, and the goroutine's next switch is the first
//!   to call the new pair. Each call adds a pair for good, so a function should call it once, not at each switch.
//! * **Unwind**: at that point the wait is published or over. A panic in a function ends the process too, after its message.
//! * Take long, or much stack: the functions run at each switch of each goroutine, on stacks of 64 KiB.
//!
//! # Cost
//!
//! If no function is registered, a park or yield costs one comparison more. If functions are, a park takes a slower path, and
//! calls the functions.

// "The goroutine stays on its thread": without the look at `has_switch_hooks` in `wants_p_of` (`sched/threads/blockers.rs`) a
// goroutine that calls `blocking` while others wait would go to another thread.

use crate::host::Active;
use crate::sched::switch;

/// Registers two functions for all goroutines of all runtimes of the process, for good: `suspend` is called before a goroutine
/// leaves its thread, and `resume` when the goroutine is on a thread again. Never blocks, and can be called anywhere, also in a
/// registered function: see [the module](self#what-they-must-not-do).
///
/// Of several pairs, the last registered one suspends first and resumes last, as guards are dropped in the opposite order. A
/// goroutine that has been suspended without a pair is resumed without that pair.
///
/// ```
/// use std::cell::Cell;
///
/// thread_local! {
///     /// The state that some library keeps for the thread, here that of a request.
///     static REQUEST: Cell<u32> = const { Cell::new(0) };
/// }
/// gmp::local! {
///     static PUT_BY: Cell<u32> = Cell::new(0);
/// }
///
/// // `try_with`: at the goroutine's end, other destructors may park when the variable is gone.
/// gmp::hooks::register(
///     || {
///         let request = REQUEST.take();
///         _ = PUT_BY.try_with(|put_by| put_by.set(request));
///     },
///     || REQUEST.set(PUT_BY.try_with(Cell::take).unwrap_or_default()),
/// );
///
/// // SAFETY: the functions above move that state along with the goroutine.
/// unsafe {
///     gmp::run(|| {
///         let requests = (1..=100).map(|request| {
///             gmp::go(move || {
///                 REQUEST.set(request);
///                 gmp::yield_now();
///                 let seen = REQUEST.take();
///                 assert_eq!(seen, request);
///             })
///         });
///         requests.collect::<Vec<_>>().into_iter().for_each(|request| request.join().unwrap());
///     })
/// }
/// ```
pub fn register(suspend: impl Fn() + Send + Sync + 'static, resume: impl Fn() + Send + Sync + 'static) {
    switch::register::<Active>(suspend, resume);
}
