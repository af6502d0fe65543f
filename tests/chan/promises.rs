//! A send that a select has chosen is a promise: its message is still to come. Meanwhile no waiter is overtaken; and
//! whether the promise is kept, withdrawn, or left behind by the end of a runtime, the receiver that waits for it is
//! told.

use common::crew::{CREWS, Crew, Member, each, everyone, join_all, on_thread};
use common::gate::Gate;
use common::random::{Random, rounds};
use common::{PROCS, runtime};
use gmp::chan::{
    Receiver, RecvError, Select, SelectedOperation, SendError, Sender, TrySendError, bounded, never,
};
use gmp::context::Context;
use gmp::{Runtime, select, select_biased};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const SHORT_LIMIT: Duration = Duration::from_millis(3);

/// Longer than the end of a runtime takes.
const LONG: Duration = Duration::from_secs(20);

/// A chosen send, which can go on at once.
pub(super) fn promise(s: &Sender<u32>) -> SelectedOperation<'_> {
    let mut select = Select::new();
    select.send(s);
    select.try_select().expect("a send is ready")
}

/// Withdraws a promise: its message unwinds.
pub(super) fn call_off(promise: SelectedOperation<'_>) {
    let unwound: Result<Infallible, _> = catch_unwind(AssertUnwindSafe(move || {
        let _promise = promise;
        resume_unwind(Box::new("no message"))
    }));
    let Err(payload) = unwound;
    assert_eq!(payload.downcast_ref(), Some(&"no message"));
}

/// Makes a member promise a message and, when `meanwhile` is over, do this with the promise, without a pause.
pub(super) fn in_suspense<T: Send + 'static>(
    crew: &Crew<'_>,
    s: &Sender<u32>,
    meanwhile: impl FnOnce(),
    then: impl FnOnce(SelectedOperation<'_>, &Sender<u32>) -> T + Send + 'static,
) -> T {
    let (promised, over) = (Gate::default(), Gate::default());
    let member = crew.go({
        let (s, promised, over) = (s.clone(), promised.clone(), over.clone());
        move || {
            let promise = promise(&s);
            promised.open();
            over.pass();
            then(promise, &s)
        }
    });
    promised.pass();
    meanwhile();
    over.open();
    member.join()
}

/// Makes the next member do this, and returns when that member waits.
pub(super) fn waiting<'a, T: Send + 'static>(
    crew: &Crew<'a>,
    f: impl FnOnce() -> T + Send + 'static,
) -> Member<'a, T> {
    let member = crew.go(f);
    member.until_it_waits();
    member
}

/// Makes the next member wait to send this.
fn waiting_to_send<'a>(
    crew: &Crew<'a>,
    s: &Sender<u32>,
    message: u32,
) -> Member<'a, Result<(), SendError<u32>>> {
    let s = s.clone();
    waiting(crew, move || s.send(message))
}

/// Fails if the second message comes first: the receiver was put back, and then took the message of a later sender.
#[test]
fn a_sender_that_waits_is_not_overtaken_by_way_of_a_receiver_that_was_put_back() {
    everyone(|crew| {
        let (s, r) = bounded(0);
        let receiver = waiting(crew, move || [r.recv(), r.recv()]);
        let mut first = None;
        let second = in_suspense(
            crew,
            &s,
            || first = Some(waiting_to_send(crew, &s, 1)),
            |promise, s| {
                call_off(promise);
                s.send(2)
            },
        );
        assert_eq!(receiver.join(), [Ok(1), Ok(2)]);
        assert_eq!((first.unwrap().join(), second), (Ok(()), Ok(())));
    });
}

