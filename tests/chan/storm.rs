//! Everything at once, on a few channels: sends and receives, selects, messages that unwind, limits, contexts that end. Each
//! message that was sent is received once, or dropped by the operation that gave it up.

use common::crew::{CREWS, each, everyone, join_all};
use common::random::{Random, rounds};
use common::until;
use gmp::chan::{Receiver, RecvError, Select, SelectedOperation, Sender, bounded};
use gmp::context::Context;
use gmp::{select, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MEMBERS: usize = 8;
const CAPACITIES: [usize; 4] = [0, 0, 1, 2];

/// The fate of a message.
const DROPPED: u8 = 1;
const RECEIVED: u8 = 2;
/// The send has returned success.
const SENT: u8 = 4;

/// The fates of all messages.
struct Book {
    fates: Box<[AtomicU8]>,
    made: AtomicUsize,
    /// How many messages were received by an operation that was then given up.
    given_up: AtomicUsize,
}

impl Book {
    #[track_caller]
    fn note(&self, id: usize, what: u8) {
        let before = self.fates[id].fetch_or(what, SeqCst);
        assert_eq!(before & what, 0, "message {id}, twice: {what}");
    }

    #[track_caller]
    fn balances(&self) {
        let mut missing = 0;
        for (id, fate) in self.fates[..self.made.load(SeqCst)].iter().enumerate() {
            let fate = fate.load(SeqCst);
            assert!(fate & DROPPED != 0, "message {id} was never dropped: {fate}");
            assert!(fate & RECEIVED == 0 || fate & SENT != 0, "message {id} came from nowhere: {fate}");
            missing += usize::from(fate & SENT != 0 && fate & RECEIVED == 0);
        }
        assert_eq!(missing, self.given_up.load(SeqCst), "messages that were sent and never received");
    }
}

/// A small message fits into the space of a select's arm, a large one needs a box.
struct Message<const WORDS: usize> {
    id: usize,
    book: Arc<Book>,
    words: [usize; WORDS],
}

impl<const WORDS: usize> Drop for Message<WORDS> {
    fn drop(&mut self) {
        self.book.note(self.id, DROPPED);
    }
}

type Channel<const WORDS: usize> = (Sender<Message<WORDS>>, Receiver<Message<WORDS>>);

/// A member of the storm.
struct Member<const WORDS: usize> {
    book: Arc<Book>,
    channels: Arc<[Channel<WORDS>]>,
    random: Random,
}

impl<const WORDS: usize> Member<WORDS> {
    fn message(&self) -> Message<WORDS> {
        let id = self.book.made.fetch_add(1, SeqCst);
        Message { id, book: Arc::clone(&self.book), words: [id; WORDS] }
    }

    fn got(&self, message: Message<WORDS>) {
        assert_eq!(message.words, [message.id; WORDS]);
        self.book.note(message.id, RECEIVED);
    }

    /// Sends a message in this way.
    fn send<E>(&self, send: impl FnOnce(Message<WORDS>) -> Result<(), E>) {
        let message = self.message();
        let id = message.id;
        if send(message).is_ok() {
            self.book.note(id, SENT);
        }
    }

    fn limit(&mut self, micros: u64) -> Duration {
        Duration::from_micros(self.random.below(micros))
    }

    /// Does this in a context that ends soon.
    fn interrupted(&mut self, f: impl FnOnce(&Self)) {
        let (ctx, cancel) = Context::background().with_timeout(self.limit(200));
        let _either_way = ctx.run(|| f(self));
        cancel.cancel();
    }

    /// One operation, at random.
    fn step(&mut self) {
        let channels = Arc::clone(&self.channels);
        let mut any = || &channels[self.random.below(channels.len() as u64) as usize];
        let ((s, r), (other_s, other_r)) = (any(), any());
        match self.random.below(13) {
            0 => {
                let limit = self.limit(200);
                self.send(|message| s.send_timeout(message, limit));
            }
            1 => self.send(|message| s.try_send(message)),
            2 => {
                let limit = self.limit(200);
                r.recv_timeout(limit).into_iter().for_each(|message| self.got(message));
            }
            3 => r.try_recv().into_iter().for_each(|message| self.got(message)),
            4..=6 => self.select(s, r, other_s, other_r),
            7 => {
                let mut watch = Select::new();
                watch.recv(r);
                watch.send(other_s);
                let _either_way = watch.ready_timeout(self.limit(200));
            }
            8 => self.interrupted(|this| this.got(r.recv().unwrap())),
            9 => self.interrupted(|this| this.send(|message| s.send(message))),
            10 => self.interrupted(|this| {
                select! {
                    recv(r) -> message => this.got(message.unwrap()),
                    recv(other_r) -> message => this.got(message.unwrap()),
                }
            }),
            11 => self.interrupted(|this| {
                let mut id = None;
                let mut message = || {
                    yield_now();
                    let message = this.message();
                    id = Some(message.id);
                    message
                };
                select! {
                    send(s, message()) -> sent => sent.unwrap(),
                    recv(other_r) -> message => this.got(message.unwrap()),
                }
                id.into_iter().for_each(|id| this.book.note(id, SENT));
            }),
            _ => self.random.pause(100),
        }
    }

    /// A select whose operation is completed, perhaps late, or given up by an unwinding.
    fn select(
        &mut self,
        s: &Sender<Message<WORDS>>,
        r: &Receiver<Message<WORDS>>,
        other_s: &Sender<Message<WORDS>>,
        other_r: &Receiver<Message<WORDS>>,
    ) {
        let mut select = Select::new();
        let (sends, receives) = (select.send(s), select.recv(other_r));
        if self.random.below(2) == 0 {
            select.recv(r);
        }
        let more_receives = self.random.below(2) == 0;
        let third = if more_receives { select.recv(r) } else { select.send(other_s) };
        let (pauses, fails) = (self.random.below(3) == 0, self.random.below(3) == 0);
        let Ok(operation) = select.select_timeout(self.limit(300)) else { return };
        if pauses {
            yield_now();
        }
        let index = operation.index();
        let is_send = index == sends || index == third && !more_receives;
        match () {
            () if fails => {
                self.book.given_up.fetch_add(usize::from(!is_send), SeqCst);
                give_up(operation);
            }
            () if is_send => {
                let sender = if index == sends { s } else { other_s };
                self.send(|message| operation.send(sender, message));
            }
            () => self.got(operation.recv(if index == receives { other_r } else { r }).unwrap()),
        }
    }
}

/// Drops the operation as an unwinding does.
fn give_up(operation: SelectedOperation<'_>) {
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _operation = operation;
        resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err_and(|payload| payload.is::<()>()));
}

