//! Variables of which each goroutine has its own: [`local!`](crate::local!), [`Local`].
//!
//! A goroutine goes from thread to thread, so a `thread_local!` of std is not the goroutine's own, and a reference to it must
//! not be kept across a call that parks. A [`Local`] is the goroutine's own: the value lies on the heap, found through the G.
//!
//! ```text
//!   first access:  make the initial value (user code) · note it in the G's list, by the address of the static
//!   end:           make the result · drop it, if the handle is gone (user code) · last value first: mark it as gone, drop it
//!                  (user code), until none is left · publish the result
//! ```
//! The list is the goroutine's own. No borrow of the list is alive while user code runs, since that code may come back here.

use crate::host::Active;
use crate::impls::{error, opaque};
use crate::m::M;
use crate::prim::Arc;
use crate::wait::waker_cell::WakerCell;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::thread::LocalKey;

/// Declares variables of which each goroutine has its own, with the syntax of [`std::thread_local!`].
///
/// ```
/// use std::cell::{Cell, RefCell};
///
/// gmp::local! {
///     static DEPTH: Cell<u32> = Cell::new(0);
///     /// The request that the goroutine works for.
///     pub static NAME: RefCell<String> = RefCell::new("nobody".to_owned());
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         DEPTH.set(7);
///         let other = gmp::go(|| DEPTH.replace(1));
///         assert_eq!(other.join().unwrap(), 0);
///         assert_eq!(DEPTH.get(), 7);
///         NAME.with_borrow_mut(|name| name.push_str(" yet"));
///         assert_eq!(NAME.take(), "nobody yet");
///     })
/// }
/// ```
#[macro_export]
macro_rules! local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $of:ty = $init:expr; $($rest:tt)*) => {
        $crate::local!($(#[$attr])* $vis static $name: $of = $init);
        $crate::local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $of:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::local::Local<$of> = {
            fn __gmp_local_init() -> $of {
                $init
            }
            ::std::thread_local! {
                static __GMP_LOCAL_THREAD: $of = __gmp_local_init();
            }
            $crate::local::Local::__new(__gmp_local_init, __GMP_LOCAL_THREAD)
        };
    };
}

/// A variable of which each goroutine has its own; declared by [`local!`](crate::local!).
///
/// A variable is initialised at the goroutine's first access, and dropped on the goroutine's stack when the goroutine ends,
/// however it ends, before the result can be joined. The variable that was initialised last is dropped first. If the handle is
/// gone by then, the result of the goroutine is dropped before the variables, and may use them; if the handle is dropped at
/// that moment, the result is dropped after the variables, and an access to them fails. A `drop` may use other variables: an
/// access to a variable that is gone fails, and a variable that was not used before is initialised and dropped next. A panic of
/// a `drop` is printed and ends there. Nothing is dropped in a goroutine that its runtime leaves behind.
///
/// On a plain thread a `Local` is a thread-local variable, of that thread. A goroutine that uses none pays nothing; an
/// access goes through the list of the variables that the goroutine uses.
///
/// ```
/// use std::cell::Cell;
///
/// gmp::local! {
///     static REQUEST: Cell<u32> = Cell::new(0);
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         REQUEST.set(7);
///         // On whatever thread the goroutine resumes.
///         gmp::yield_now();
///         assert_eq!(REQUEST.get(), 7);
///         assert_eq!(gmp::go(|| REQUEST.get()).join().unwrap(), 0);
///     })
/// }
/// ```
pub struct Local<T: 'static> {
    init: fn() -> T,
    thread: LocalKey<T>,
}

/// The error of an access to a variable that was dropped already, because the goroutine or thread ends.
///
/// ```
/// use std::cell::Cell;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// static REFUSED: AtomicBool = AtomicBool::new(false);
/// gmp::local! {
///     static ITEM: Item = Item;
/// }
/// struct Item;
/// impl Drop for Item {
///     fn drop(&mut self) {
///         REFUSED.store(ITEM.try_with(|_| ()).is_err(), Ordering::Relaxed);
///     }
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| gmp::go(|| ITEM.with(|_| ())).join().unwrap());
/// }
/// assert!(REFUSED.load(Ordering::Relaxed));
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AccessError;

