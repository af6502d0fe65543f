//! Goroutine-local variables: each goroutine has its own, wherever it runs, and drops it before its result is seen.

use common::{everywhere, until};
use gmp::{go, goexit, yield_now};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

static MADE: AtomicUsize = AtomicUsize::new(0);

fn made() -> Cell<u32> {
    MADE.fetch_add(1, SeqCst);
    Cell::new(1)
}

gmp::local! {
    static DEPTH: Cell<u32> = Cell::new(0);
    /// With a documentation.
    pub static NAME: RefCell<String> = const { RefCell::new(String::new()) };
    pub(crate) static COUNTED: Cell<u32> = made()
}

gmp::local! {}

/// Fails if two goroutines share a variable, or if a goroutine finds another's variable after it has moved to another thread.
#[test]
fn each_goroutine_has_its_own_on_whatever_thread() {
    everywhere(|rt| {
        DEPTH.set(77);
        rt.run(|| {
            let all: Vec<_> = (0..200_u32)
                .map(|n| {
                    go(move || {
                        assert_eq!(DEPTH.get(), 0, "as it was initialised");
                        for turn in 0..20 {
                            DEPTH.set(n + turn);
                            NAME.with_borrow_mut(|name| *name = format!("{n}"));
                            yield_now();
                            assert_eq!(DEPTH.get(), n + turn);
                            NAME.with_borrow(|name| assert_eq!(*name, n.to_string()));
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        assert_eq!(DEPTH.get(), 77, "this thread's");
        assert_eq!(thread::spawn(|| DEPTH.replace(1)).join().unwrap(), 0);
    });
}

#[test]
fn what_cells_offer_is_offered() {
    let property = || {
        assert_eq!((DEPTH.replace(3), DEPTH.take(), DEPTH.get()), (0, 3, 0));
        NAME.set("a".to_owned());
        assert_eq!(NAME.replace("b".to_owned()), "a");
        assert_eq!(NAME.take(), "b");
        assert_eq!(NAME.with(|name| name.borrow().len()), 0);
        assert_eq!(DEPTH.try_with(Cell::get), Ok(0));
        // The goroutine parks inside of `with`.
        DEPTH.with(|depth| {
            depth.set(9);
            yield_now();
            assert_eq!(depth.get(), 9);
        });
        DEPTH.set(0);
    };
    everywhere(|rt| rt.run(property));
    thread::spawn(property).join().unwrap();
}

/// Fails if a goroutine that uses a variable twice makes it twice, or one that does not use it makes it.
#[test]
fn a_variable_is_made_at_its_first_use() {
    everywhere(|rt| {
        rt.run(|| {
            let before = MADE.load(SeqCst);
            go(|| DEPTH.set(1)).join().unwrap();
            assert_eq!(MADE.load(SeqCst), before);
            go(|| (COUNTED.set(5), COUNTED.get())).join().unwrap();
            assert_eq!(MADE.load(SeqCst), before + 1);
        });
    });
}

/// A value that is counted as it is dropped.
struct Nested(Cell<u32>);

static NESTED_DROPS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED_DROPS.fetch_add(1, SeqCst);
    }
}

/// Uses the variable that it is to initialise.
fn nested() -> Nested {
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    if !INSIDE.replace(true) {
        NESTED.with(|value| value.0.set(3));
        INSIDE.set(false);
    }
    Nested(Cell::new(1))
}

gmp::local! {
    static NESTED: Nested = nested();
}

/// Fails by a second value, which one caller finds, and no call after it.
#[test]
fn a_variable_that_its_own_initial_value_uses_is_made_once() {
    everywhere(|rt| {
        rt.run(|| {
            let before = NESTED_DROPS.load(SeqCst);
            let seen = go(|| [(); 2].map(|()| NESTED.with(|value| value.0.get())));
            assert_eq!(seen.join().unwrap(), [3, 3]);
            assert_eq!(
                NESTED_DROPS.load(SeqCst),
                before + 2,
                "the one that was kept, and the one in its place"
            );
        });
    });
}

type Log = Arc<Mutex<Vec<&'static str>>>;

/// Says its name when it is dropped, and then calls the function, which may use other variables.
struct Says(&'static str, Log, fn());

impl Drop for Says {
    fn drop(&mut self) {
        assert!(gmp::current().is_some(), "on its goroutine");
        yield_now();
        self.1.lock().unwrap().push(self.0);
        (self.2)();
    }
}

gmp::local! {
    static FIRST: RefCell<Option<Says>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<Says>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Says>> = const { RefCell::new(None) };
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

fn fill(log: &Log) {
    LOG.set(Some(Arc::clone(log)));
    FIRST.set(Some(Says("first", Arc::clone(log), || ())));
    SECOND.set(Some(Says("second", Arc::clone(log), || {
        // The second variable is gone, the late one is not made yet, and the first is still there.
        assert!(SECOND.try_with(|_| ()).is_err());
        let log = LOG.with_borrow(|log| log.clone().unwrap());
        LATE.set(Some(Says("late", log, || assert!(catch_unwind(|| SECOND.with(|_| ())).is_err()))));
        assert!(FIRST.with_borrow(Option::is_some));
    })));
}

/// Fails if a variable outlives its goroutine's result, or is not dropped in one of the ways in which a goroutine ends.
#[test]
fn variables_are_dropped_before_the_result_is_seen_however_the_goroutine_ends() {
    everywhere(|rt| {
        rt.run(|| {
            let ends: [fn(); 4] = [
                || (),
                || std::panic::resume_unwind(Box::new(1)),
                || goexit(),
                || drop(catch_unwind(AssertUnwindSafe(|| goexit()))),
            ];
            for end in ends {
                let log = Log::default();
                let theirs = Arc::clone(&log);
                let ended = go(move || {
                    fill(&theirs);
                    end();
                });
                until(|| ended.is_finished());
                assert_eq!(*log.lock().unwrap(), ["second", "late", "first"]);
                assert_eq!(Arc::strong_count(&log), 1);
                drop(ended.join());
            }
        });
    });
}

/// Uses a variable when it is dropped.
struct UsesOne(Log);

impl Drop for UsesOne {
    fn drop(&mut self) {
        FIRST.set(Some(Says("of the value", Arc::clone(&self.0), || ())));
    }
}

/// Fails by a leak when the value of a detached goroutine, which is dropped after the variables, makes a variable anew.
#[test]
fn a_detached_value_may_use_variables() {
    everywhere(|rt| {
        let log = Log::default();
        let theirs = Arc::clone(&log);
        drop(rt.go(move || {
            until(|| Arc::strong_count(&theirs) == 1);
            let log = Arc::clone(&theirs);
            drop(theirs);
            UsesOne(log)
        }));
        let weak = Arc::downgrade(&log);
        drop(log);
        until(|| rt.num_goroutines() == 0);
        assert!(weak.upgrade().is_none());
    });
}

/// Tells what its goroutine's variable holds as it is dropped.
struct Reads(Arc<AtomicUsize>);

impl Drop for Reads {
    fn drop(&mut self) {
        let value = DEPTH.try_with(Cell::get).unwrap_or(99);
        self.0.store(value as usize, SeqCst);
    }
}

/// Fails if the value of a detached goroutine, or the payload of an unreported panic, finds variables that were made anew after
/// those of its goroutine were dropped.
#[test]
fn a_detached_value_finds_the_variables_of_its_goroutine() {
    everywhere(|rt| {
        for panics in [false, true] {
            let found = Arc::new(AtomicUsize::new(0));
            let (gate, theirs) = (Arc::new(()), Arc::clone(&found));
            let held = Arc::clone(&gate);
            drop(rt.go(move || {
                // Waits until the handle is gone.
                until(|| Arc::strong_count(&held) == 1);
                DEPTH.set(7);
                let reads = Reads(theirs);
                if panics {
                    std::panic::resume_unwind(Box::new(reads));
                }
                reads
            }));
            drop(gate);
            until(|| rt.num_goroutines() == 0);
            assert_eq!(found.load(SeqCst), 7);
        }
    });
}

struct Unwilling(Arc<AtomicUsize>);

impl Drop for Unwilling {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        std::panic::resume_unwind(Box::new("unwilling"));
    }
}

gmp::local! {
    static UNWILLING: RefCell<Option<Unwilling>> = const { RefCell::new(None) };
    static OTHER: RefCell<Option<Arc<()>>> = const { RefCell::new(None) };
}

/// Fails if a panic of one variable's drop reaches the scheduler, changes the result, or prevents the drop of another variable.
#[test]
fn a_panic_in_the_drop_of_a_variable_ends_there() {
    everywhere(|rt| {
        let (drops, other) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let (its, kept) = (Arc::clone(&drops), Arc::clone(&other));
        let value = rt.go(move || {
            OTHER.set(Some(kept));
            UNWILLING.set(Some(Unwilling(its)));
            5
        });
        assert_eq!(value.join().unwrap(), 5);
        assert_eq!((drops.load(SeqCst), Arc::strong_count(&other)), (1, 1));
    });
}
