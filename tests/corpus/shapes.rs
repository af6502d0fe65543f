//! Shapes of code around a wait, as compilers translate them. `run`, beside this file, builds them in many ways, and compares
//! for each call of `site` the verdict of the look at the frames with the outcome of a throw there.
//!
//! To add a shape, write a function in `plain!`, or one in `generic!`, which is tried with each kind of value. A shape calls
//! `site` where a goroutine might wait, as often as it likes; each of these calls is one site.
//!
//! One long file: the shapes are one table, and each build compiles this file by itself.

use gmp::context::Context;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::future::Future;
use std::hint::black_box;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The number of the site that is armed, among those that a shape comes to.
static ARMED: AtomicUsize = AtomicUsize::new(usize::MAX);
static PASSED: AtomicUsize = AtomicUsize::new(0);
/// The armed site throws; otherwise it waits and is interrupted.
static THROWS: AtomicBool = AtomicBool::new(false);
/// The wait came to its end: the look at the frames has refused to unwind them.
static WAITED: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn site() {
    if PASSED.fetch_add(1, SeqCst) != ARMED.load(SeqCst) {
        return;
    }
    if THROWS.load(SeqCst) {
        resume_unwind(Box::new("thrown"));
    }
    // Longer than the look takes, and repeated: on a busy machine the time may be over before the look begins.
    (0..3).for_each(|_| gmp::time::sleep(Duration::from_millis(20)));
    WAITED.store(true, SeqCst);
}

/// A value with a destructor.
trait Value: Any + Clone + Ord + std::hash::Hash + fmt::Debug {
    fn make(n: usize) -> Self;
}

/// Eight variants with destructors of their own: the drop is a computed jump.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Job {
    Text(String),
    Bytes(Vec<u8>),
    Shared(Arc<str>),
    Boxed(Box<[u64; 4]>),
    Many(Vec<String>),
    Counted(Rc<u64>),
    Pair(Box<u8>, String),
    Done,
}

impl Value for Job {
    fn make(n: usize) -> Self {
        match black_box(n) % 8 {
            0 => Job::Text(n.to_string()),
            1 => Job::Bytes(vec![n as u8; 3]),
            2 => Job::Shared(Arc::from("shared")),
            3 => Job::Boxed(Box::new([n as u64; 4])),
            4 => Job::Many(vec![n.to_string(), String::new()]),
            5 => Job::Counted(Rc::new(n as u64)),
            6 => Job::Pair(Box::new(n as u8), n.to_string()),
            _ => Job::Done,
        }
    }
}

/// Nested and recursive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Tree {
    Leaf,
    Job(Job),
    Two(Box<Tree>, Box<Tree>),
    Many(Vec<Tree>),
    Named(String, Option<Box<Tree>>),
    Either(Result<Job, String>),
}

impl Value for Tree {
    fn make(n: usize) -> Self {
        match black_box(n) % 6 {
            0 => Tree::Two(Box::new(Tree::Leaf), Box::new(Tree::Job(Job::make(n)))),
            1 => Tree::Many(vec![Tree::Leaf, Tree::make(n + 1)]),
            2 => Tree::Named(n.to_string(), Some(Box::new(Tree::Leaf))),
            3 => Tree::Either(if n < 100 { Ok(Job::make(n)) } else { Err(n.to_string()) }),
            4 => Tree::Job(Job::make(n)),
            _ => Tree::Leaf,
        }
    }
}

/// A value with a destructor that the compiler sees, and keeps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Tells(u64);

impl Drop for Tells {
    fn drop(&mut self) {
        black_box(&mut self.0);
    }
}

impl Value for Tells {
    fn make(n: usize) -> Self {
        Tells(n as u64)
    }
}

impl Value for String {
    fn make(n: usize) -> Self {
        n.to_string()
    }
}

impl Value for Vec<Job> {
    fn make(n: usize) -> Self {
        vec![Job::make(n), Job::make(n + 1)]
    }
}

impl Value for Option<Box<Job>> {
    fn make(n: usize) -> Self {
        (black_box(n) < 100).then(|| Box::new(Job::make(n)))
    }
}

