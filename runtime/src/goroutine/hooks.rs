//! Functions that run around each switch of a goroutine: [`register`].
//!
//! For what belongs to a thread and is meant to follow the goroutine: a library keeps a stack or a context in thread-locals,
//! and a goroutine that parks goes on on another thread, while another goroutine runs on the first. A pair of functions takes
//! such a state off the thread before the goroutine leaves it, and puts it on the next thread. Where the state lies meanwhile
//! is the functions' affair, in a [`local!`](crate::local!) most often; at the end of a goroutine, when other destructors may
//! still park, that variable may be gone: [`Local::try_with`](crate::local::Local::try_with) and
//! [`peek`](crate::local::Local::peek) tell. `gmp-tracing` does so with the spans of `tracing`.
//!
//! # When they run
//!
//! | the goroutine | functions for suspend, then for resume |
//! | --- | --- |
//! | parks, in any call of this library that waits | once around the wait, however often the goroutine is woken in it |
//! | finds what it waits for while it is about to park | once, and there may have been no switch between them |
//! | does not have to wait | not at all |
//! | calls [`yield_now`](crate::yield_now) | once |
//! | has lost its P, as it blocked its thread or ran for long, and waits for one at its next call that may park, or at the end of [`blocking`](crate::blocking) | once around that wait |
//! | blocks its thread, in `blocking` or unmarked, while others take over | not at all: it stays on its thread |
//! | begins, or ends | not at all: a thread has nothing of any goroutine then, and the destructors of `local!` tell of an end |
//! | unwinds, and parks in a destructor | as ever; it comes back on the same thread |
//! | is woken to be unwound, by a context or the end of its runtime | those for resume run before the unwinding begins |
//! | is left behind by the end of its runtime | those for suspend only |
//!
//! They run on the goroutine's own stack, on the thread that the goroutine is about to leave, or on which it has just arrived,
//! and under no internal lock of this library; [`current`](crate::current) and [`local!`](crate::local!) are that goroutine's.
//! Plain threads that wait call none of them. What the wait was for, a [`Mutex`](crate::sync::Mutex) or a permit, the goroutine
//! may have by then, and others wait for it until the functions have returned. So no thread may hold a lock that a function
//! takes while the thread waits in this library.
//!
//! # What they must not do
//!
//! * **Call what may park**, or [`lock_os_thread`](crate::lock_os_thread): the goroutine is in the middle of a switch. Such a
//!   call ends the process, with a text that names the rule: a read or write of a descriptor always, other calls when they
//!   would have to wait. Calls that never park may be made, such as [`go`](crate::go), `try_send`, `try_lock` or
//!   [`Unparker::unpark`](crate::Unparker::unpark). A lock of std may be taken: it blocks the thread. [`register`] may be called,
//!   too; the switch that is under way keeps the pairs with which it has begun, and the new pair is called from the goroutine's
//!   next one on. Each call adds a pair for good, so have a function do that once, not at each switch.
//! * **Unwind**: the wait is published by then, or over. A panic in a function ends the process too, after its message.
//! * Take long, or much stack: they run at each switch of each goroutine, on stacks of 64 KiB.
//!
//! # Cost
//!
//! Where no function is registered, a park or yield costs one comparison more. Where functions are, a goroutine takes a
//! slower way to its park, and pays for the functions.

// "It stays on its thread": a goroutine that calls `blocking` while others wait would go to another thread, but for the look at
// `has_switch_hooks` in `wants_p_of` (`sched/threads/callers.rs`).

use crate::host::Active;
use crate::sched::switch;

/// Registers two functions for all goroutines of all runtimes of the process, for good: `suspend` is called before a goroutine
/// leaves its thread, and `resume` when it is back. Never blocks, and may be called anywhere, also in a function that is
/// registered: see [the module](self#what-they-must-not-do).
///
/// Of several pairs the one that was registered last is the first to suspend and the last to resume, as guards are dropped in
/// the opposite order. A goroutine that has been suspended without a pair is resumed without that pair.
///
/// ```
/// use std::cell::Cell;
///
/// thread_local! {
///     /// What some library keeps for the thread, and what is a request's here.
///     static REQUEST: Cell<u32> = const { Cell::new(0) };
/// }
/// gmp::local! {
///     static PUT_BY: Cell<u32> = Cell::new(0);
/// }
///
/// gmp::hooks::register(|| PUT_BY.set(REQUEST.take()), || REQUEST.set(PUT_BY.take()));
///
/// // SAFETY: what is kept there goes with the goroutine, by the functions above.
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