/// Fails if a receiver that comes later has the first message: the receiver that was put back has waited longer.
#[test]
fn a_receiver_that_was_put_back_is_not_overtaken() {
    everyone(|crew| {
        let (s, r) = bounded(0);
        let theirs = r.clone();
        let first = waiting(crew, move || theirs.recv());
        let mut sender = None;
        let second = in_suspense(
            crew,
            &s,
            || {
                let s = s.clone();
                sender = Some(waiting(crew, move || (s.send(1), s.send(2))));
            },
            move |promise, _| {
                call_off(promise);
                r.recv()
            },
        );
        assert_eq!((first.join(), second), (Ok(1), Ok(2)));
        assert_eq!(sender.unwrap().join(), (Ok(()), Ok(())));
    });
}

/// A receiver waits for the promised message. Fails if a message that came later goes to this receiver, or if a watcher is told
/// that one could.
#[test]
fn nobody_overtakes_a_promise_nor_a_sender_that_waits() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let (mut senders, mut receiver) = (Vec::new(), None);
        in_suspense(
            crew,
            &s,
            || {
                senders.push(waiting_to_send(crew, &s, 1));
                receiver = Some(waiting(crew, move || r.iter().collect::<Vec<_>>()));
                let mut watch = Select::new();
                watch.send(&s);
                assert!(watch.try_ready().is_err(), "the only place is promised");
                assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
                senders.push(waiting_to_send(crew, &s, 2));
            },
            |promise, s| promise.send(s, 0).unwrap(),
        );
        assert_eq!(join_all(senders), [Ok(()), Ok(())]);
        drop(s);
        assert_eq!(receiver.unwrap().join(), [0, 1, 2]);
    });
}

/// Starts a member that watches for a message to receive, and returns when that member waits.
fn watcher<'a>(crew: &Crew<'a>, r: &Receiver<u32>) -> Member<'a, usize> {
    let r = r.clone();
    waiting(crew, move || {
        let mut select = Select::new();
        select.recv(&r);
        select.ready()
    })
}

/// Fails by a hang when no member tells the watcher that the channel is now drained.
#[test]
fn a_watcher_of_a_closed_channel_hears_that_the_last_promise_is_called_off() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let mut watches = None;
        let meanwhile = || {
            assert!(s.close());
            watches = Some(watcher(crew, &r));
        };
        in_suspense(crew, &s, meanwhile, |promise, _| call_off(promise));
        assert_eq!(watches.unwrap().join(), 0);
        assert_eq!(r.recv(), Err(RecvError));
    });
}

/// As above, but the message goes to a receiver that waits, and only the end is left for the watcher to see.
#[test]
fn a_watcher_of_a_closed_channel_hears_that_the_last_promise_was_kept() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let (mut receives, mut watches) = (None, None);
        let meanwhile = || {
            assert!(s.close());
            let theirs = r.clone();
            receives = Some(waiting(crew, move || theirs.recv()));
            watches = Some(watcher(crew, &r));
        };
        in_suspense(crew, &s, meanwhile, |promise, s| promise.send(s, 7).unwrap());
        assert_eq!(receives.unwrap().join(), Ok(7));
        assert_eq!(watches.unwrap().join(), 0);
        assert_eq!(r.recv(), Err(RecvError));
    });
}

/// A task is granted the first message, and a receiver behind it is promised the second one. The task is dropped. Fails if the
/// receiver gets the second message, and then the first.
#[test]
fn what_a_task_gives_back_comes_before_what_was_promised_after_it() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let mut granted = Box::pin(r.recv_async());
        let task = common::foreign::Task::new();
        assert!(task.poll(granted.as_mut()).is_pending());
        let receives = {
            let r = r.clone();
            waiting(crew, move || [r.recv(), r.recv()])
        };
        s.send(1).unwrap();
        in_suspense(crew, &s, || drop(granted), |promise, s| promise.send(s, 2).unwrap());
        assert_eq!(receives.join(), [Ok(1), Ok(2)]);
    });
}