type Shape = (&'static str, fn());

macro_rules! plain {
    ($($name:ident $body:block)+) => {
        $(#[inline(never)] fn $name() $body)+
        const PLAIN: &[Shape] = &[$((stringify!($name), $name)),+];
    };
}

macro_rules! generic {
    ($($name:ident $body:block)+) => {
        $(#[inline(never)] fn $name<T: Value>() $body)+
        const fn of<T: Value>() -> [Shape; [$(stringify!($name)),+].len()] {
            [$((stringify!($name), $name::<T>)),+]
        }
    };
}

fn keep<T: ?Sized>(value: &T) {
    black_box(value);
}

/// Treats the panics of its jobs as a service does, and passes on a throw of the library.
fn go_on_or_up(caught: std::thread::Result<()>) {
    if let Err(payload) = caught {
        if payload.is::<String>() {
            return;
        }
        resume_unwind(payload);
    }
}

/// Not inlined: the calls inside are not in the caller's frame.
#[inline(never)]
fn caught(f: impl FnOnce()) -> std::thread::Result<()> {
    black_box(catch_unwind(AssertUnwindSafe(f)))
}

/// Polls to the end.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = std::task::Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Is pending once, with a site at each poll.
struct Twice(bool);

impl Future for Twice {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut std::task::Context<'_>) -> Poll<()> {
        site();
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Calls `site` where it is dropped.
struct AtDrop<T>(T);

impl<T> Drop for AtDrop<T> {
    fn drop(&mut self) {
        site();
        keep(&self.0);
    }
}

trait Acts {
    fn act(&mut self) -> usize;
}

impl<T: Value> Acts for Vec<T> {
    fn act(&mut self) -> usize {
        let made = T::make(self.len());
        site();
        self.push(made);
        self.len()
    }
}

fn checked<T: Value>(n: usize) -> Result<T, String> {
    site();
    if black_box(n) < 1000 { Ok(T::make(n)) } else { Err(n.to_string()) }
}

fn chain<T: Value>(n: usize) -> Result<(T, T), String> {
    let first: T = checked(n)?;
    let second: T = checked(n + 1)?;
    keep(&first);
    let third: T = checked(n + 2)?;
    keep(&third);
    Ok((first, second))
}

async fn step<T: Value>(n: usize) -> Result<T, String> {
    let before = T::make(n);
    Twice(false).await;
    keep(&before);
    checked(n)
}

async fn steps<T: Value>() -> Result<usize, String> {
    let first: T = step(1).await?;
    let mut all = vec![first];
    for n in 0..2 {
        let next: T = step(n).await?;
        all.push(next);
    }
    site();
    Ok(all.len())
}

generic! {
    a_value {
        let value = T::make(1);
        site();
        keep(&value);
    }
    values {
        let (first, second, third) = (T::make(0), T::make(1), T::make(2));
        site();
        keep(&first);
        drop(second);
        site();
        keep(&third);
    }
    moved_in_a_branch {
        let value = T::make(3);
        if black_box(true) {
            let taken = value;
            site();
            keep(&taken);
        } else {
            site();
            keep(&value);
        }
        site();
    }
    assigned_in_a_loop {
        let mut value = T::make(0);
        for n in 0..3 {
            keep(&value);
            site();
            value = T::make(n);
        }
        keep(&value);
    }
    array_and_tuple {
        let array = [T::make(0), T::make(1), T::make(2)];
        let tuple = (T::make(3), String::from("text"), Box::new(T::make(4)));
        site();
        keep(&array);
        keep(&tuple);
    }
    matched {
        match (Some(T::make(0)), black_box(Err::<u8, _>(T::make(1)))) {
            (Some(first), Err(second)) => {
                site();
                keep(&(first, second));
            }
            (None, other) => keep(&other),
            (Some(first), Ok(_)) => keep(&first),
        }
    }
    question_marks {
        keep(&chain::<T>(1));
    }
    question_marks_in_a_catch {
        let result = catch_unwind(|| {
            let pair = chain::<T>(1).ok()?;
            site();
            Some(pair)
        });
        match result {
            Ok(pair) => keep(&pair),
            Err(payload) => resume_unwind(payload),
        }
    }
    mapped_and_collected {
        let all: Vec<T> = (0..2).map(|n| { site(); T::make(n) }).collect();
        keep(&all);
    }
    filtered_and_folded {
        let all = vec![T::make(0), T::make(1), T::make(2)];
        let last = all.into_iter().filter(|value| { keep(value); true }).fold(None, |_, value| { site(); Some(value) });
        keep(&last);
    }
    tried_in_a_fold {
        let sum = (0..2).try_fold(T::make(0), |last, n| { keep(&last); checked::<T>(n) });
        keep(&sum);
    }
    drained_and_retained {
        let mut all: Vec<T> = (0..4).map(T::make).collect();
        all.retain(|value| { keep(value); site(); true });
        for value in all.drain(1..3) {
            site();
            keep(&value);
        }
        keep(&all);
    }
    sorted {
        let mut all: Vec<T> = (0..3).map(T::make).collect();
        all.sort_by(|a, b| { site(); b.cmp(a) });
        keep(&all);
    }
    zipped_and_chained {
        let (left, right) = (vec![T::make(0), T::make(1)], vec![T::make(2)]);
        for (a, b) in left.into_iter().zip(right.into_iter().chain([T::make(3)])) {
            site();
            keep(&(a, b));
        }
    }
    in_maps {
        let mut hashed = HashMap::new();
        let mut ordered = BTreeMap::new();
        for n in 0..2 {
            hashed.entry(T::make(n)).or_insert_with(|| { site(); T::make(n) });
            ordered.entry(n).or_insert_with(|| { site(); T::make(n) });
        }
        keep(&(hashed, ordered));
    }
    in_a_queue {
        let mut queue: VecDeque<T> = (0..3).map(T::make).collect();
        while let Some(value) = queue.pop_front() {
            site();
            keep(&value);
        }
    }
    in_a_closure {
        let value = T::make(1);
        let call = || { site(); keep(&value); };
        call();
    }
    in_a_boxed_closure {
        let value = T::make(1);
        let boxed: Box<dyn FnOnce()> = Box::new(move || { site(); keep(&value); });
        black_box(boxed)();
    }
    behind_a_trait {
        let mut acts: Box<dyn Acts> = Box::new(vec![T::make(0)]);
        let value = T::make(1);
        keep(&black_box(&mut acts).act());
        keep(&value);
    }
    recursion {
        fn descend<T: Value>(depth: usize) -> usize {
            let value = T::make(depth);
            if depth == 0 {
                site();
                return 0;
            }
            let below = black_box(descend::<T> as fn(usize) -> usize)(depth - 1);
            keep(&value);
            below + 1
        }
        keep(&descend::<T>(5));
    }
    under_locks {
        let (lock, cell) = (Mutex::new(T::make(0)), RefCell::new(T::make(1)));
        let (locked, mut borrowed) = (lock.lock(), cell.borrow_mut());
        site();
        *borrowed = T::make(2);
        site();
        keep(&locked.is_ok());
    }
    shared {
        let shared = Rc::new(RefCell::new(vec![T::make(0)]));
        let other = Rc::clone(&shared);
        site();
        other.borrow_mut().push(T::make(1));
        drop(other);
        site();
        keep(&shared);
    }
    made_once {
        let cell = OnceLock::new();
        keep(cell.get_or_init(|| { let value = T::make(0); site(); value }));
        let (once, value) = (Once::new(), T::make(1));
        once.call_once(|| { site(); keep(&value); });
    }
    replaced_and_taken {
        let mut value = Some(T::make(0));
        let old = value.replace(T::make(1));
        site();
        let taken = value.take();
        site();
        keep(&(old, taken));
    }
    a_catch {
        let value = T::make(0);
        let result = catch_unwind(AssertUnwindSafe(|| { site(); keep(&value); }));
        go_on_or_up(result);
    }
    a_catch_with_values_inside {
        let before = T::make(0);
        let result = catch_unwind(|| {
            let (first, second) = (T::make(1), T::make(2));
            site();
            keep(&first);
            site();
            keep(&second);
        });
        keep(&before);
        go_on_or_up(result);
    }
    a_catch_that_swallows {
        let value = T::make(0);
        let result = catch_unwind(AssertUnwindSafe(|| { let inner = T::make(1); site(); keep(&inner); }));
        keep(&(result.is_err(), value));
    }
    beside_a_catch {
        let value = T::make(0);
        let result = catch_unwind(|| keep(&T::make(1)));
        site();
        keep(&value);
        go_on_or_up(result);
        let other = T::make(2);
        site();
        keep(&other);
    }
    a_catch_in_a_loop {
        let mut kept = T::make(0);
        for n in 0..3 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut job = T::make(n);
                for m in 0..2 {
                    keep(&job);
                    site();
                    job = T::make(m);
                }
                kept = job;
            }));
            go_on_or_up(result);
        }
        keep(&kept);
    }
    nested_catches {
        let outer = T::make(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let middle = T::make(1);
            let result = catch_unwind(|| { let inner = T::make(2); site(); keep(&inner); });
            keep(&middle);
            go_on_or_up(result);
            site();
        }));
        keep(&outer);
        go_on_or_up(result);
    }
    two_catches {
        let first = catch_unwind(|| { let value = T::make(0); site(); keep(&value); });
        let second = catch_unwind(|| { let value = T::make(1); site(); keep(&value); });
        go_on_or_up(first);
        go_on_or_up(second);
    }
    a_catch_elsewhere {
        let value = T::make(0);
        let result = caught(|| { let inner = T::make(1); site(); keep(&inner); });
        keep(&value);
        site();
        go_on_or_up(result);
    }
    a_catch_with_a_match_behind {
        let result = catch_unwind(|| { let value = T::make(0); site(); value });
        match result {
            Ok(value) => { site(); keep(&value); }
            Err(payload) if payload.is::<u8>() => keep(&T::make(3)),
            Err(payload) if payload.is::<String>() => keep(&T::make(4)),
            Err(payload) => resume_unwind(payload),
        }
    }
    after_a_panic {
        let value = T::make(0);
        let result = catch_unwind(AssertUnwindSafe(|| { keep(&value); resume_unwind(Box::new(String::new())) }));
        site();
        keep(&value);
        go_on_or_up(result);
    }
    a_drop_with_a_site {
        let value = AtDrop(T::make(0));
        keep(&value);
    }
    drops_with_sites_beside_a_catch {
        let result = catch_unwind(|| { let _first = AtDrop(T::make(0)); keep(&T::make(1)); });
        let _second = AtDrop(T::make(2));
        go_on_or_up(result);
    }
    a_drop_that_catches {
        struct Catches<T: Value>(T);
        impl<T: Value> Drop for Catches<T> {
            fn drop(&mut self) {
                let result = catch_unwind(AssertUnwindSafe(|| { site(); keep(&self.0); }));
                go_on_or_up(result);
            }
        }
        let _value = T::make(1);
        drop(Catches(T::make(0)));
    }
    a_drop_that_panics_unless_something_does {
        struct Panics<T: Value>(T);
        impl<T: Value> Drop for Panics<T> {
            fn drop(&mut self) {
                keep(&self.0);
                if black_box(false) && !std::thread::panicking() {
                    panic!("in a drop");
                }
            }
        }
        let (first, second) = (Panics(T::make(0)), Panics(T::make(1)));
        site();
        keep(&first.0);
        drop(second);
        site();
        let result = catch_unwind(|| { let value = Panics(T::make(2)); site(); keep(&value.0); });
        go_on_or_up(result);
    }
    formatted {
        struct Shows<T>(T);
        impl<T: Value> fmt::Display for Shows<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                site();
                write!(f, "{:?}", self.0)
            }
        }
        let value = T::make(0);
        let text = format!("{} {:?}", Shows(T::make(1)), value);
        let mut more = String::new();
        write!(more, "{}", Shows(T::make(2))).unwrap();
        keep(&(text, more));
    }
    an_async_machine {
        keep(&block_on(steps::<T>()));
    }
    async_machines_in_a_catch {
        let result = catch_unwind(|| {
            let boxed: Pin<Box<dyn Future<Output = Result<usize, String>>>> = Box::pin(steps::<T>());
            keep(&block_on(async {
                let value = T::make(0);
                let count = boxed.await;
                site();
                keep(&value);
                count
            }));
        });
        go_on_or_up(result);
    }
    in_a_scope {
        let value = T::make(0);
        gmp::scope(|_scope| {
            let inner = T::make(1);
            site();
            keep(&inner);
        });
        site();
        keep(&value);
    }
    under_a_context {
        let value = T::make(0);
        let (ctx, _cancel) = Context::background().with_cancel();
        let result = ctx.run(|| { let inner = T::make(1); site(); keep(&inner); });
        keep(&(result.is_err(), value));
    }
    panics_beside {
        let numbers = black_box(vec![1, 2, 3]);
        let value = T::make(numbers[black_box(1)]);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let other = T::make(numbers[black_box(2)]);
            site();
            assert!(black_box(numbers.len()) == 3, "{numbers:?}");
            keep(&(other, numbers.iter().copied().reduce(|a, b| a + b).expect("some")));
        }));
        let number = numbers[black_box(0)].checked_add(1).unwrap();
        site();
        keep(&(number, value));
        go_on_or_up(result);
    }
    unwinding_c {
        extern "C-unwind" fn unwinds<T: Value>() {
            let value = T::make(0);
            site();
            keep(&value);
        }
        let value = T::make(1);
        black_box(unwinds::<T> as extern "C-unwind" fn())();
        unwinds::<T>();
        keep(&value);
    }
    a_c_function {
        extern "C" fn bolted<T: Value>() {
            let value = T::make(0);
            site();
            keep(&value);
            drop(value);
            site();
        }
        let value = T::make(1);
        black_box(bolted::<T> as extern "C" fn())();
        keep(&value);
    }
    a_c_function_inlined {
        #[inline(always)]
        extern "C" fn bolted<T: Value>(mut value: T) {
            keep(&value);
            site();
            value = T::make(2);
            keep(&value);
        }
        let value = T::make(1);
        bolted(T::make(0));
        keep(&value);
    }
    a_call_caught_in_a_loop {
        #[inline(never)]
        fn one<T: Value>(served: &mut u64, value: &T) {
            let inner = value.clone();
            site();
            keep(&inner);
            *served += 1;
        }
        #[inline(never)]
        fn all<T: Value>(value: &T) {
            let mut served = 0;
            loop {
                match catch_unwind(AssertUnwindSafe(|| one(&mut served, value))) {
                    Ok(()) => return,
                    Err(payload) if payload.is::<String>() => {}
                    Err(payload) => resume_unwind(payload),
                }
            }
        }
        all(&T::make(0));
    }
    a_call_of_four_caught_in_a_loop {
        #[inline(never)]
        fn one<T: Value>(served: &mut u64, value: &T, more: &u64, most: &u64) {
            let inner = value.clone();
            site();
            keep(&inner);
            *served += *more + *most;
        }
        #[inline(never)]
        fn all<T: Value>(value: &T, more: &u64, most: &u64) {
            let mut served = 0;
            loop {
                match catch_unwind(AssertUnwindSafe(|| one(&mut served, value, more, most))) {
                    Ok(()) => return,
                    Err(payload) if payload.is::<String>() => {}
                    Err(payload) => resume_unwind(payload),
                }
            }
        }
        all(&T::make(0), &black_box(1), &black_box(2));
    }
    a_c_function_inlined_beside_a_catch {
        #[inline(always)]
        extern "C" fn bolted<T: Value>(value: T) {
            keep(&value);
            site();
        }
        let result = catch_unwind(|| { let value = T::make(0); site(); keep(&value); });
        bolted(T::make(1));
        go_on_or_up(result);
    }
    a_c_function_inlined_into_a_catch {
        #[inline(always)]
        extern "C" fn bolted<T: Value>(value: T) {
            site();
            keep(&value);
        }
        let result = catch_unwind(|| { keep(&T::make(0)); bolted(T::make(1)); });
        go_on_or_up(result);
    }
    a_c_function_that_throws_again {
        extern "C" fn bolted<T: Value>() {
            let result = catch_unwind(|| { let value = T::make(0); site(); keep(&value); });
            go_on_or_up(result);
        }
        black_box(bolted::<T> as extern "C" fn())();
    }
    a_drop_under_an_unwind {
        let result = catch_unwind(|| {
            let _value = AtDrop(T::make(0));
            resume_unwind(Box::new(String::new()))
        });
        go_on_or_up(result);
    }
}

