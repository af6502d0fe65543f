//! A goroutine's closure before the run and its outcome after, in one small space of the G.
//!
//! A closure or a result that fits in [`SPACE`] bytes lies in the G itself; a larger one lies in a box of its own. The types
//! are erased: the G keeps a table of four functions.
//!
//! The space goes through Empty → Closure → (running: Empty) → Outcome → Empty. The goroutine's life (`g/mod.rs`) determines
//! which party may touch the space: the spawner until the G is queued, the goroutine during the run, then the party that has
//! the right to the outcome.

use crate::prim::UnsafeCell;
use std::any::Any;
use std::cell::Cell;
use std::mem::MaybeUninit;

/// Bytes of the inline space.
pub(crate) const SPACE: usize = 48;

/// Why a goroutine has no value.
pub(crate) enum Failure {
    /// The goroutine panicked with this payload.
    Panic(Box<dyn Any + Send>),
    /// The goroutine called `goexit`.
    Goexit,
    /// The runtime ended first.
    Shutdown,
    /// The goroutine was aborted.
    Aborted,
    /// A join with a limit has taken the outcome.
    Taken,
}

/// The payload by which an aborted goroutine unwinds, out of its closure.
pub(crate) struct Aborted;

/// How a goroutine ended.
pub(crate) type Outcome<T> = Result<T, Failure>;

#[repr(C, align(8))]
struct Space(MaybeUninit<[u8; SPACE]>);

struct Table {
    /// Moves the closure out, runs it, and stores the value. May unwind, and then stores nothing.
    run: unsafe fn(&Task),
    /// Drops a closure that never ran.
    discard: unsafe fn(&Task),
    /// Stores a failure.
    fail: unsafe fn(&Task, Failure),
    /// Drops the outcome.
    forget: unsafe fn(&Task),
    /// `forget` has something to drop if there is a value.
    drops: bool,
}

/// The space of one G. No method synchronises: see the module's header.
pub(crate) struct Task {
    space: UnsafeCell<Space>,
    table: Cell<Option<&'static Table>>,
}