/// Fails if a receive whose limit has passed gives up at once, although a sender came in time.
#[test]
fn a_receive_waits_a_moment_past_its_limit_for_what_was_promised_to_it() {
    everyone(|crew| {
        let meet = || {
            let (s, r) = bounded(0);
            let sender = waiting(crew, move || select! { send(s, 1) -> sent => sent });
            let (first, second) = crew.run(move || {
                let first = r.recv_timeout(Duration::ZERO).ok();
                (first, first.map_or_else(|| r.recv().ok(), |_| None))
            });
            assert_eq!((first.or(second), sender.join()), (Some(1), Ok(())));
            first.is_some()
        };
        // Most tries succeed, but a busy machine may delay one.
        assert!((0..20).any(|_| meet()));
    });
}

/// Returns what a receive with a limit, or a receive that does not wait, has returned: a message, if any.
type InTime = fn(&Receiver<u32>) -> Option<u32>;

const IN_TIME: [InTime; 6] = [
    |r| r.try_recv().ok(),
    |r| r.recv_timeout(SHORT_LIMIT).ok(),
    |r| select! { recv(r) -> got => got.ok(), default => None },
    |r| select! { recv(r) -> got => got.ok(), default(SHORT_LIMIT) => None },
    |r| {
        let mut select = Select::new();
        select.recv(r);
        select.try_select().ok().and_then(|chosen| chosen.recv(r).ok())
    },
    |r| {
        let mut select = Select::new();
        select.recv(r);
        select.select_timeout(SHORT_LIMIT).ok().and_then(|chosen| chosen.recv(r).ok())
    },
];

/// Fails if a receive asks one sender after the other past its limit: the senders withdraw their promises, come back at once,
/// and send after a long time of that.
#[test]
fn senders_that_withdraw_and_come_back_do_not_keep_a_receive_past_its_limit() {
    everyone(|crew| {
        for in_time in IN_TIME {
            let ((s, r), (stop, stopped)) = (bounded(0), bounded::<Infallible>(0));
            let start = Instant::now();
            let senders = each(crew, 4, move |_| {
                let message = || (start.elapsed() > LONG / 2).then_some(1);
                loop {
                    select! {
                        send(s, match message() { Some(message) => message, None => continue }) -> _ => break,
                        recv(stopped) -> _ => break,
                    }
                }
            });
            senders.iter().for_each(Member::until_it_waits);
            assert_eq!(crew.run(move || in_time(&r)), None, "{:?}", start.elapsed());
            drop(stop);
            join_all(senders);
        }
    });
}

/// Waits to send a message that takes this long to make, withdraws it, and repeats this until stopped.
fn withdraws<'a>(
    crew: &Crew<'a>,
    s: &Sender<u32>,
    after: Duration,
    stopped: &Receiver<Infallible>,
) -> Member<'a, ()> {
    let (s, stopped) = (s.clone(), stopped.clone());
    waiting(crew, move || {
        let message = || {
            gmp::time::sleep(after);
            None
        };
        loop {
            select! {
                send(s, match message() { Some(message) => message, None => continue }) -> _ => break,
                recv(stopped) -> _ => break,
            }
        }
    })
}

/// Senders keep a receive past its limit with a promise, and withdraw it. Fails if the receive ends with nothing although
/// another sender, behind those, had a message throughout.
#[test]
fn a_receive_that_ends_at_its_limit_takes_what_is_there() {
    everyone(|crew| {
        for (in_time, (count, after)) in IN_TIME
            .into_iter()
            .flat_map(|in_time| [(2, 2 * SHORT_LIMIT), (1, 8 * SHORT_LIMIT)].map(|it| (in_time, it)))
        {
            let ((s, r), (stop, stopped)) = (bounded(0), bounded(0));
            let mut senders: Vec<_> = (0..count).map(|_| withdraws(crew, &s, after, &stopped)).collect();
            senders.push(waiting(crew, move || s.send(9).unwrap()));
            assert_eq!(crew.run(move || in_time(&r)), Some(9));
            drop(stop);
            join_all(senders);
        }
    });
}