error!(AccessError, AccessError => "a local variable was used after it was dropped";);

impl<T: 'static> Local<T> {
    #[doc(hidden)]
    pub const fn __new(init: fn() -> T, thread: LocalKey<T>) -> Self {
        Local { init, thread }
    }

    /// Calls `f` with the caller's own value, which is initialised first if necessary. Does not block, unless `f` does.
    ///
    /// # Panics
    /// When the value was dropped already, because the goroutine or thread ends.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(value) => value,
            Err(gone) => panic!("with: {gone}"),
        }
    }

    /// As [`with`](Self::with), but returns an error instead of a panic.
    ///
    /// # Errors
    /// An [`AccessError`] when the value was dropped already.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        match M::<Active>::current().and_then(M::g) {
            None => self.thread.try_with(f).map_err(|_| AccessError),
            Some(g) => {
                let value = self.find(g.locals())?;
                // SAFETY: a value is not moved until the goroutine, which runs this, ends.
                Ok(f(unsafe { &*value }))
            }
        }
    }

    /// Calls `f` with the caller's own value if there is one; returns `None` if the value was not initialised, or was dropped
    /// already. For code that asks often and seldom finds a value, such as the functions of [`hooks`](crate::hooks). On a plain
    /// thread the value is initialised.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// gmp::local! { static USED: Cell<u32> = Cell::new(0); }
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         assert_eq!(USED.peek(Cell::get), None);
    ///         USED.set(1);
    ///         assert_eq!(USED.peek(Cell::get), Some(1));
    ///     })
    /// }
    /// ```
    pub fn peek<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        match M::<Active>::current().and_then(M::g).map(|g| g.locals().look((&raw const *self).cast())) {
            None => self.thread.try_with(f).ok(),
            // SAFETY: as in `try_with`.
            Some(Slot::Alive(value)) => Some(f(unsafe { &*value.cast::<T>() })),
            Some(Slot::Gone | Slot::Absent) => None,
        }
    }

    fn find(&'static self, locals: &Locals) -> Result<*const T, AccessError> {
        let key: *const () = (&raw const *self).cast();
        match locals.look(key) {
            Slot::Alive(value) => Ok(value.cast()),
            Slot::Gone => Err(AccessError),
            Slot::Absent => self.init(key, locals),
        }
    }

    #[cold]
    fn init(&'static self, key: *const (), locals: &Locals) -> Result<*const T, AccessError> {
        let value = Box::new((self.init)());
        // The initialisation may have used the same variable.
        match locals.look(key) {
            Slot::Alive(first) => Ok(first.cast()),
            Slot::Gone => Err(AccessError),
            Slot::Absent => {
                let value: *mut T = Box::into_raw(value);
                locals.add(Entry { key, value: value.cast(), drop: drop_box::<T> });
                Ok(value)
            }
        }
    }
}

/// # Safety
/// `value` came from a `Box<T>`, and the caller owns it.
unsafe fn drop_box<T>(value: *mut ()) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

impl<T: 'static> Local<Cell<T>> {
    /// Sets the caller's own value.
    ///
    /// # Panics
    /// As [`with`](Self::with); so do all the following.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Returns a copy of the caller's own value.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the caller's own value, and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Takes the caller's own value, and leaves `value`.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> Local<RefCell<T>> {
    /// Calls `f` with the caller's own value.
    ///
    /// # Panics
    /// When the value is borrowed mutably, and as [`with`](Self::with). The same holds for the following functions; those that
    /// change the value also panic when it is borrowed immutably.
    #[track_caller]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with the caller's own value, mutably.
    #[track_caller]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the caller's own value.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        drop(self.replace(value));
    }

    /// Takes the caller's own value, and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Takes the caller's own value, and leaves `value`.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

