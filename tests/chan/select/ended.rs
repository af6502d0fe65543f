//! A promise of a select's send ends, whatever happens to its two sides: a runtime may leave the sender behind while the sender
//! evaluates the message, and the receiver may give up. No member waits for ever, no message is lost, and none is sent without
//! a receiver.

use common::bolt::bolted;
use common::crew::{Crew, Member, everyone, on_thread};
use common::gate::Gate;
use common::{PROCS, runtime, watched};
use gmp::chan::{Receiver, RecvError, Select, SendError, Sender, TryRecvError, TrySendError, bounded, never};
use gmp::context::{Cancel, Context, ContextError};
use gmp::sync::Event;
use gmp::{Runtime, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// Makes the next member do this, and returns when that member waits.
fn waiting<'a, T: Send + 'static>(crew: &Crew<'a>, f: impl FnOnce() -> T + Send + 'static) -> Member<'a, T> {
    let member = crew.go(f);
    member.until_it_waits();
    member
}

/// The ways to receive without a limit.
type Way = fn(&Receiver<u32>) -> Result<u32, RecvError>;
const WAYS: [Way; 2] =
    [|r| r.recv(), |r| select! { recv(r) -> got => got, recv(never::<()>()) -> _ => unreachable!() }];

/// The ways to receive for a short time.
type ShortWay = fn(&Receiver<u32>) -> Option<u32>;
const SHORT_WAYS: [ShortWay; 2] = [
    |r| r.recv_timeout(SHORT_LIMIT).ok(),
    |r| select! { recv(r) -> got => got.ok(), default(SHORT_LIMIT) => None },
];

/// Which of the two sides is there first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum First {
    Receiver,
    Sender,
}
const EITHER: [First; 2] = [First::Receiver, First::Sender];

/// A runtime with a goroutine that sends in a select. Its message is never ready, and nothing unwinds the goroutine.
struct Stuck {
    rt: Runtime,
    evaluates: Gate,
}

impl Stuck {
    /// If the receiver comes first, the goroutine evaluates its message when this function returns; otherwise it waits for a
    /// receiver.
    fn new(procs: usize, s: &Sender<u32>, first: First) -> Self {
        let (rt, evaluates, s) = (runtime(procs), Gate::default(), s.clone());
        let theirs = evaluates.clone();
        let handle = rt.go(move || {
            bolted(|| {
                let message = || {
                    theirs.open();
                    Event::new().wait();
                    unreachable!("nobody notifies it")
                };
                select! { send(s, message()) -> _ => {}, recv(never::<()>()) -> _ => {} }
            });
        });
        Member::Goroutine(&rt, handle).until_it_waits();
        let stuck = Stuck { rt, evaluates };
        if first == First::Receiver {
            stuck.evaluates.pass();
        }
        stuck
    }

    /// Waits until the goroutine has promised its message, and ends its runtime.
    fn leave(self) {
        self.evaluates.pass();
        assert_eq!(self.rt.shutdown(10 * SHORT_LIMIT).goroutines_left(), 1);
    }
}

/// A member receives, and a goroutine that is stuck promises a message; either may come first.
fn meet<'a, T>(
    (procs, s, first): (usize, &Sender<u32>, First),
    receives: impl FnOnce() -> Member<'a, T>,
) -> (Stuck, Member<'a, T>) {
    if first == First::Sender {
        let stuck = Stuck::new(procs, s, first);
        let receiver = receives();
        stuck.evaluates.pass();
        return (stuck, receiver);
    }
    let receiver = receives();
    receiver.until_it_waits();
    (Stuck::new(procs, s, first), receiver)
}

/// Fails by a hang when the receiver waits for a message that never comes.
#[test]
fn the_promise_of_a_goroutine_that_is_left_behind_is_withdrawn() {
    everyone(|crew| {
        for (way, first) in WAYS.into_iter().flat_map(|way| EITHER.map(|first| (way, first))) {
            for procs in [1, 2] {
                let (s, r) = bounded(0);
                let (stuck, receiver) = meet((procs, &s, first), || crew.go(move || way(&r)));
                stuck.leave();
                assert_eq!(s.send(2), Ok(()));
                assert_eq!(receiver.join(), Ok(2));
            }
        }
    });
}

