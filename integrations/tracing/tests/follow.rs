//! Spans follow goroutines. Each test has a process of its own, because a subscriber is set for good, and runs there twice: as
//! usual, and with each goroutine on another thread after each park.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Span, Subscriber, error_span, info, info_span, instrument};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

const CHILD: &str = "GMP_TRACING_CHILD";
const MS: Duration = Duration::from_millis(1);
const SIGABRT: i32 = 6;
/// The subscriber's messages about a span that is gone.
const GONE: [&str; 3] = ["tried to clone", "tried to drop a ref to", "Span not found, this is a bug"];

fn child(test: &str, how: &str, debug: &str) -> Output {
    let program = std::env::current_exe().expect("the test binary has a path");
    let mut command = Command::new(program);
    command
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, how)
        .env("GMPDEBUG", debug)
        .env("GMPMAXPROCS", "4");
    command.output().expect("the test binary starts")
}

/// Runs `f` in processes of its own, which must pass.
#[track_caller]
fn alone(test: &str, f: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return f();
    }
    for debug in ["migrate=1", "migrate=0"] {
        let output = child(test, "1", debug);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "{debug}: {}\n{stdout}\n{stderr}",
            output.status
        );
    }
}

fn run<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    // SAFETY: no goroutine keeps a value of its thread across a park except spans, which are carried along, or are found to be
    // wrong.
    unsafe { gmp::run(f) }
}

/// The lines of the `fmt` layer.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[instrument]
fn request(n: u32) {
    (0..100).for_each(|step| part(n, step));
}

#[instrument]
fn part(of: u32, step: u32) {
    gmp::time::sleep(MS / 50);
    nested(of, step);
}

#[instrument]
fn nested(of: u32, step: u32) {
    gmp::yield_now();
    info!(of, step, "seen");
}