opaque!([T: 'static] Local<T>);

/// Drops the box of a value, by the value's type.
type DropValue = unsafe fn(*mut ());

/// One variable of a goroutine.
struct Entry {
    /// The address of the static.
    key: *const (),
    /// Null when the value is gone.
    value: *mut (),
    drop: DropValue,
}

enum Slot {
    Alive(*mut ()),
    Gone,
    Absent,
}

/// The data that a goroutine keeps on the heap for itself.
#[derive(Default)]
struct List {
    /// In the order in which they were initialised.
    entries: Vec<Entry>,
    /// The cell that the last `block_on` used.
    waker_cell: Option<Arc<WakerCell<Active>>>,
}

/// The variables of one goroutine, and what its `block_on` keeps. Used by the goroutine alone.
pub(crate) struct Locals(Cell<*mut List>);

impl Locals {
    pub(crate) const fn new() -> Self {
        Locals(Cell::new(ptr::null_mut()))
    }

    fn look(&self, key: *const ()) -> Slot {
        // SAFETY: `list` made the list and only `free` frees it; no other reference to the list is alive.
        let Some(list) = (unsafe { self.0.get().as_ref() }) else { return Slot::Absent };
        match list.entries.iter().find(|entry| entry.key == key) {
            None => Slot::Absent,
            Some(entry) if entry.value.is_null() => Slot::Gone,
            Some(entry) => Slot::Alive(entry.value),
        }
    }

    fn add(&self, entry: Entry) {
        // SAFETY: as in `look`.
        unsafe { &mut *self.list() }.entries.push(entry);
    }

    /// Returns the list, which is made at the first call.
    fn list(&self) -> *mut List {
        if self.0.get().is_null() {
            self.0.set(Box::into_raw(Box::default()));
        }
        self.0.get()
    }

    /// Takes the cell that the last `block_on` has left.
    #[inline]
    pub(crate) fn take_waker_cell(&self) -> Option<Arc<WakerCell<Active>>> {
        // SAFETY: as in `look`.
        unsafe { self.0.get().as_mut() }?.waker_cell.take()
    }

    /// Keeps a cell for the next `block_on`.
    #[inline]
    pub(crate) fn keep_waker_cell(&self, cell: Arc<WakerCell<Active>>) {
        // SAFETY: as in `look`.
        match unsafe { self.0.get().as_mut() } {
            // Most often `take_waker_cell` has left `None`: overwritten and forgotten, so no drop glue checks the old value.
            Some(list) if list.waker_cell.is_none() => std::mem::forget(list.waker_cell.replace(cell)),
            _ => self.keep_another_waker_cell(cell),
        }
    }

    /// Keeps the goroutine's first cell, or that of a nested call: only one is kept.
    #[cold]
    #[inline(never)]
    fn keep_another_waker_cell(&self, cell: Arc<WakerCell<Active>>) {
        // SAFETY: as in `look`. The drop of a cell runs no user code.
        unsafe { &mut *self.list() }.waker_cell = Some(cell);
    }

    /// Drops all values, each inside a call of `quietly`. They count as gone from then on.
    pub(crate) fn drop_all(&self, quietly: impl Fn(&mut dyn FnMut())) {
        let last = || {
            // SAFETY: as in `look`; the pointer is read again each time, as a drop may have made the list.
            unsafe { self.0.get().as_mut() }.and_then(|list| Self::last(&mut list.entries))
        };
        while let Some((value, drop)) = last() {
            // SAFETY: the entry has let go of the value. `drop` is for the value's type.
            quietly(&mut || unsafe { drop(value) });
        }
    }

    /// Frees the list, with the cell of `block_on`. The goroutine no longer runs user code, and all values were dropped.
    pub(crate) fn free(&self) {
        let list = self.0.replace(ptr::null_mut());
        if !list.is_null() {
            // SAFETY: `list` made the list from a box, and this call has taken the one pointer.
            drop(unsafe { Box::from_raw(list) });
        }
    }

    fn last(list: &mut [Entry]) -> Option<(*mut (), DropValue)> {
        let entry = list.iter_mut().rfind(|entry| !entry.value.is_null())?;
        Some((std::mem::replace(&mut entry.value, ptr::null_mut()), entry.drop))
    }
}
