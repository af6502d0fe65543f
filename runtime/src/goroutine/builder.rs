//! [`Builder`]: goroutines with properties that `go` does not set. The methods for the place are in `verbs.rs`, those for the
//! class in `priority.rs`; `go_abortable` is in `abort.rs`.

use super::scope::{Scope, ScopedJoinHandle};
use super::{FROM_A_THREAD, JoinHandle, here};
use crate::g::{Birth, Name};
use crate::host::Active;
use crate::runtime::Handle;
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::run::place::Place;
use crate::sync::{ErrGroup, WaitGroup};
use std::io;
use std::panic::Location;

/// A goroutine with a name, or with a stack of its own size. A function that wraps [`go`](Self::go) should be
/// `#[track_caller]`: otherwise dumps and panics name that function as the place of each spawn.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let name = unsafe {
///     gmp::run(|| {
///         let parser = gmp::Builder::new().name("parser").stack_size(1 << 20);
///         let named = parser.go(|| gmp::current().and_then(|g| g.name().map(str::to_owned)))?;
///         Ok::<_, std::io::Error>(named.join().unwrap())
///     })
/// };
/// assert_eq!(name.unwrap().as_deref(), Some("parser"));
/// ```
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let worker = gmp::Builder::new().name("digits").stack_size(256 << 10).go(|| {
///             gmp::current().and_then(|goroutine| goroutine.name().map(str::to_owned))
///         });
///         let name = worker.expect("there is room for a stack").join().unwrap();
///         assert_eq!(name.as_deref(), Some("digits"));
///     })
/// }
/// ```
#[must_use = "nothing starts before `go`"]
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<Name>,
    stack_size: Option<usize>,
    pub(super) place: Place,
    pub(super) class: Priority,
}

impl Builder {
    /// Returns a builder of goroutines without a name, with the runtime's stack size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name, for panic messages and dumps.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Some(Name::new(name.as_ref().into()));
        self
    }

    /// Sets the bytes of stack, rounded up to a power of two; at least 16 KiB, at most 64 MiB. The lowest page belongs to the
    /// guard; a page takes memory once touched. A stack does not grow: an overflow is reported, and ends the process by
    /// SIGABRT.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts the goroutine, as [`go`](crate::go) does.
    ///
    /// A goroutine that was accepted has its stack reserved. If the kernel has no memory for the stack's guard when the
    /// goroutine is to begin, or, with the [`generator` backend](crate::migration#the-generator-backend), for the stack, the
    /// goroutine waits until there is memory, however long: see [`Refused::stacks`](crate::Refused::stacks).
    ///
    /// # Errors
    /// `InvalidInput` when the stack size is out of range, or `f` or its value is too large for it. When the goroutine can get
    /// no stack, with the text of [`go`](crate::go)'s panic: `QuotaExceeded` at
    /// [`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes), `OutOfMemory` if the kernel refuses.
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let sched = here("Builder::go", FROM_A_THREAD);
        spawn_in(sched, self, Location::caller(), f)
    }

    /// Starts the goroutine in the runtime of `handle`, from any thread. Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let handle = runtime.handle();
    /// let name = || gmp::current().and_then(|goroutine| goroutine.name().map(str::to_owned));
    /// // On a plain thread.
    /// let worker = gmp::Builder::new().name("worker").stack_size(256 << 10).go_in(&handle, name)?;
    /// assert_eq!(worker.join().unwrap().as_deref(), Some("worker"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the runtime has begun to end; otherwise as [`go`](Self::go).
    #[track_caller]
    pub fn go_in<F, T>(self, handle: &Handle, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        spawn_in(&*handle.sched("Builder::go_in")?, self, site, f)
    }

    /// Starts the goroutine as a task of a wait group, as [`WaitGroup::go`] does, but returns an error if there is no stack: a
    /// server that counts its connections can go on. Does not block.
    ///
    /// ```
    /// use gmp::sync::WaitGroup;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let requests = WaitGroup::new();
    ///         for number in 0..3 {
    ///             let request = gmp::Builder::new().name(format!("request {number}"));
    ///             if let Err(refused) = request.go_counted(&requests, move || println!("{number} is served")) {
    ///                 eprintln!("{number} is not served: {refused}");
    ///             }
    ///         }
    ///         requests.wait();
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`go`](Self::go). The group's count is then as before, and `f` was dropped.
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go_counted<F>(self, tasks: &WaitGroup, f: F) -> io::Result<()>
    where
        F: FnOnce() + Send + 'static,
    {
        let sched = here("Builder::go_counted", FROM_A_THREAD);
        spawn_in(sched, self, Location::caller(), tasks.counted(f)).map(drop)
    }

    /// Starts the goroutine as a task of an error group, as [`ErrGroup::go`] does. Blocks the calling goroutine while the
    /// group's limit is reached.
    ///
    /// ```
    /// use gmp::{Builder, Priority, sync::ErrGroup};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let pages = ErrGroup::new();
    ///         for number in 0..3 {
    ///             let page = Builder::new().name(format!("page {number}")).priority(Priority::Low);
    ///             page.go_grouped(&pages, move || if number < 2 { Ok(()) } else { Err("no such page") })?;
    ///         }
    ///         assert_eq!(pages.wait(), Err("no such page"));
    ///         Ok::<_, std::io::Error>(())
    ///     })
    /// }
    /// # .unwrap();
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`go`](Self::go). The group is then as before, and `f` was dropped.
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go_grouped<F, E>(self, group: &ErrGroup<E>, f: F) -> io::Result<()>
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Send + 'static,
    {
        let sched = here("Builder::go_grouped", FROM_A_THREAD);
        let (birth, place) = self.asks(sched, Location::caller())?;
        group.go_at(sched, birth, place, f)
    }

    /// Returns the goroutine's properties and its place.
    #[inline(always)]
    fn asks(self, sched: &Sched<Active>, site: &'static Location<'static>) -> io::Result<(Birth, Place)> {
        let stack_size = match self.stack_size {
            Some(bytes) => crate::runtime::check_stack_size(bytes)?,
            None => sched.config.stack_size,
        };
        let place = if self.class == Priority::Normal { self.place } else { line_of(self.class) };
        Ok((Birth { name: self.name, stack_size, site }, place))
    }

    /// Starts the goroutine in a scope, where it may borrow, as [`Scope::go`] does. Does not block.
    ///
    /// ```
    /// use gmp::{Builder, Priority};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let words = ["one", "three"];
    ///         let lengths = gmp::scope(|scope| {
    ///             let counts = Builder::new().name("counter").priority(Priority::Low);
    ///             counts.go_scoped(scope, || words.map(str::len)).expect("there is room for a stack").join().unwrap()
    ///         });
    ///         assert_eq!(lengths, [3, 5]);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the runtime of the scope has ended, which a plain thread that was handed the scope may find;
    /// otherwise as [`go`](Self::go). In each case `f` was dropped.
    #[track_caller]
    pub fn go_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.start(self, Location::caller(), f)
    }
}

/// Starts a goroutine of `sched` as its builder says, or says which limit was met.
pub(crate) fn spawn_in<F, T>(
    sched: &Sched<Active>,
    asked: Builder,
    site: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: `f` borrows nothing that ends.
    unsafe { spawn_in_unchecked(sched, asked, site, f) }
}

/// As `spawn_in`.
///
/// # Safety
/// What `f` and `T` borrow outlives the goroutine and the handle.
pub(crate) unsafe fn spawn_in_unchecked<F, T>(
    sched: &Sched<Active>,
    asked: Builder,
    site: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let (birth, place) = asked.asks(sched, site)?;
    // SAFETY: by this function's contract.
    unsafe { sched.spawn_at(birth, place, f) }.map(JoinHandle::of)
}

/// Out of line: if the compiler sees both places, it selects each of their parts separately and reassembles the place.
#[cold]
#[inline(never)]
fn line_of(class: Priority) -> Place {
    Place::Line(class)
}
