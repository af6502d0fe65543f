//! The members that play a test: goroutines, plain threads, or some of each. A property has to hold for all kinds.

use crate::{PROCS, runtime, watched, watched_telling};
use gmp::{JoinHandle, Runtime};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Goroutine,
    Thread,
}

/// The number of crews that `everyone` tries: threads alone, and three for each number of Ps.
pub const CREWS: usize = 1 + PROCS.len() * MIXES.len();
const MIXES: [[Who; 2]; 3] =
    [[Who::Goroutine, Who::Goroutine], [Who::Goroutine, Who::Thread], [Who::Thread, Who::Goroutine]];

/// The members of a test, which are of these two kinds in turn.
pub struct Crew<'a> {
    rt: Option<&'a Runtime>,
    kinds: [Who; 2],
    started: Cell<usize>,
}

/// Checks that the property holds for plain threads, for goroutines, and for both together, in a fresh runtime of each size. A
/// crew that hangs tells what its goroutines are doing.
#[track_caller]
pub fn everyone(property: impl Fn(&Crew<'_>)) {
    with_each_crew(&property);
}

/// Not generic: compiled once.
#[track_caller]
fn with_each_crew(property: &dyn Fn(&Crew<'_>)) {
    let threads = Crew { rt: None, kinds: [Who::Thread; 2], started: Cell::new(0) };
    watched(1, || property(&threads));
    for (procs, kinds) in PROCS.into_iter().flat_map(|procs| MIXES.map(|kinds| (procs, kinds))) {
        let rt = Arc::new(runtime(procs));
        let seen = Arc::downgrade(&rt);
        // The end of the runtime is watched, too.
        let tell = move || {
            let dump = seen.upgrade().map_or_else(|| "it was ending\n".to_owned(), |rt| rt.dump());
            format!("{kinds:?}: {dump}")
        };
        watched_telling(procs, tell, move || {
            let _tells = TellOnPanic(procs, kinds);
            property(&Crew { rt: Some(&rt), kinds, started: Cell::new(0) });
        });
    }
}

/// Says with which members the test went wrong.
struct TellOnPanic(usize, [Who; 2]);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this was with procs = {}, {:?}", self.0, self.1);
        }
    }
}

impl<'a> Crew<'a> {
    /// Makes the next member call `f`.
    pub fn go<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Member<'a, T> {
        let turn = self.started.get();
        self.started.set(turn + 1);
        match (self.kinds[turn % 2], self.rt) {
            (Who::Goroutine, Some(rt)) => Member::Goroutine(rt, rt.go(f)),
            _ => on_thread(f),
        }
    }

    /// Makes the next member call `f` while the caller waits.
    pub fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        self.go(f).join()
    }
}

/// Makes a plain thread call `f`.
pub fn on_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Member<'static, T> {
    on_thread_boxed(Box::new(f))
}

/// Compiled once for each `T`, and not for each closure.
fn on_thread_boxed<T: Send + 'static>(f: Box<dyn FnOnce() -> T + Send>) -> Member<'static, T> {
    let id = Arc::new(AtomicI32::new(0));
    let tell = Arc::clone(&id);
    let handle = thread::spawn(move || {
        // SAFETY: gettid has no preconditions.
        tell.store(unsafe { libc::gettid() }, SeqCst);
        f()
    });
    Member::Thread(id, handle)
}

#[must_use]
pub enum Member<'a, T> {
    Goroutine(&'a Runtime, JoinHandle<T>),
    Thread(Arc<AtomicI32>, thread::JoinHandle<T>),
}

impl<T> Member<'_, T> {
    pub fn is_finished(&self) -> bool {
        match self {
            Member::Goroutine(_, handle) => handle.is_finished(),
            Member::Thread(_, handle) => handle.is_finished(),
        }
    }

    #[track_caller]
    pub fn join(self) -> T {
        match self {
            Member::Goroutine(_, handle) => handle.join().unwrap_or_else(|error| match error.is_panic() {
                true => resume_unwind(error.into_panic()),
                false => panic!("{error}"),
            }),
            Member::Thread(_, handle) => handle.join().unwrap_or_else(|payload| resume_unwind(payload)),
        }
    }
}

/// Starts `count` members, which call `f` with their numbers.
pub fn each<'a, T: Send + 'static, F: Fn(usize) -> T + Clone + Send + 'static>(
    crew: &Crew<'a>,
    count: usize,
    f: F,
) -> Vec<Member<'a, T>> {
    (0..count)
        .map(|number| {
            let f = f.clone();
            crew.go(move || f(number))
        })
        .collect()
}

pub fn join_all<T>(members: Vec<Member<'_, T>>) -> Vec<T> {
    members.into_iter().map(Member::join).collect()
}