/// The lines of 8 goroutines with 100 events each. Returns the number of lines, and how many of the 800 are missing or in wrong
/// spans.
fn lines_and_wrong_ones(lines: &Lines) -> (usize, usize) {
    run(|| {
        let all: Vec<_> = (0..8).map(|n| gmp::go(move || request(n))).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let right: Vec<String> = (0..8)
        .flat_map(|n| (0..100).map(move |step| (n, step)))
        .map(|(n, step)| {
            let spans = format!("request{{n={n}}}:part{{of={n} step={step}}}:nested{{of={n} step={step}}}");
            format!("{spans}: follow: seen of={n} step={step}")
        })
        .collect();
    let mut found = HashMap::new();
    lines.iter().for_each(|line| *found.entry(line.trim().trim_start_matches("INFO ")).or_insert(0) += 1);
    let hits = right.iter().filter(|line| found.get(line.as_str()) == Some(&1)).count();
    (lines.len(), 800 - hits)
}

/// Fails if a line has the spans of another goroutine, or lacks some of its own. Without the wrapper, lines are wrong, or the
/// process ends because of that; this shows what the wrapper is for.
#[test]
fn eight_hundred_lines_are_right_with_the_wrapper_and_wrong_without() {
    const TEST: &str = "eight_hundred_lines_are_right_with_the_wrapper_and_wrong_without";
    if let Ok(how) = std::env::var(CHILD) {
        let lines = Lines::default();
        let fmt =
            tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(lines.clone()).finish();
        if how == "follows" {
            tracing::subscriber::set_global_default(gmp_tracing::follow(fmt)).unwrap();
        } else {
            tracing::subscriber::set_global_default(fmt).unwrap();
        }
        let (seen, wrong) = lines_and_wrong_ones(&lines);
        println!("\nlines {seen} wrong {wrong}.");
        return;
    }
    let wrong_of = |how: &str, debug: &str| {
        let output = child(TEST, how, debug);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = stdout.lines().find_map(|line| {
            let (lines, wrong) = line.strip_prefix("lines ")?.strip_suffix('.')?.split_once(" wrong ")?;
            Some((lines.parse::<usize>().ok()?, wrong.parse::<usize>().ok()?))
        });
        println!("{how}, {debug}: lines and wrong ones {told:?}, {}", output.status);
        (told, output)
    };
    for debug in ["migrate=1", "migrate=0"] {
        let (told, output) = wrong_of("follows", debug);
        assert_eq!(told, Some((800, 0)), "{debug}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let (told, output) = wrong_of("does not", "migrate=1");
    match told {
        Some((_, wrong)) => assert!(wrong > 400, "{wrong} are wrong without the wrapper"),
        // A span was closed under another goroutine, and the subscriber panicked because of that, perhaps during an unwind.
        None => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let found = GONE.iter().any(|text| stderr.contains(text));
            assert!(found || output.status.signal() == Some(SIGABRT), "{}: {stderr}", output.status);
        }
    }
}

/// The calls that a subscriber gets, in order, by thread. The subscriber itself finds calls that do not fit.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    /// The spans that are entered on each thread.
    entered: HashMap<thread::ThreadId, Vec<u64>>,
    closed: Vec<u64>,
    faults: String,
    exits: usize,
}

impl Told {
    fn set() -> Self {
        let told = Told::default();
        let layers = tracing_subscriber::registry().with(told.clone());
        tracing::subscriber::set_global_default(gmp_tracing::follow(layers)).unwrap();
        told
    }

    #[track_caller]
    fn is_in_order(&self) {
        let book = self.0.lock().unwrap();
        assert!(book.faults.is_empty(), "{}", book.faults);
        let left: Vec<_> = book.entered.values().filter(|spans| !spans.is_empty()).collect();
        assert!(left.is_empty(), "entered still: {left:?}");
    }

    fn closed(&self) -> usize {
        self.0.lock().unwrap().closed.len()
    }

    fn exits(&self) -> usize {
        self.0.lock().unwrap().exits
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Told {
    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let mut book = self.0.lock().unwrap();
        if book.closed.contains(&id.into_u64()) {
            writeln!(book.faults, "entered {id:?}, which is closed").unwrap();
        }
        book.entered.entry(thread::current().id()).or_default().push(id.into_u64());
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let mut book = self.0.lock().unwrap();
        book.exits += 1;
        let here = book.entered.entry(thread::current().id()).or_default();
        match here.iter().rposition(|&span| span == id.into_u64()) {
            Some(at) => drop(here.remove(at)),
            None => writeln!(book.faults, "left {id:?}, which is not entered on this thread").unwrap(),
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.0.lock().unwrap().closed.push(id.into_u64());
    }

    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        self.0.lock().unwrap().closed.retain(|&closed| closed != id.into_u64());
    }

    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {}

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let here = self
            .0
            .lock()
            .unwrap()
            .entered
            .get(&thread::current().id())
            .and_then(|spans| spans.last().copied());
        let parent = ctx.event_span(event).map(|span| span.id().into_u64());
        if parent != here {
            writeln!(self.0.lock().unwrap().faults, "an event in {parent:?}, on a thread in {here:?}")
                .unwrap();
        }
    }
}

/// The innermost span of the caller.
#[inline(never)]
fn current() -> Option<Id> {
    Span::current().id()
}

/// Fails if an event or a new span has another parent after a park, or if an explicit parent is lost.
#[test]
fn events_and_spans_keep_their_parents() {
    alone("events_and_spans_keep_their_parents", || {
        let told = Told::set();
        run(|| {
            let one = |n: u32| {
                let outer = info_span!("outer", n);
                let _in = outer.enter();
                for _ in 0..20 {
                    gmp::yield_now();
                    info!("in outer");
                    assert_eq!(current(), outer.id());
                    let inner = info_span!("inner");
                    inner.in_scope(|| {
                        gmp::time::sleep(MS / 50);
                        info!("in inner");
                        assert_eq!(current(), inner.id());
                        info!(parent: &inner, "by name");
                        gmp::yield_now();
                        assert_eq!(current(), inner.id());
                    });
                    assert_eq!(current(), outer.id());
                }
            };
            let all: Vec<_> = (0..8).map(|n| gmp::go(move || one(n))).collect();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        told.is_in_order();
        assert!(told.exits() > 8 * 20 * 4, "it leaves spans at each park: {}", told.exits());
    });
}

/// Fails if a switch loses the second entry of a span, or both.
#[test]
fn a_span_that_is_entered_twice_is_so_after_a_park() {
    alone("a_span_that_is_entered_twice_is_so_after_a_park", || {
        let told = Told::set();
        run(|| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    gmp::go(|| {
                        let (span, between) = (info_span!("twice"), info_span!("between"));
                        for _ in 0..20 {
                            let first = span.enter();
                            let middle = between.enter();
                            let second = span.enter();
                            // For a span that is entered twice the registry takes the outer entry as the current one.
                            let before = current();
                            gmp::yield_now();
                            assert_eq!(current(), before);
                            drop(second);
                            gmp::yield_now();
                            assert_eq!(current(), between.id());
                            // The guards are not dropped in the order of the entries.
                            drop(first);
                            gmp::yield_now();
                            assert_eq!(current(), between.id());
                            drop(middle);
                            gmp::yield_now();
                            assert_eq!(current(), None);
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        told.is_in_order();
        assert_eq!(told.closed(), 16);
    });
}

/// Fails if a span whose last handle is dropped while its goroutine is parked is closed too early, or is not closed afterwards.
#[test]
fn a_span_whose_handles_go_while_its_goroutine_is_parked_is_closed_when_it_is_left() {
    alone("a_span_whose_handles_go_while_its_goroutine_is_parked_is_closed_when_it_is_left", || {
        let told = Told::set();
        run(|| {
            let (sender, receiver) = gmp::chan::bounded(0);
            let (seen, looks) = gmp::chan::bounded(0);
            let waits = gmp::go(move || {
                let span = info_span!("forgotten");
                std::mem::forget(span.enter());
                let id = span.id();
                sender.send(span).unwrap();
                looks.recv().unwrap();
                assert_eq!(current(), id);
                info!("in it");
            });
            drop(receiver.recv().unwrap());
            assert_eq!(told.closed(), 0);
            seen.send(()).unwrap();
            waits.join().unwrap();
            // The guard was forgotten; the end of the goroutine has left the span.
            assert_eq!(told.closed(), 1);
            gmp::go(|| assert_eq!(current(), None)).join().unwrap();
        });
        told.is_in_order();
    });
}

/// Fails if a goroutine that unwinds leaves a span entered on its thread, or exits a span twice, also where a destructor parks;
/// or by an abort, if the subscriber panics because of that.
#[test]
fn a_goroutine_that_unwinds_leaves_its_spans() {
    alone("a_goroutine_that_unwinds_leaves_its_spans", || {
        struct Parks;
        impl Drop for Parks {
            fn drop(&mut self) {
                let span = info_span!("in a destructor");
                let _in = span.enter();
                gmp::time::sleep(MS / 50);
                assert_eq!(current(), span.id());
            }
        }
        let told = Told::set();
        run(|| {
            let (cancels, cancel) = gmp::context::Context::background().with_cancel();
            let unwinds = |n: u32, context: gmp::context::Context| {
                let outer = error_span!("unwinds", n);
                let _in = outer.enter();
                for _ in 0..10 {
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        let _inner = info_span!("inner").entered();
                        let _parks = Parks;
                        gmp::yield_now();
                        std::panic::resume_unwind(Box::new(n));
                    }));
                    assert!(caught.is_err());
                    assert_eq!(current(), outer.id());
                }
                let ended = context.run(|| {
                    let _inner = info_span!("cancelled").entered();
                    let _parks = Parks;
                    gmp::chan::never::<()>().recv()
                });
                assert!(ended.is_err());
                assert_eq!(current(), outer.id());
                let _left = info_span!("by a panic").entered();
                gmp::yield_now();
                std::panic::resume_unwind(Box::new(n));
            };
            let all: Vec<_> = (0..8)
                .map(|n| {
                    let context = cancels.clone();
                    gmp::go(move || unwinds(n, context))
                })
                .collect();
            gmp::time::sleep(5 * MS);
            cancel.cancel();
            all.into_iter().for_each(|one| assert!(one.join().is_err()));
            // The end of the runtime unwinds these goroutines.
            for _ in 0..8 {
                drop(gmp::go(|| {
                    let _in = info_span!("ends with the runtime").entered();
                    let _parks = Parks;
                    gmp::sync::Event::new().wait();
                }));
            }
            gmp::time::sleep(5 * MS);
        });
        told.is_in_order();
    });
}

/// Fails if the spans of a plain thread change, or if a park of the thread leaves them.
#[test]
fn plain_threads_are_as_ever() {
    alone("plain_threads_are_as_ever", || {
        let told = Told::set();
        let span = info_span!("of the thread");
        let _in = span.enter();
        let exits = told.exits();
        run(|| {
            assert_eq!(current(), None);
            (0..8)
                .map(|_| gmp::go(|| info_span!("other").in_scope(gmp::yield_now)))
                .for_each(|one| one.join().unwrap());
        });
        gmp::time::sleep(MS);
        let (sender, receiver) = gmp::chan::bounded(0);
        let thread = thread::spawn(move || {
            let span = info_span!("of another thread");
            span.in_scope(|| {
                sender.send(()).unwrap();
                assert_eq!(current(), span.id());
            });
        });
        receiver.recv().unwrap();
        thread.join().unwrap();
        assert_eq!(current(), span.id());
        // One exit of each goroutine, at most two at its switch, and one of the thread.
        assert!((8..=8 * 3 + 1).contains(&(told.exits() - exits)), "{}", told.exits() - exits);
        drop(_in);
        told.is_in_order();
    });
}

/// A goroutine's destructors of `local!` variables may use spans, before and after the wrapper's own variable has gone. Fails
/// by an abort, or by a span that stays on a thread.
#[test]
fn destructors_of_variables_may_use_spans() {
    alone("destructors_of_variables_may_use_spans", || {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        struct Spans;
        impl Drop for Spans {
            fn drop(&mut self) {
                info_span!("in the drop of a variable").in_scope(|| info!("there"));
                DROPS.fetch_add(1, SeqCst);
            }
        }
        gmp::local! {
            static FIRST: Spans = Spans;
            static LAST: Spans = Spans;
        }
        let told = Told::set();
        run(|| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    gmp::go(|| {
                        FIRST.with(|_| ());
                        info_span!("first").in_scope(gmp::yield_now);
                        LAST.with(|_| ());
                    })
                })
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        assert_eq!(DROPS.load(SeqCst), 16);
        told.is_in_order();
    });
}

/// A subscriber that gives each handle of a span an id of its own, as `clone_span` may.
#[derive(Clone, Default)]
struct IdsOfHandles(Arc<Mutex<Handles>>);

#[derive(Default)]
struct Handles {
    last: u64,
    /// The span of each handle that is not closed.
    open: HashMap<u64, u64>,
    entered: HashMap<thread::ThreadId, Vec<u64>>,
    wrong: Vec<String>,
}

impl Handles {
    fn add(&mut self, span: Option<u64>) -> Id {
        self.last += 1;
        self.open.insert(self.last, span.unwrap_or(self.last));
        Id::from_u64(self.last)
    }
}

impl Subscriber for IdsOfHandles {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().add(None)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.entry(thread::current().id()).or_default().push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let mut handles = self.0.lock().unwrap();
        let left = handles.entered.entry(thread::current().id()).or_default().pop();
        if left != Some(id.into_u64()) {
            handles.wrong.push(format!("{id:?} is left, and {left:?} was entered last"));
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        let mut handles = self.0.lock().unwrap();
        let span = handles.open[&id.into_u64()];
        handles.add(Some(span))
    }

    fn try_close(&self, id: Id) -> bool {
        let mut handles = self.0.lock().unwrap();
        match handles.open.remove(&id.into_u64()) {
            Some(span) => handles.open.values().all(|&of| of != span),
            None => {
                handles.wrong.push(format!("{id:?} is closed, and is no handle"));
                false
            }
        }
    }
}

/// Fails when a span is exited by another id than the one by which it was entered, or when a handle is not closed with the last
/// exit.
#[test]
fn a_handle_may_have_an_id_of_its_own() {
    alone("a_handle_may_have_an_id_of_its_own", || {
        let subscriber = IdsOfHandles::default();
        let handles = Arc::clone(&subscriber.0);
        tracing::subscriber::set_global_default(gmp_tracing::follow(subscriber)).unwrap();
        run(|| {
            let span = info_span!("outer");
            for _ in 0..3 {
                let other = span.clone();
                let in_span = span.enter();
                gmp::yield_now();
                let in_other = other.enter();
                gmp::time::sleep(MS);
                drop(in_other);
                gmp::yield_now();
                drop(in_span);
                drop(other);
                gmp::yield_now();
                assert_eq!(handles.lock().unwrap().open.len(), 1, "the handle of this goroutine alone");
            }
        });
        let handles = handles.lock().unwrap();
        assert!(handles.wrong.is_empty(), "{:?}", handles.wrong);
        assert!(handles.open.is_empty(), "{:?}", handles.open);
        assert!(handles.entered.values().all(Vec::is_empty), "{:?}", handles.entered);
    });
}