plain! {
    nothing_at_all {
        site();
    }
    a_text_and_a_buffer {
        let mut buffer = Vec::new();
        let text = String::from("text");
        site();
        writeln!(buffer, "{text}").unwrap();
        site();
        keep(&buffer);
    }
    any_boxes {
        let boxes: Vec<Box<dyn Any>> = vec![Box::new(1), Box::new(String::new()), Box::new(Job::make(3))];
        for boxed in boxes {
            site();
            keep(&boxed.downcast::<String>().is_ok());
        }
    }
    a_machine_of_states {
        enum State {
            Begin,
            Read(Vec<u8>),
            Parsed(Job, Vec<u8>),
            Failed(Box<dyn std::error::Error>),
            Ended(String),
        }
        let mut state = State::Begin;
        loop {
            state = match state {
                State::Begin => { site(); State::Read(vec![1, 2]) }
                State::Read(bytes) => { site(); State::Parsed(Job::make(bytes.len()), bytes) }
                State::Parsed(job, bytes) => {
                    site();
                    if black_box(false) { State::Failed("failed".into()) } else { keep(&bytes); State::Ended(format!("{job:?}")) }
                }
                State::Failed(error) => { site(); State::Ended(error.to_string()) }
                State::Ended(text) => { keep(&text); break }
            };
        }
    }
    counted_cells {
        let cells = [const { Cell::new(0) }; 3];
        let set = |n: usize| { let text = n.to_string(); site(); cells[n].set(text.len()); };
        (0..3).for_each(set);
        keep(&cells);
    }
    through_c {
        unsafe extern "C-unwind" {
            fn qsort(base: *mut u32, count: usize, size: usize, compare: unsafe extern "C-unwind" fn(*const u32, *const u32) -> i32);
        }
        unsafe extern "C-unwind" fn compare(a: *const u32, b: *const u32) -> i32 {
            let job = Job::make(1);
            site();
            keep(&job);
            // SAFETY: `qsort` passes pointers to two of the numbers.
            unsafe { (*a).cmp(&*b) as i32 }
        }
        let mut numbers = vec![3, 1, 2];
        // SAFETY: it sorts the numbers, and its frames may be unwound.
        unsafe { qsort(numbers.as_mut_ptr(), numbers.len(), 4, compare) };
        keep(&numbers);
    }
    a_bare_c_function {
        extern "C" fn bolted() {
            site();
        }
        black_box(bolted as extern "C" fn())();
    }
}