/// As above, with other receivers behind it. Fails if the receiver whose promise was withdrawn has lost its place.
#[test]
fn a_receiver_whose_promise_was_left_behind_keeps_its_place() {
    everyone(|crew| {
        for way in WAYS {
            let (s, r) = bounded(0);
            let (theirs, others) = (r.clone(), r);
            let first = waiting(crew, move || way(&theirs));
            let second = waiting(crew, move || way(&others));
            let stuck = Stuck::new(1, &s, First::Receiver);
            stuck.leave();
            assert_eq!((s.send(1), first.join()), (Ok(()), Ok(1)));
            assert_eq!((s.send(2), second.join()), (Ok(()), Ok(2)));
        }
    });
}

/// Fails by a hang when the close finds no receiver in the queue, and the promise keeps them from hearing of the close.
#[test]
fn a_receiver_hears_of_the_close_when_its_promise_was_left_behind() {
    everyone(|crew| {
        for (way, first) in WAYS.into_iter().flat_map(|way| EITHER.map(|first| (way, first))) {
            for closes_early in [false, true] {
                let (s, r) = bounded(0);
                let (stuck, receiver) = meet((1, &s, first), || crew.go(move || way(&r)));
                if closes_early {
                    assert!(s.close());
                }
                stuck.leave();
                assert_eq!(s.close(), !closes_early);
                assert_eq!(receiver.join(), Err(RecvError));
            }
        }
    });
}

/// Fails if the slot stays taken, or by a hang if the sender that waits for the slot is not told.
#[test]
fn the_slot_that_was_kept_for_a_left_goroutine_is_given_back() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let stuck = Stuck::new(1, &s, First::Receiver);
        assert_eq!(s.try_send(1), Err(TrySendError::Full(1)));
        let theirs = s.clone();
        let sender = waiting(crew, move || theirs.send(2));
        stuck.leave();
        assert_eq!((sender.join(), r.recv()), (Ok(()), Ok(2)));
        assert_eq!(s.try_send(3), Ok(()));
    });
}

/// The goroutine has promised twice: it makes the first message by receiving in a select of its own. Fails by a hang of one of
/// the two waiters.
#[test]
fn all_promises_of_a_goroutine_that_is_left_behind_are_withdrawn() {
    everyone(|crew| {
        let ((s, r), (other_s, other_r)) = (bounded(0), bounded(0));
        let first = waiting(crew, move || r.recv());
        let second = waiting(crew, move || other_r.recv());
        let (rt, evaluates) = (runtime(1), Gate::default());
        let theirs = (s.clone(), other_s.clone(), evaluates.clone());
        drop(rt.go(move || {
            bolted(|| {
                let (s, other_s, evaluates) = theirs;
                let inner = || {
                    evaluates.open();
                    Event::new().wait();
                    unreachable!("nobody notifies it")
                };
                let outer = || {
                    select! { send(other_s, inner()) -> _ => 0 }
                };
                select! { send(s, outer()) -> _ => {} }
            });
        }));
        evaluates.pass();
        assert_eq!(rt.shutdown(10 * SHORT_LIMIT).goroutines_left(), 1);
        assert_eq!((s.send(1), other_s.send(2)), (Ok(()), Ok(())));
        assert_eq!((first.join(), second.join()), (Ok(1), Ok(2)));
    });
}

/// Fails by an access to a channel that is gone, most often as a crash: the goroutine that is left behind still refers to it.
#[test]
fn a_goroutine_that_has_forgotten_what_it_promised_may_be_left_behind() {
    for procs in PROCS {
        watched(procs, || {
            let (rt, asleep) = (runtime(procs), Gate::default());
            let theirs = asleep.clone();
            drop(rt.go(move || {
                bolted(|| {
                    for capacity in [0, 1] {
                        let (s, r) = bounded::<Box<u32>>(capacity);
                        if capacity == 0 {
                            // This goroutine is unwound before the other one is left behind.
                            drop(gmp::go(move || r.recv()));
                        }
                        let mut select = Select::new();
                        select.send(&s);
                        std::mem::forget(select.select());
                    }
                    theirs.open();
                    Event::new().wait();
                });
            }));
            asleep.pass();
            assert_eq!(rt.shutdown(10 * SHORT_LIMIT).goroutines_left(), 1);
        });
    }
}