/// No channel is closed, so a missing message may still come. One member waits all the time for a message that never comes.
fn storm<const WORDS: usize>() {
    everyone(|crew| {
        let steps = rounds(150_000 / CREWS / MEMBERS);
        let fates = (0..steps * MEMBERS).map(|_| AtomicU8::new(0)).collect();
        let book = Arc::new(Book { fates, made: AtomicUsize::new(0), given_up: AtomicUsize::new(0) });
        let channels: Arc<[_]> = CAPACITIES.map(bounded::<Message<WORDS>>).into();
        let (quiet, silence) = bounded::<()>(0);
        let bystander = crew.go(move || silence.recv());
        bystander.until_it_waits();
        let started = Arc::new(AtomicUsize::new(0));
        let members = each(crew, MEMBERS, {
            let (book, channels) = (Arc::clone(&book), Arc::clone(&channels));
            move |me| {
                started.fetch_add(1, SeqCst);
                until(|| started.load(SeqCst) == MEMBERS);
                let (book, channels) = (Arc::clone(&book), Arc::clone(&channels));
                let mut member = Member { book, channels, random: Random::new(me) };
                (0..steps).for_each(|_| member.step());
            }
        });
        join_all(members);
        drop(quiet);
        assert_eq!(bystander.join(), Err(RecvError));
        let noted = Arc::clone(&book);
        crew.run(move || {
            for (_, r) in &*channels {
                r.try_iter().for_each(|message| noted.note(message.id, RECEIVED));
            }
        });
        book.balances();
    });
}

/// Fails by a hang, or when a message is lost, comes twice, comes from nowhere, or is dropped twice or never.
#[test]
fn small_messages_survive_it() {
    storm::<1>();
}

/// As above; the words of the messages tell whether they are whole.
#[test]
fn large_messages_survive_it() {
    storm::<20>();
}