struct Typed<F, T>(std::marker::PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Typed<F, T> {
    const TABLE: Table = Table {
        run: Self::run,
        discard: Self::discard,
        fail: Self::fail,
        forget: Self::forget,
        drops: std::mem::needs_drop::<T>() || !Task::fits::<Outcome<T>>(),
    };

    /// # Safety
    /// The space holds an `F`.
    unsafe fn run(task: &Task) {
        // SAFETY: by this function's contract; the closure is moved out, and the space is empty from here on.
        let closure = unsafe { task.take::<F>() };
        let value = closure();
        // SAFETY: the space is empty, and the goroutine that runs owns it.
        unsafe { task.put::<Outcome<T>>(Ok(value)) };
    }
    /// # Safety
    /// The space holds an `F`.
    unsafe fn discard(task: &Task) {
        // SAFETY: by this function's contract.
        drop(unsafe { task.take::<F>() });
    }
    /// # Safety
    /// The space is empty.
    unsafe fn fail(task: &Task, failure: Failure) {
        // SAFETY: by this function's contract.
        unsafe { task.put::<Outcome<T>>(Err(failure)) };
    }
    /// # Safety
    /// The space holds an `Outcome<T>`.
    unsafe fn forget(task: &Task) {
        // SAFETY: by this function's contract.
        drop(unsafe { task.take::<Outcome<T>>() });
    }
}

impl Task {
    pub(crate) fn new() -> Self {
        Task { space: UnsafeCell::new(Space(MaybeUninit::uninit())), table: Cell::new(None) }
    }

    const fn fits<V>() -> bool {
        size_of::<V>() <= SPACE && align_of::<V>() <= align_of::<Space>()
    }

    /// # Safety
    /// The caller owns the space, which is empty.
    unsafe fn put<V>(&self, value: V) {
        self.space.with_mut(|space| {
            if Self::fits::<V>() {
                // SAFETY: the caller owns the space; size and alignment were checked.
                unsafe { space.cast::<V>().write(value) };
            } else {
                // SAFETY: the caller owns the space, and a thin pointer fits into it.
                unsafe { space.cast::<*mut V>().write(Box::into_raw(Box::new(value))) };
            }
        });
    }

    /// # Safety
    /// The caller owns the space, and `put::<V>` filled it.
    unsafe fn take<V>(&self) -> V {
        self.space.with_mut(|space| {
            if Self::fits::<V>() {
                // SAFETY: `put` stored a `V` here; the caller does not read the space again.
                unsafe { space.cast::<V>().read() }
            } else {
                // SAFETY: `put` stored the pointer of a box here, which this call takes over.
                unsafe { *Box::from_raw(space.cast::<*mut V>().read()) }
            }
        })
    }

    /// Stores the closure that the goroutine will run.
    ///
    /// # Safety
    /// The caller has just taken the G out of the pool. What `closure` borrows outlives the goroutine.
    pub(crate) unsafe fn load<F: FnOnce() -> T, T>(&self, closure: F) {
        self.table.set(Some(&Typed::<F, T>::TABLE));
        // SAFETY: a G out of the pool has an empty space, and the caller alone has a pointer to it.
        unsafe { self.put(closure) };
    }

    fn table(&self) -> &'static Table {
        self.table.get().expect("task: the G holds no goroutine")
    }

    /// Runs the closure and stores the value; unwinds when the closure does.
    ///
    /// # Safety
    /// Called once, on the goroutine.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the spawner stored the closure, and this, the only call, takes it first.
        unsafe { (self.table().run)(self) }
    }

    /// Drops the closure of a goroutine that never ran.
    ///
    /// # Safety
    /// The goroutine never ran and never will.
    pub(crate) unsafe fn discard(&self) {
        // SAFETY: as in `run`.
        unsafe { (self.table().discard)(self) }
    }

    /// Stores why there is no value.
    ///
    /// # Safety
    /// The caller owns the space, which is empty.
    pub(crate) unsafe fn fail(&self, failure: Failure) {
        // SAFETY: by this function's contract.
        unsafe { (self.table().fail)(self, failure) }
    }

    /// Returns `true` if a value that is not taken needs a drop.
    pub(crate) fn value_is_to_be_dropped(&self) -> bool {
        self.table().drops
    }

    /// Drops the outcome.
    ///
    /// # Safety
    /// The caller has the right to the outcome, which was not taken yet.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: by this function's contract.
        unsafe { (self.table().forget)(self) }
    }

    /// Takes the outcome.
    ///
    /// # Safety
    /// As `forget`, and `T` is the type that the goroutine was spawned with.
    pub(crate) unsafe fn outcome<T>(&self) -> Outcome<T> {
        // SAFETY: `run` or `fail` stored an `Outcome<T>`.
        unsafe { self.take::<Outcome<T>>() }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn round<F: FnOnce() -> T, T>(closure: F) -> T {
        let task = Task::new();
        // SAFETY: one thread, in the order of the states.
        unsafe {
            task.load(closure);
            task.run();
            match task.outcome::<T>() {
                Ok(value) => value,
                Err(_) => panic!("a value was stored"),
            }
        }
    }

    #[test]
    fn small_and_large_closures_and_values_come_back() {
        assert_eq!(round(|| 7_u8), 7);
        round(|| ());
        let big = [3_u64; 100];
        assert_eq!(round(move || big), [3_u64; 100]);
        #[derive(Debug, PartialEq, Copy, Clone)]
        #[repr(align(64))]
        struct Wide(u8);
        let wide = Wide(9);
        assert_eq!(round(move || wide), wide);
    }

    /// Fails if a closure or an outcome leaks or is dropped twice.
    #[test]
    fn what_nobody_takes_is_dropped_once() {
        let seen = Arc::new(());
        for pad in [0_usize, 200] {
            let task = Task::new();
            let (inside, filler) = (Arc::clone(&seen), vec![0_u8; pad]);
            // SAFETY: one thread, in the order of the states.
            unsafe {
                task.load(move || (inside, filler));
                task.discard();
            }
            assert_eq!(Arc::strong_count(&seen), 1);
            let (inside, filler) = (Arc::clone(&seen), [0_u8; 200]);
            // SAFETY: one thread, in the order of the states; the space is empty again.
            unsafe {
                task.load(move || (inside, filler));
                task.run();
                assert_eq!(Arc::strong_count(&seen), 2);
                task.forget();
            }
            assert_eq!(Arc::strong_count(&seen), 1);
        }
    }

    #[test]
    fn a_closure_that_unwinds_leaves_the_space_empty_for_the_failure() {
        let task = Task::new();
        // SAFETY: one thread, in the order of the states.
        unsafe {
            task.load(|| -> u32 { std::panic::resume_unwind(Box::new("payload")) });
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.run()));
            task.fail(Failure::Panic(caught.unwrap_err()));
            match task.outcome::<u32>() {
                Err(Failure::Panic(payload)) => assert_eq!(payload.downcast_ref::<&str>(), Some(&"payload")),
                _ => panic!("the failure was stored"),
            }
        }
    }
}