/// As above, but another arm's channel has the message.
#[test]
fn a_select_that_ends_at_its_limit_takes_what_another_arm_has() {
    everyone(|crew| {
        type Second = fn(&Receiver<u32>, &Receiver<u32>) -> bool;
        let ways: [Second; 3] = [
            |a, b| select_biased! { recv(a) -> _ => false, recv(b) -> _ => true, default => false },
            |a, b| select! { recv(a) -> _ => false, recv(b) -> _ => true, default(SHORT_LIMIT) => false },
            |a, b| {
                let mut select = Select::new();
                let (_, b_is) = (select.recv(a), select.recv(b));
                select.try_select().is_ok_and(|chosen| chosen.index() == b_is && chosen.recv(b).is_ok())
            },
        ];
        for way in ways {
            let ((s, a), (stop, stopped), (has, b)) = (bounded(0), bounded(0), bounded(1));
            let sender = withdraws(crew, &s, 8 * SHORT_LIMIT, &stopped);
            has.send(7).unwrap();
            assert!(crew.run(move || way(&a, &b)));
            drop(stop);
            sender.join();
        }
    });
}

/// A member waits in a `select!` to send, or to be stopped. Fails if `receive`, which is interrupted before it waits, leaves
/// the sender with its send alone: the sender does not hear that it is to stop.
fn is_not_bound_by(crew: &Crew<'_>, receive: impl FnOnce(&Receiver<u32>)) {
    let ((s, r), (stop, stopped)) = (bounded(0), bounded::<Infallible>(0));
    let sender = waiting(crew, move || {
        select! { send(s, 1) -> _ => false, recv(stopped) -> _ => true }
    });
    receive(&r);
    sender.until_it_waits();
    drop(stop);
    assert_eq!(r.recv(), Err(RecvError));
    assert!(sender.join());
}

#[test]
fn a_receive_under_a_context_that_is_done_binds_no_sender() {
    everyone(|crew| {
        for way in WAYS.into_iter().chain([in_the_dynamic_form as Way]) {
            is_not_bound_by(crew, |r| {
                let (ctx, cancel) = Context::background().with_cancel();
                cancel.cancel();
                let r = r.clone();
                assert!(crew.run(move || ctx.run(|| way(&r)).is_err()));
            });
        }
    });
}

#[test]
fn a_receive_that_the_end_of_its_runtime_meets_binds_no_sender() {
    everyone(|crew| {
        for (procs, way) in PROCS.into_iter().flat_map(|procs| WAYS.map(|way| (procs, way))) {
            is_not_bound_by(crew, |r| {
                let (rt, runs, gate, r) = (runtime(procs), Gate::default(), Gate::default(), r.clone());
                drop(rt.go({
                    let (runs, gate) = (runs.clone(), gate.clone());
                    move || {
                        runs.open();
                        while !gate.is_open() {
                            thread::yield_now();
                        }
                        unreachable!("{:?}", way(&r));
                    }
                }));
                runs.pass();
                end_of_kept(rt, &gate, true);
            });
        }
    });
}

/// A thread runs under a context that is done. Fails if a call unwinds that is not documented to unwind.
#[test]
fn a_receive_that_does_not_wait_is_not_interrupted() {
    everyone(|crew| {
        for try_recv in [IN_TIME[0], IN_TIME[2], IN_TIME[4]] {
            let (s, r) = bounded(0);
            let goes_on = Gate::default();
            let sender = waiting(crew, {
                let goes_on = goes_on.clone();
                move || {
                    let message = || {
                        goes_on.pass();
                        1
                    };
                    select! { send(s, message()) -> sent => sent, default(LONG) => Ok(()) }
                }
            });
            let (ctx, cancel) = Context::background().with_cancel();
            cancel.cancel();
            let theirs = r.clone();
            // The sender comes only after this receive has given up.
            assert_eq!(on_thread(move || ctx.run(|| try_recv(&theirs))).join(), Ok(None));
            goes_on.open();
            assert_eq!((r.recv(), sender.join()), (Ok(1), Ok(())));
        }
    });
}

