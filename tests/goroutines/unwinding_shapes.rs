//! A context and the end of a runtime pass all frames that a panic could pass: shapes that the optimiser makes of ordinary
//! code. Frames that must be left alone are in `time/context_run.rs` and `threads/shutdown/`; `tests/corpus` has many more
//! shapes.

use common::everywhere;
use gmp::chan::{Receiver, Sender, bounded};
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{select, time};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);
/// The limit for the end of a runtime; only a failure takes so long.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// A request to a service. Its drop is a computed jump.
enum Request {
    Line(String),
    Block(Vec<u8>),
    Call(Box<dyn FnMut() + Send>),
    Keyed(Arc<str>, Box<u64>),
    Answer(Sender<u64>),
    Batch(Vec<String>),
    Nothing,
}

#[inline(always)]
fn serve_one(request: &mut Request) -> u64 {
    match request {
        Request::Line(text) => {
            text.push('.');
            text.len() as u64
        }
        Request::Block(bytes) => {
            bytes.push(0);
            bytes.len() as u64
        }
        Request::Call(call) => {
            call();
            0
        }
        Request::Keyed(key, number) => key.len() as u64 + **number,
        Request::Answer(sender) => u64::from(sender.try_send(1).is_ok()),
        Request::Batch(texts) => {
            texts.clear();
            0
        }
        Request::Nothing => 0,
    }
}

/// Counts the services that are between their beginning and their end.
struct Serving<'a>(&'a AtomicUsize);