/// A member promises the message 1, which opens the first gate, and sends it when the second one is open.
fn late_sender<'a>(
    crew: &Crew<'a>,
    s: &Sender<u32>,
    gates: [&Gate; 2],
) -> Member<'a, Result<(), SendError<u32>>> {
    let (s, [promised, gate]) = (s.clone(), gates.map(Gate::clone));
    crew.go(move || {
        let mut select = Select::new();
        select.send(&s);
        let promise = select.select();
        promised.open();
        gate.pass();
        promise.send(&s, 1)
    })
}

/// A member receives, and another promises it a message; either may come first.
fn meet_late<'a, 'b, T>(
    crew: &Crew<'a>,
    (s, first, gates): (&Sender<u32>, First, [&Gate; 2]),
    receives: impl FnOnce() -> Member<'b, T>,
) -> (Member<'a, Result<(), SendError<u32>>>, Member<'b, T>) {
    let (sender, receiver) = if first == First::Receiver {
        let receiver = receives();
        receiver.until_it_waits();
        (late_sender(crew, s, gates), receiver)
    } else {
        let sender = late_sender(crew, s, gates);
        sender.until_it_waits();
        (sender, receives())
    };
    gates[0].pass();
    (sender, receiver)
}

/// Receives for a short time, again and again, until a message was promised.
fn receive_shortly(r: &Receiver<u32>, way: ShortWay, promised: &Gate) -> Option<u32> {
    loop {
        let got = way(r);
        if got.is_some() || promised.is_open() {
            return got;
        }
    }
}

/// Fails by a hang when the receiver waits past its limit, or the sender waits for a receiver that has gone; by its assertions
/// when the message is lost.
#[test]
fn a_limit_ends_the_wait_for_a_promise_and_the_message_goes_to_another() {
    everyone(|crew| {
        for (way, first) in SHORT_WAYS.into_iter().flat_map(|way| EITHER.map(|first| (way, first))) {
            let ((s, r), [promised, gate]) = (bounded(0), <[Gate; 2]>::default());
            let (theirs, seen) = (r.clone(), promised.clone());
            let (sender, receiver) = meet_late(crew, (&s, first, [&promised, &gate]), || {
                crew.go(move || receive_shortly(&theirs, way, &seen))
            });
            assert_eq!(receiver.join(), None, "the message is not there");
            gate.open();
            assert_eq!((r.recv(), sender.join()), (Ok(1), Ok(())));
            assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        }
    });
}

/// Fails by a hang when a call that does not park waits on its thread for as long as the other side takes.
#[test]
fn a_receive_that_does_not_wait_gives_up_what_was_promised() {
    everyone(|crew| {
        let ways: [ShortWay; 2] =
            [|r| r.try_recv().ok(), |r| select! { recv(r) -> got => got.ok(), default => None }];
        for way in ways {
            let ((s, r), [promised, gate]) = (bounded(0), <[Gate; 2]>::default());
            let theirs = r.clone();
            let (sender, receiver) =
                meet_late(crew, (&s, First::Sender, [&promised, &gate]), || on_thread(move || way(&theirs)));
            assert_eq!(receiver.join(), None);
            gate.open();
            assert_eq!((r.recv(), sender.join()), (Ok(1), Ok(())));
        }
    });
}

/// Fails if another channel ends the wait of a select to which a message was promised: its sender would be bound for nothing.
#[test]
fn a_select_to_which_a_message_was_promised_takes_no_other() {
    everyone(|crew| {
        let ((s, r), (other_s, other_r)) = (bounded(0), bounded::<u32>(0));
        let [promised, gate] = <[Gate; 2]>::default();
        let (sender, receiver) = meet_late(crew, (&s, First::Receiver, [&promised, &gate]), || {
            crew.go(move || select! { recv(r) -> got => got, recv(other_r) -> got => got })
        });
        assert_eq!(other_s.try_send(2), Err(TrySendError::Full(2)));
        gate.open();
        assert_eq!((receiver.join(), sender.join()), (Ok(1), Ok(())));
    });
}

