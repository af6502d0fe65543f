//! Several operations at a time, of which one is done: late, never, or with a message that fails to be made.

use crate::channels::Steady;
use crate::ledger::{Book, Deliberate, Message, fail_deliberately};
use crate::worker::Worker;
use gmp::chan::{Select, SelectedOperation};
use gmp::{select, select_biased};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Makes a select over some arms. The chosen operation is completed, perhaps after a while, or given up.
pub fn dynamic<P: Steady>(w: &mut Worker) {
    let channels: Vec<_> = (0..1 + w.random.below(4)).map(|_| w.channel::<P>()).collect();
    let mut select = if w.random.one_in(4) { Select::new_biased() } else { Select::new() };
    let receives: Vec<_> = channels.iter().map(|_| w.random.one_in(2)).collect();
    for (receives, (s, r)) in receives.iter().zip(&channels) {
        if *receives {
            select.recv(r)
        } else {
            select.send(s)
        };
    }
    let limit = w.random.micros(200);
    let chosen = match w.random.below(3) {
        0 => select.try_select().ok(),
        1 => select.select_timeout(limit).ok(),
        _ => w.ended(|_| select.select()),
    };
    let Some(operation) = chosen else { return };
    let index = operation.index();
    let unless_received = receives[index].then(|| GaveUp::new(&w.world.book));
    if w.random.one_in(3) {
        w.pause();
    }
    if w.random.one_in(6) {
        give_up(operation);
    } else if receives[index] {
        let message = operation.recv(&channels[index].1).expect("it is open");
        unless_received.into_iter().for_each(GaveUp::received);
        message.received();
    } else {
        let (message, receipt) = w.message();
        // The receiver for which the send was chosen may have gone. Under a limit no other receiver may come in time; without
        // one perhaps none comes at all, at the end of a round.
        w.ended(|_| {
            if operation.send(&channels[index].0, message).is_ok() {
                receipt.sent();
            }
        });
    }
}

/// Counts a message that was received by an operation that is not completed: the runtime may end before.
struct GaveUp {
    book: Arc<Book>,
    received: bool,
}

impl GaveUp {
    fn new(book: &Arc<Book>) -> Self {
        GaveUp { book: Arc::clone(book), received: false }
    }

    fn received(mut self) {
        self.received = true;
    }
}

impl Drop for GaveUp {
    fn drop(&mut self) {
        if !self.received {
            self.book.gave_up();
        }
    }
}

/// Drops the operation as an unwinding does, and goes on; a panic of a message's drop passes.
fn give_up(operation: SelectedOperation<'_>) {
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _operation = operation;
        fail_deliberately();
    }));
    match unwound {
        Err(payload) if payload.is::<Deliberate>() => {}
        Err(payload) => resume_unwind(payload),
        Ok(()) => unreachable!("it failed"),
    }
}

pub fn limited<P: Steady>(w: &mut Worker) {
    let ((s, r), (other_s, other_r)) = (w.channel::<P>(), w.channel::<P>());
    let (limit, own) = (w.random.micros(200), w.message());
    match w.random.below(3) {
        0 => {
            let (message, receipt) = own;
            select! {
                send(s, message) -> sent => {
                    if sent.is_ok() {
                        receipt.sent();
                    }
                }
                recv(other_r) -> message => message.expect("it is open").received(),
                default(limit) => {}
            }
        }
        1 => select_biased! {
            recv(r) -> message => message.expect("it is open").received(),
            recv(other_r) -> message => message.expect("it is open").received(),
            default => {}
        },
        _ => {
            let (message, receipt) = own;
            // As above: the timer ends the choice, but not a send that was chosen for a receiver which then leaves.
            w.ended(|_| {
                select! {
                    recv(r) -> message => message.expect("it is open").received(),
                    recv(gmp::chan::after(limit)) -> _ => {}
                    send(other_s, message) -> sent => {
                        sent.unwrap_or_else(|_| panic!("it is open"));
                        receipt.sent();
                    }
                }
            });
        }
    }
}

/// The chosen receiver waits for a message that takes its time, fails to be made, or is never made, as its maker is
/// interrupted.
pub fn promise<P: Steady>(w: &mut Worker) {
    let ((s, r), (other_s, other_r)) = (w.channel::<P>(), w.channel::<P>());
    w.ended(|w| {
        let mut receipt = None;
        let mut make = |w: &mut Worker| -> Message<P> {
            match w.random.below(8) {
                0 => fail_deliberately(),
                1 => gmp::time::sleep(Duration::from_secs(3600)),
                _ => w.pause(),
            }
            let (message, own) = w.message();
            receipt = Some(own);
            message
        };
        select! {
            send(s, make(w)) -> sent => {
                sent.unwrap_or_else(|_| panic!("it is open"));
                receipt.take().into_iter().for_each(|receipt| receipt.sent());
            }
            send(other_s, make(w)) -> sent => {
                sent.unwrap_or_else(|_| panic!("it is open"));
                receipt.take().into_iter().for_each(|receipt| receipt.sent());
            }
            recv(r) -> message => message.expect("it is open").received(),
            recv(other_r) -> message => message.expect("it is open").received(),
        }
    });
}

pub fn ready<P: Steady>(w: &mut Worker) {
    let ((s, r), (_, other)) = (w.channel::<P>(), w.channel::<P>());
    let mut watch = Select::new();
    watch.send(&s);
    watch.recv(&r);
    watch.recv(&other);
    let limit = w.random.micros(200);
    let _either_way = match w.random.below(3) {
        0 => watch.try_ready().ok(),
        1 => watch.ready_timeout(limit).ok(),
        _ => w.ended(|_| watch.ready()),
    };
}