impl<'a> Serving<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Serving(count)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A service goes on after the panic of a request, whose payload is a text, and not after a throw from outside.
#[inline(always)]
fn isolates(mut request: impl FnMut()) {
    loop {
        match catch_unwind(AssertUnwindSafe(&mut request)) {
            Ok(()) => return,
            Err(payload) if payload.is::<&str>() || payload.is::<String>() => {}
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// Waits for the next request while the last one is still alive. Returns `None` if there are no more.
type Next = fn(&Receiver<Request>) -> Option<Request>;

const NEXT: [Next; 4] = [
    |requests| requests.recv().ok(),
    |requests| requests.recv_timeout(LONG).ok(),
    |requests| {
        select! {
            recv(requests) -> request => request.ok(),
            default(LONG) => None,
        }
    },
    |_| {
        Event::new().wait();
        None
    },
];

fn serves(requests: &Receiver<Request>, next: Next, begun: &AtomicUsize) {
    let mut served = 0;
    isolates(|| {
        let _serving = Serving::begin(begun);
        let mut request =
            if served > 1000 { Request::Nothing } else { Request::Line("the first".to_owned()) };
        loop {
            served += serve_one(&mut request);
            match next(requests) {
                Some(other) => request = other,
                None => return,
            }
        }
    });
}

/// The same, where the compiler sees the wait.
fn serves_in_one_piece(requests: &Receiver<Request>, begun: &AtomicUsize) {
    let mut served = 0;
    loop {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _serving = Serving::begin(begun);
            let mut request = if served > 1000 { Request::Nothing } else { Request::Block(vec![1, 2, 3]) };
            loop {
                served += serve_one(&mut request);
                match requests.recv() {
                    Ok(next) => request = next,
                    Err(_) => return,
                }
            }
        }));
        match caught {
            Ok(()) => return,
            Err(payload) if payload.is::<&str>() => {}
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// The same, where the compiler sees only the catch, and the code that takes the payload out is called through a register.
fn serves_by_a_call(requests: &Receiver<Request>, begun: &AtomicUsize) {
    #[inline(never)]
    fn serve(requests: &Receiver<Request>, served: &mut u64, begun: &AtomicUsize) {
        let _serving = Serving::begin(begun);
        let mut request = if *served > 1000 { Request::Nothing } else { Request::Line("first".to_owned()) };
        loop {
            *served += serve_one(&mut request);
            match requests.recv_timeout(LONG) {
                Ok(next) => request = next,
                Err(_) => return,
            }
        }
    }
    let mut served = 0;
    loop {
        let caught = catch_unwind(AssertUnwindSafe(|| serve(requests, &mut served, begun)));
        match caught {
            Ok(()) => return,
            Err(payload) if payload.is::<&str>() => {}
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// Sends requests of all kinds, so that the compiler can rule out none.
fn some_requests(sender: &Sender<Request>) {
    let (answer, _answered) = bounded(1);
    for request in [
        Request::Line("a".to_owned()),
        Request::Block(vec![1]),
        Request::Call(Box::new(|| ())),
        Request::Keyed(Arc::from("key"), Box::new(1)),
        Request::Answer(answer),
        Request::Batch(vec!["b".to_owned()]),
        Request::Nothing,
    ] {
        sender.send(black_box(request)).expect("a receiver is there");
    }
}

type Service = fn(&Receiver<Request>, &AtomicUsize);

const SERVICES: [Service; 6] = [
    |requests, begun| serves(requests, NEXT[0], begun),
    |requests, begun| serves(requests, NEXT[1], begun),
    |requests, begun| serves(requests, NEXT[2], begun),
    |requests, begun| serves(requests, NEXT[3], begun),
    serves_in_one_piece,
    serves_by_a_call,
];

/// Fails in release by a wait of an hour, or by "all goroutines are asleep", when the end of the context leaves out a service
/// that catches the panics of its requests.
#[test]
fn a_context_ends_a_service_that_isolates_panics() {
    everywhere(|rt| {
        for service in SERVICES {
            let begun = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&begun);
            let ended = rt.run(move || {
                let (sender, requests) = bounded(8);
                some_requests(&sender);
                time::timeout(SHORT, || service(&requests, &counted))
            });
            assert!(matches!(ended, Err(ContextError::DeadlineExceeded)), "{ended:?}");
            assert_eq!(begun.load(SeqCst), 0);
        }
    });
}

/// Fails in release by a report that goroutines were left.
#[test]
fn the_end_of_a_runtime_ends_services_that_isolate_panics() {
    everywhere(|rt| {
        let begun = Arc::new(AtomicUsize::new(0));
        let channels: Vec<_> = SERVICES.iter().map(|_| bounded(8)).collect();
        for (service, (sender, requests)) in SERVICES.iter().zip(&channels) {
            some_requests(sender);
            let (requests, begun) = (requests.clone(), Arc::clone(&begun));
            rt.go(move || service(&requests, &begun));
        }
        common::until(|| begun.load(SeqCst) == SERVICES.len());
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(begun.load(SeqCst), 0);
    });
}

/// A page to which the program may refuse itself access.
#[repr(align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);

// SAFETY: only the goroutine that makes the page accessible writes to it.
unsafe impl Sync for Page {}

static PAGE: Page = Page(UnsafeCell::new([0; 4096]));

fn protect(rights: i32) {
    // SAFETY: `Page` is a whole page, and no other code uses it meanwhile.
    assert_eq!(unsafe { libc::mprotect(PAGE.0.get().cast(), size_of::<Page>(), rights) }, 0);
}

/// Fails by SIGSEGV when the look at the frames reads a variable that the code of a frame names, and that can't be read at the
/// moment.
#[test]
fn a_protected_variable_is_not_looked_at() {
    #[inline(never)]
    fn uses_the_page() {
        let kept = black_box(vec![1_u8; 10]);
        Event::new().wait();
        protect(libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the page is writable now, and no other code uses it.
        unsafe { (*PAGE.0.get())[0] = kept[0] };
        black_box(PAGE.0.get());
    }
    protect(libc::PROT_NONE);
    everywhere(|rt| {
        let ended = rt.run(|| {
            let (ctx, cancel) = Context::background().with_cancel();
            cancel.cancel();
            ctx.run(uses_the_page)
        });
        assert_eq!(ended, Err(ContextError::Canceled));
        drop(rt.go(uses_the_page));
        assert!(rt.shutdown(SHUTDOWN_LIMIT).is_clean());
    });
    protect(libc::PROT_READ | libc::PROT_WRITE);
}
