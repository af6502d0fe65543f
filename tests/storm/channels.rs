//! Sends and receives, one at a time. The steady channels stay open through the round, and every message is accounted for; the
//! passing channels are closed and replaced with their contents.

use crate::ledger::{Aligned, Large, Message, Payload, Receipt, Small, isolated};
use crate::worker::Worker;
use gmp::chan::{Receiver, Sender, bounded, unbounded};
use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

pub type Channel<P> = (Sender<Message<P>>, Receiver<Message<P>>);

pub struct Channels {
    small: Vec<Channel<Small>>,
    large: Vec<Channel<Large>>,
    aligned: Vec<Channel<Aligned>>,
    nothing: (Sender<Nothing>, Receiver<Nothing>),
}

/// The steady channels of these messages.
pub trait Steady: Payload + Sized {
    fn within(channels: &Channels) -> &[Channel<Self>];
}

macro_rules! steady {
    ($($payload:ident $field:ident),*) => {$(
        impl Steady for $payload {
            fn within(channels: &Channels) -> &[Channel<Self>] {
                &channels.$field
            }
        }
    )*};
}
steady!(Small small, Large large, Aligned aligned);

impl Channels {
    pub fn new() -> Self {
        Channels {
            small: [0, 0, 1, 2, 16].map(bounded).into_iter().chain([unbounded()]).collect(),
            large: [0, 1, 3].map(bounded).into(),
            aligned: [0, 2].map(bounded).into(),
            nothing: bounded(3),
        }
    }

    /// Receives the messages that are left.
    pub fn drain(&self) {
        drain(&self.small);
        drain(&self.large);
        drain(&self.aligned);
        self.nothing.1.try_iter().for_each(drop);
        assert_eq!(NOTHINGS.load(SeqCst), 0, "messages without a size that were never dropped, or twice");
    }
}

fn drain<P: Payload>(channels: &[Channel<P>]) {
    for (_, r) in channels {
        while isolated(|| r.try_recv().map(Message::received).is_ok()) != Some(false) {}
    }
}

impl Worker {
    /// Makes a message; the drop of some messages panics.
    pub fn message<P: Payload>(&mut self) -> (Message<P>, Receipt) {
        let fused = self.random.one_in(40);
        Message::new(&self.world.book, fused)
    }

    pub fn channel<P: Steady>(&mut self) -> Channel<P> {
        let world = &self.world;
        self.random.pick(P::within(&world.channels)).clone()
    }
}

pub fn send<P: Steady>(w: &mut Worker) {
    let ((s, _), (message, receipt)) = (w.channel::<P>(), w.message());
    if s.send_timeout(message, w.random.micros(200)).is_ok() {
        receipt.sent();
    }
}

pub fn recv<P: Steady>(w: &mut Worker) {
    let (_, r) = w.channel::<P>();
    if let Ok(message) = r.recv_timeout(w.random.micros(200)) {
        message.received();
    }
}

pub fn tries<P: Steady>(w: &mut Worker) {
    let (s, r) = w.channel::<P>();
    if w.random.one_in(2) {
        let (message, receipt) = w.message();
        if s.try_send(message).is_ok() {
            receipt.sent();
        }
    }
    if let Ok(message) = r.try_recv() {
        message.received();
    }
}

/// Operations that wait without a limit, until a context ends them.
pub fn ended<P: Steady>(w: &mut Worker) {
    let (s, r) = w.channel::<P>();
    match w.random.below(4) {
        0 => {
            w.ended(|_| r.recv().expect("it is open").received());
        }
        1 => {
            let (message, receipt) = w.message();
            w.ended(|_| {
                s.send(message).unwrap_or_else(|_| panic!("it is open"));
                receipt.sent();
            });
        }
        // As a server does that isolates the panics of its requests.
        2 => {
            w.ended(|_| {
                for _ in 0..10 {
                    isolated(|| r.recv().expect("it is open").received());
                }
                gmp::time::sleep(HOUR);
            });
        }
        _ => {
            w.ended(|w| {
                for _ in 0..10 {
                    isolated(|| {
                        let (message, receipt) = w.message();
                        s.send(message).unwrap_or_else(|_| panic!("it is open"));
                        receipt.sent();
                    });
                }
                gmp::time::sleep(HOUR);
            });
        }
    }
}