fn shapes() -> Vec<(String, fn())> {
    let generic = [
        ("Job", of::<Job>()),
        ("Tree", of::<Tree>()),
        ("Tells", of::<Tells>()),
        ("String", of::<String>()),
        ("Vec", of::<Vec<Job>>()),
        ("Option", of::<Option<Box<Job>>>()),
    ];
    let named = generic.iter().flat_map(|(kind, shapes)| {
        shapes.iter().map(move |(name, shape)| (format!("{name}<{kind}>"), *shape))
    });
    PLAIN.iter().map(|&(name, shape)| (name.to_owned(), shape)).chain(named).collect()
}

fn say(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).expect("somebody reads");
}

/// Runs a shape with this site armed, under a context that is done.
#[inline(never)]
fn run(shape: fn(), armed: usize) {
    ARMED.store(armed, SeqCst);
    PASSED.store(0, SeqCst);
    WAITED.store(false, SeqCst);
    let (ctx, cancel) = Context::background().with_cancel();
    cancel.cancel();
    let ended = catch_unwind(AssertUnwindSafe(|| ctx.run(black_box(shape))));
    keep(&ended.is_err());
}

/// `mode` is `look` or `throw`, `from` is the number of the first site. Prints each site's name before trying the site, and
/// then the outcome.
fn try_all(mode: &str, from: usize) {
    THROWS.store(mode == "throw", SeqCst);
    let mut number = 0;
    for (name, shape) in shapes() {
        run(shape, usize::MAX);
        for armed in 0..PASSED.load(SeqCst) {
            if number >= from {
                say(format_args!("try {name}#{armed}"));
                run(shape, armed);
                let waited = WAITED.load(SeqCst);
                if mode == "look" {
                    // By now the frames are known, so the look needs no unwinder.
                    run(shape, armed);
                    assert_eq!(WAITED.load(SeqCst), waited, "what a second look says in {name}#{armed}");
                }
                say(format_args!("{}", if waited { "no" } else { "yes" }));
            }
            number += 1;
        }
    }
    say(format_args!("end"));
}

/// The entry point for a program that has loaded this as a library, and for `main`.
///
/// # Safety
/// `mode` is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus(mode: *const std::ffi::c_char, from: usize) {
    // SAFETY: by this function's contract.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_str().expect("look or throw").to_owned();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(1).stack_size(1 << 20).build() }.expect("a runtime");
    runtime.run(|| try_all(&mode, from));
}

#[allow(dead_code, reason = "as a library it has none")]
fn main() {
    let mut args = std::env::args().skip(1);
    let mode = std::ffi::CString::new(args.next().expect("look or throw")).expect("a word");
    let from = args.next().expect("a number").parse().expect("a number");
    // SAFETY: it is a string of C.
    unsafe { corpus(mode.as_ptr(), from) };
}
