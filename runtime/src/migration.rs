//! The contract under which a runtime is started: what code that runs in goroutines must not do.
//!
//! A goroutine may go on on another thread after every call that may park it. Rust has no trait for "my stack may
//! move to another thread", so the compiler can't check this, and starting a runtime ([`run`](crate::run),
//! [`RuntimeBuilder::build`](crate::RuntimeBuilder::build)) is `unsafe`. Whoever starts it promises the following
//! for all code that runs in it. Everything else is safe.
//!
//! # The contract
//!
//! Across a call that may park:
//!
//! 1. **Keep nothing that belongs to a thread**: no reference out of a `thread_local!`, no `!Send` guard or handle
//!    of a thread (a `std::sync::MutexGuard`, tokio's `EnterGuard`), nothing that shares state with a thread-local
//!    (`rand`'s `ThreadRng` is an `Rc` of one).
//! 2. **A function that uses a `thread_local!` itself does not also park.** The compiler may compute the
//!    thread-local's address once and use it on both sides of the park. Put the use into a function of its own,
//!    `#[inline(never)]`. This counts std's inlined uses.
//!
//! Fine, because nothing of a thread is kept across the park:
//!
//! ```
//! use std::cell::Cell;
//! thread_local! { static SEEN: Cell<u32> = const { Cell::new(0) } }
//!
//! #[inline(never)]
//! fn count() {
//!     SEEN.set(SEEN.get() + 1);
//! }
//!
//! // SAFETY: `count` uses the thread-local and does not park; the closure parks and does not use it.
//! unsafe {
//!     gmp::run(|| {
//!         for _ in 0..3 {
//!             count();
//!             gmp::yield_now();
//!         }
//!     })
//! }
//! ```
//!
//! Breaks the contract, because the same function uses the thread-local and parks. With optimisation the second
//! turn of the loop may push into the first thread's vector, while that thread does the same:
//!
//! ```no_run
//! use std::cell::RefCell;
//! thread_local! { static LOG: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) } }
//!
//! fn wrong() {
//!     loop {
//!         LOG.with(|log| log.borrow_mut().push(1));
//!         gmp::yield_now();
//!     }
//! }
//! ```
//!
//! # What may park
//!
//! [`yield_now`](crate::yield_now), [`JoinHandle::join`](crate::JoinHandle::join), [`Runtime::run`](crate::Runtime::run),
//! the return of [`blocking`](crate::blocking), [`Event::wait`](crate::sync::Event::wait), everything in
//! [`time`](crate::time), and the operations of [`net`](crate::net) that wait. [`go`](crate::go),
//! [`current`](crate::current), the notifications of an `Event`, dropping a `JoinHandle` and making sockets without
//! connecting them never park.
//!
//! # std's own thread-locals
//!
//! * `RandomState::new`, so `HashMap::new`: the keys lie in a thread-local. A loop that makes maps and parks
//!   belongs into two functions when it is compiled into a dynamic library; in an executable the same code was
//!   seen to be right.
//! * `std::thread::scope` with a park inside: its threads unpark the thread that opened the scope, which is not
//!   the one that the goroutine has gone on on.
//! * Printing a value whose `Display` parks: standard output is locked by the thread.
//! * `std::thread::panicking` counts per thread. A destructor that parks while its goroutine unwinds may go on on
//!   another thread, and both counts are wrong from then on: unrelated goroutines on the first thread see
//!   `panicking()`, and std's locks that they let go are not, or wrongly, poisoned. Do not park in a destructor that
//!   may run while its goroutine panics.
//!
//! Dynamic libraries (`cdylib`, `dylib`) are not promised at all: there the compiler computes addresses of
//! thread-locals more eagerly.
//!
//! # `panic = "abort"` and `fork`
//!
//! With `panic = "abort"` a goroutine's panic ends the process, as everywhere. After `fork` the child has one
//! thread and none of the runtime's: it may only `exec` or `_exit`.