/// The only slot of a buffer is promised. Fails if a watcher is told of a receiver, or of a sender, that waits: no operation
/// could complete.
#[test]
fn a_watcher_of_a_promised_slot_hears_only_of_what_could_complete() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        let (mut receives, mut watches) = (None, None);
        let meanwhile = || {
            let theirs = s.clone();
            let watcher = waiting(crew, move || {
                let mut select = Select::new();
                select.send(&theirs);
                select.ready();
                theirs.try_send(2)
            });
            let theirs = r.clone();
            receives = Some(waiting(crew, move || theirs.recv()));
            watcher.until_it_waits();
            assert!(!watcher.is_finished());
            watches = Some(watcher);
        };
        in_suspense(crew, &s, meanwhile, |promise, s| promise.send(s, 1).unwrap());
        assert_eq!((receives.unwrap().join(), watches.unwrap().join()), (Ok(1), Ok(())));
        assert_eq!(r.recv(), Ok(2));

        let mut watches = None;
        let meanwhile = || {
            let theirs = r.clone();
            let watcher = waiting(crew, move || {
                let mut select = Select::new();
                select.recv(&theirs);
                select.ready();
                theirs.try_recv()
            });
            let sender = waiting_to_send(crew, &s, 4);
            watcher.until_it_waits();
            assert!(!watcher.is_finished());
            watches = Some((watcher, sender));
        };
        in_suspense(crew, &s, meanwhile, |promise, s| promise.send(s, 3).unwrap());
        let (watcher, sender) = watches.unwrap();
        assert_eq!((watcher.join(), sender.join(), r.recv()), (Ok(3), Ok(()), Ok(4)));
    });
}

/// The ways to wait for a message.
pub(super) type Way = fn(&Receiver<u32>) -> Result<u32, RecvError>;

pub(super) const WAYS: [Way; 2] =
    [|r| r.recv(), |r| select! { recv(r) -> got => got, recv(never::<()>()) -> _ => unreachable!() }];

pub(super) fn in_the_dynamic_form(r: &Receiver<u32>) -> Result<u32, RecvError> {
    let mut select = Select::new();
    select.recv(r);
    select.select().recv(r)
}

/// Ends a runtime whose Ps are kept, and opens the gate when the end has begun; or when it is over.
pub(super) fn end_of_kept(rt: Runtime, gate: &Gate, in_time: bool) {
    if in_time {
        let ending = on_thread(move || rt.shutdown(LONG));
        ending.until_it_waits();
        gate.open();
        ending.join();
    } else {
        rt.shutdown(SHORT_LIMIT);
        gate.open();
    }
}

/// Fails if a message overtakes another of the same sender, or is lost, while promises among them are called off.
#[test]
fn each_senders_order_is_kept_among_promises_that_are_called_off() {
    everyone(|crew| {
        for cap in [0, 1, 2] {
            let count = rounds(60_000 / CREWS / 3);
            let (s, r) = bounded(cap);
            let theirs = s.clone();
            let senders =
                each(crew, 3, move |me| (0..count).for_each(|message| theirs.send((me, message)).unwrap()));
            let failing = each(crew, 2, move |me| {
                let mut random = Random::new(me);
                for round in 0..count {
                    let chosen = catch_unwind(AssertUnwindSafe(|| {
                        let mut nothing = || {
                            if round % 2 == 0 {
                                gmp::yield_now()
                            } else {
                                random.pause(100)
                            }
                            resume_unwind(Box::new("no message"))
                        };
                        select! { send(s, nothing()) -> _ => unreachable!(), default(SHORT_LIMIT / 60) => {} }
                    }));
                    if let Err(payload) = chosen {
                        assert_eq!(payload.downcast_ref(), Some(&"no message"));
                    }
                }
            });
            let receiver = crew.go(move || {
                let mut next = [0; 3];
                for (me, message) in r {
                    assert_eq!(message, next[me], "of sender {me}");
                    next[me] += 1;
                }
                next
            });
            join_all(senders);
            join_all(failing);
            assert_eq!(receiver.join(), [count; 3]);
        }
    });
}