/// Fails by a hang when the context is done, and the receiver waits for its promise.
#[test]
fn a_context_ends_the_wait_for_a_promise_and_the_message_goes_to_another() {
    everyone(|crew| {
        for (way, first) in WAYS.into_iter().flat_map(|way| EITHER.map(|first| (way, first))) {
            let ((s, r), [promised, gate]) = (bounded(0), <[Gate; 2]>::default());
            let (ctx, cancel) = Context::background().with_cancel();
            let theirs = r.clone();
            let (sender, receiver) = meet_late(crew, (&s, first, [&promised, &gate]), || {
                crew.go(move || ctx.run(|| way(&theirs)))
            });
            cancel.cancel();
            assert_eq!(receiver.join(), Err(ContextError::Canceled));
            gate.open();
            assert_eq!((r.recv(), sender.join()), (Ok(1), Ok(())));
        }
    });
}

/// Fails if the runtime gives up on a receiver that only waits for a message that a member outside the runtime has promised.
#[test]
fn the_end_of_a_runtime_unwinds_a_receiver_that_waits_for_a_promise() {
    everyone(|crew| {
        for (way, first) in WAYS.into_iter().flat_map(|way| EITHER.map(|first| (way, first))) {
            let ((s, r), [promised, gate], rt) = (bounded(0), <[Gate; 2]>::default(), runtime(2));
            let theirs = r.clone();
            let (sender, _) = meet_late(crew, (&s, first, [&promised, &gate]), || {
                Member::Goroutine(&rt, rt.go(move || way(&theirs)))
            });
            let start = Instant::now();
            assert!(rt.shutdown(LONG).is_clean());
            assert!(start.elapsed() < LONG / 2, "it took {:?}", start.elapsed());
            gate.open();
            assert_eq!((r.recv(), sender.join()), (Ok(1), Ok(())));
        }
    });
}

/// A member that receives, and is told to stop.
fn receiver_that_stops<'a, T: Send + 'static>(
    crew: &Crew<'a>,
    r: &Receiver<T>,
) -> (Member<'a, ContextError>, Cancel) {
    let ((ctx, cancel), r) = (Context::background().with_cancel(), r.clone());
    let receiver = crew.go(move || ctx.run(|| r.recv().is_ok()).expect_err("no message is there"));
    receiver.until_it_waits();
    (receiver, cancel)
}

/// The receiver has gone, and no other comes. Fails by a hang when the send goes on past the limit of its select, or if the
/// message does not come back.
#[test]
fn the_limit_of_a_select_ends_a_send_whose_receiver_has_gone() {
    everyone(|crew| {
        for at_once in [true, false] {
            let ((s, r), [promised, gate]) = (bounded(0), <[Gate; 2]>::default());
            let (receiver, stops) = receiver_that_stops(crew, &r);
            let (tells, passes) = (promised.clone(), gate.clone());
            let sender = crew.go(move || {
                let mut select = Select::new();
                select.send(&s);
                let promise = match at_once {
                    true => select.try_select().expect("somebody waits"),
                    false => select.select_timeout(SHORT_LIMIT).expect("somebody waits"),
                };
                tells.open();
                passes.pass();
                let given_back = promise.send(&s, 1);
                assert!(!s.is_closed());
                given_back
            });
            promised.pass();
            stops.cancel();
            assert_eq!(receiver.join(), ContextError::Canceled);
            gate.open();
            assert_eq!(sender.join(), Err(SendError(1)));
            assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
        }
    });
}

/// Counts its drop.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The receiver has gone. Fails by a hang when the context does not end the send, or if its message is lost.
#[test]
fn a_context_ends_a_send_whose_receiver_has_gone() {
    everyone(|crew| {
        let ((s, r), gate, drops) = (bounded(0), Gate::default(), Arc::new(AtomicUsize::new(0)));
        let (ctx, cancel) = Context::background().with_cancel();
        let (receiver, stops) = receiver_that_stops(crew, &r);
        let (message, passes, promised) = (Counted(Arc::clone(&drops)), gate.clone(), Gate::default());
        let tells = promised.clone();
        let sender = crew.go(move || {
            ctx.run(|| {
                let mut select = Select::new();
                select.send(&s);
                let promise = select.select();
                tells.open();
                passes.pass();
                promise.send(&s, message).is_ok()
            })
        });
        promised.pass();
        stops.cancel();
        assert_eq!(receiver.join(), ContextError::Canceled);
        gate.open();
        cancel.cancel();
        assert_eq!(sender.join(), Err(ContextError::Canceled));
        assert_eq!(drops.load(SeqCst), 1);
        assert!(r.is_closed(), "its sender is gone");
    });
}
