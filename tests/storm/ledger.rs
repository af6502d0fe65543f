//! The fate of messages and of all else that has an owner, and the deliberate panics.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};

/// The payload of a panic that is part of the storm; no hook runs for it.
pub struct Deliberate;

pub fn fail_deliberately() -> ! {
    resume_unwind(Box::new(Deliberate))
}

/// Ends deliberate panics, for which it returns `None`, and no others.
pub fn isolated<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Deliberate>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

const DROPPED: u8 = 1;
const RECEIVED: u8 = 2;
const SENT: u8 = 4;

/// A round's accounts.
#[derive(Default)]
pub struct Book {
    made: AtomicU64,
    dropped: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// Received by an operation that an unwinding then gave up.
    given_up: AtomicU64,
    /// The other values that were made, and not dropped.
    alive: AtomicU64,
}

impl Book {
    pub fn gave_up(&self) {
        self.given_up.fetch_add(1, SeqCst);
    }

    /// Makes a value that counts as alive until it is dropped.
    pub fn probe(self: &Arc<Self>) -> Probe {
        self.alive.fetch_add(1, SeqCst);
        Probe(Arc::clone(self))
    }

    /// Returns `true` if all values that were made are gone.
    pub fn is_closed(&self) -> bool {
        self.made.load(SeqCst) == self.dropped.load(SeqCst) && self.alive.load(SeqCst) == 0
    }

    pub fn messages(&self) -> u64 {
        self.made.load(SeqCst)
    }

    /// Asserts that every message that was reported as sent was received, except those that were given up; and that each is
    /// dropped.
    #[track_caller]
    pub fn balances(&self) {
        let load = |count: &AtomicU64| count.load(SeqCst);
        let (sent, received, given_up) = (load(&self.sent), load(&self.received), load(&self.given_up));
        assert_eq!(
            sent,
            received + given_up,
            "messages: {sent} sent, {received} received, {given_up} given up"
        );
        let (made, dropped) = (load(&self.made), load(&self.dropped));
        assert_eq!(made, dropped, "messages: {made} made, {dropped} dropped");
        assert_eq!(load(&self.alive), 0, "probes that were never dropped");
    }
}

/// Counts as alive until it is dropped.
pub struct Probe(Arc<Book>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, SeqCst);
    }
}

/// Whether a message was sent; kept by its sender.
pub struct Receipt {
    fate: Arc<AtomicU8>,
    book: Arc<Book>,
}

impl Receipt {
    #[track_caller]
    pub fn sent(self) {
        note(&self.fate, SENT);
        self.book.sent.fetch_add(1, SeqCst);
    }
}

#[track_caller]
fn note(fate: &AtomicU8, what: u8) {
    let before = fate.fetch_or(what, SeqCst);
    assert_eq!(before & what, 0, "a message, twice: {what}, after {before}");
}

/// The contents of a message: so many bytes, at such addresses.
pub trait Payload: Send + 'static {
    fn of(number: u64) -> Self;
    fn is_of(&self, number: u64) -> bool;
}

macro_rules! payload {
    ($name:ident, $align:literal, $words:literal) => {
        #[repr(align($align))]
        pub struct $name([u64; $words]);

        impl Payload for $name {
            fn of(number: u64) -> Self {
                $name([number; $words])
            }

            fn is_of(&self, number: u64) -> bool {
                (&raw const *self).addr() % $align == 0 && self.0.iter().all(|&word| word == number)
            }
        }
    };
}
// One fits into the space that a select's arm has for a message, one does not, and one is aligned to more than a cache line.
payload!(Small, 8, 1);
payload!(Large, 8, 40);
payload!(Aligned, 128, 16);

pub struct Message<P: Payload> {
    number: u64,
    payload: P,
    /// Its drop panics, unless it is dropped by an unwinding.
    fused: bool,
    fate: Arc<AtomicU8>,
    book: Arc<Book>,
}

impl<P: Payload> Message<P> {
    pub fn new(book: &Arc<Book>, fused: bool) -> (Self, Receipt) {
        let number = book.made.fetch_add(1, SeqCst);
        let fate = Arc::new(AtomicU8::new(0));
        let receipt = Receipt { fate: Arc::clone(&fate), book: Arc::clone(book) };
        (Message { number, payload: P::of(number), fused, fate, book: Arc::clone(book) }, receipt)
    }

    #[track_caller]
    pub fn received(self) {
        assert!(self.payload.is_of(self.number), "message {} is not whole", self.number);
        note(&self.fate, RECEIVED);
        self.book.received.fetch_add(1, SeqCst);
    }

    /// Checks a message from a channel that may have dropped others: only that it is whole, and comes once.
    #[track_caller]
    pub fn passed(self) {
        assert!(self.payload.is_of(self.number), "message {} is not whole", self.number);
        note(&self.fate, RECEIVED);
    }
}

impl<P: Payload> Drop for Message<P> {
    fn drop(&mut self) {
        note(&self.fate, DROPPED);
        self.book.dropped.fetch_add(1, SeqCst);
        if self.fused && !std::thread::panicking() {
            fail_deliberately();
        }
    }
}