pub struct Passing(Vec<RwLock<Channel<Small>>>);

impl Passing {
    pub fn new() -> Self {
        Passing((0..3).map(|number| RwLock::new(bounded(number))).collect())
    }

    /// Drops the messages that are left in the channels.
    pub fn clear(&self) {
        for slot in &self.0 {
            let old = std::mem::replace(&mut *slot.write().unwrap(), bounded(0));
            isolated(|| drop(old));
        }
    }
}

/// An operation on a channel that may close meanwhile, by `close`, by the drop of its last half, or by a replacement.
pub fn passing(w: &mut Worker) {
    let number = w.random.below(w.world.passing.0.len() as u64) as usize;
    let (s, r) = w.world.passing.0[number].read().unwrap().clone();
    match w.random.below(8) {
        0 | 1 => {
            let (message, _) = w.message();
            drop(s.send_timeout(message, w.random.micros(100)));
        }
        2 => drop(r.recv_timeout(w.random.micros(100)).map(Message::passed)),
        3 => {
            let (message, _) = w.message();
            w.ended(|_| drop(s.send(message)));
        }
        4 => {
            w.ended(|_| r.iter().take(3).for_each(Message::passed));
        }
        5 => {
            let _it_was_open = s.close();
        }
        6 => {
            let fresh = match w.random.below(5) {
                4 => unbounded(),
                capacity => bounded(capacity as usize),
            };
            let old = std::mem::replace(&mut *w.world.passing.0[number].write().unwrap(), fresh);
            drop((s, r));
            drop(old);
        }
        // A send waits, and the last receiver goes.
        _ => {
            let (s, r) = bounded(1);
            let ((first, _), (second, _)) = (w.message::<Small>(), w.message());
            w.meanwhile(move || {
                gmp::yield_now();
                drop(r);
            });
            drop(s.send(first));
            drop(s.send(second));
        }
    }
}

/// How many there are, in all rounds together: a `Nothing` has no room to tell its round.
static NOTHINGS: AtomicI64 = AtomicI64::new(0);

pub struct Nothing(());

impl Nothing {
    fn new() -> Self {
        NOTHINGS.fetch_add(1, SeqCst);
        Nothing(())
    }
}

impl Drop for Nothing {
    fn drop(&mut self) {
        NOTHINGS.fetch_sub(1, SeqCst);
    }
}

pub fn messages_without_size(w: &mut Worker) {
    let (s, r) = w.world.channels.nothing.clone();
    match w.random.below(4) {
        0 => drop(s.send_timeout(Nothing::new(), w.random.micros(100))),
        1 => drop(r.recv_timeout(w.random.micros(100))),
        2 => drop(w.ended(|_| s.send(Nothing::new()))),
        _ => drop(w.ended(|_| r.recv())),
    }
}

/// Messages that don't fit into most stacks.
pub fn huge(w: &mut Worker) {
    const WORDS: usize = 32 << 10;
    let capacity = w.random.below(3) as usize;
    gmp::with_stack(16 << 20, || {
        let (s, r) = bounded::<[usize; WORDS]>(capacity);
        w.meanwhile(move || {
            gmp::with_stack(16 << 20, || {
                for number in 0..3 {
                    if s.send_timeout([number; WORDS], Duration::from_millis(50)).is_err() {
                        break;
                    }
                }
            })
        });
        for (number, words) in r.iter().enumerate() {
            assert!(words.iter().all(|&word| word == number), "a huge message is not whole");
        }
    });
}
