//! A timer channel serves the receivers that wait one after the other; a receiver that leaves passes its turn on.

use common::bolt::bolted;
use common::cpu::cost;
use common::crew::{Crew, Member, each, everyone, join_all};
use common::foreign::Task;
use common::gate::Gate;
use common::{runtime, until};
use gmp::chan::{Receiver, Select, TryRecvError, bounded, never, tick};
use gmp::context::Context;
use gmp::time::{Ticker, Timer};
use gmp::{block_on, select};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{self, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);
const HOUR: Duration = Duration::from_secs(3600);

/// The ways to wait for a time.
type Way = fn(&Receiver<Instant>);
const WAYS: [Way; 4] = [
    |r| assert!(r.recv().is_ok()),
    |r| select! { recv(r) -> at => assert!(at.is_ok()), recv(never::<()>()) -> _ => unreachable!() },
    |r| {
        let mut select = Select::new();
        select.recv(r);
        assert!(select.select().recv(r).is_ok());
    },
    |r| assert!(block_on(r.recv_async()).is_ok()),
];

/// Fails if a receiver that comes back is served before one that has waited longer.
#[test]
fn the_times_of_one_channel_go_round() {
    const WAITERS: usize = 3;
    everyone(|crew| {
        // A slow task may be passed over.
        let ways = &WAYS[..3];
        for first in 0..ways.len() {
            let (timer, got) = (Timer::new(HOUR), Arc::new(Mutex::new(Vec::new())));
            let waiters: Vec<_> = (0..WAITERS)
                .map(|number| {
                    let (r, got) = (timer.receiver().clone(), Arc::clone(&got));
                    let waiter = crew.go(move || {
                        for _ in 0..3 {
                            ways[(first + number) % ways.len()](&r);
                            got.lock().unwrap().push(number);
                        }
                    });
                    waiter.until_it_waits();
                    waiter
                })
                .collect();
            for turn in 0..3 * WAITERS {
                timer.reset(Duration::ZERO);
                until(|| got.lock().unwrap().len() > turn);
                waiters.iter().for_each(Member::until_it_waits);
            }
            join_all(waiters);
            assert_eq!(*got.lock().unwrap(), [0, 1, 2, 0, 1, 2, 0, 1, 2], "{first}");
        }
    });
}

/// Fails if one of the members that share a ticker has next to none of its times: a busy machine may keep a member from a few
/// hundred of them.
#[test]
fn a_ticker_is_shared_by_its_receivers() {
    const SHARE: usize = 5;
    const MOST: usize = 200;
    everyone(|crew| {
        for first in 0..WAYS.len() {
            let (ticks, counts) = (tick(Duration::from_millis(1)), Arc::new([0; 4].map(AtomicUsize::new)));
            let seen = |counts: &[AtomicUsize; 4]| counts.each_ref().map(|it| it.load(SeqCst));
            let (theirs, begun) = (Arc::clone(&counts), Arc::new(AtomicUsize::new(0)));
            join_all(each(crew, 4, move |number| {
                begun.fetch_add(1, SeqCst);
                until(|| begun.load(SeqCst) == 4);
                let goes_on = |counts: [usize; 4]| {
                    counts.iter().any(|it| *it < SHARE) && counts.iter().sum::<usize>() < MOST
                };
                while goes_on(seen(&theirs)) {
                    WAYS[(first + number) % WAYS.len()](&ticks);
                    theirs[number].fetch_add(1, SeqCst);
                }
            }));
            assert!(seen(&counts).iter().all(|it| *it >= SHARE), "{first}: {counts:?}");
        }
    });
}

/// A waiter has the turn, and leaves when told to, or a moment later; usually without the time. Returns `true` if the waiter
/// got the time.
type Leaves = fn(&Receiver<Instant>, &Receiver<()>) -> bool;
const LEAVE: [Leaves; 4] = [
    |r, _| r.recv_timeout(SHORT_LIMIT).is_ok(),
    |r, _| select! { recv(r) -> _ => true, default(SHORT_LIMIT) => false },
    |r, told| select! { recv(r) -> _ => true, recv(told) -> _ => false },
    |r, told| {
        let (task, mut future) = (Task::new(), pin!(r.recv_async()));
        let has = task.poll(future.as_mut()).is_ready();
        assert!(told.recv().is_err());
        has
    },
];

fn is_canceled(r: &Receiver<Instant>, told: &Receiver<()>) -> bool {
    let ((ctx, cancel), told) = (Context::background().with_cancel(), told.clone());
    let _at_its_time = thread::spawn(move || {
        assert!(told.recv().is_err());
        cancel.cancel();
    });
    ctx.run(|| r.recv()).is_ok()
}

/// The first waiter leaves while a second waits. Fails by a hang if the second does not hear that it has the turn now.
fn is_followed(crew: &Crew<'_>, leaves: Leaves) {
    for way in WAYS {
        let (timer, (tells, told)) = (Timer::new(10 * SHORT_LIMIT), bounded(0));
        let r = timer.receiver().clone();
        let first = crew.go(move || leaves(&r, &told));
        first.until_it_waits();
        let r = timer.receiver().clone();
        let second = crew.go(move || way(&r));
        second.until_it_waits();
        drop(tells);
        if first.join() {
            timer.reset(Duration::ZERO);
        }
        second.join();
    }
}

#[test]
fn a_turn_is_not_lost_with_a_receiver_that_leaves() {
    everyone(|crew| LEAVE.into_iter().for_each(|leaves| is_followed(crew, leaves)));
}

#[test]
fn a_turn_is_not_lost_with_a_receiver_that_is_interrupted() {
    everyone(|crew| is_followed(crew, is_canceled));
}

/// As above, but the first waiter is a goroutine that its runtime leaves behind.
#[test]
fn a_turn_is_not_lost_with_a_receiver_that_is_left_behind() {
    everyone(|crew| {
        for (procs, (left, way)) in
            [1, 2].into_iter().flat_map(|n| WAYS.into_iter().zip(WAYS).map(move |ways| (n, ways)))
        {
            let (timer, rt, has) = (Timer::new(10 * SHORT_LIMIT), runtime(procs), Gate::default());
            let (r, tells) = (timer.receiver().clone(), has.clone());
            let first = rt.go(move || {
                bolted(|| left(&r));
                tells.open();
            });
            Member::Goroutine(&rt, first).until_it_waits();
            let r = timer.receiver().clone();
            let second = crew.go(move || way(&r));
            second.until_it_waits();
            rt.shutdown(Duration::ZERO);
            if has.is_open() {
                timer.reset(Duration::ZERO);
            }
            second.join();
        }
    });
}

fn is_ready<F: Future>(task: &Task, future: &mut Pin<Box<F>>) -> bool {
    task.poll(future.as_mut()).is_ready()
}

/// Two tasks are not polled any more. Fails by a hang if another waits for them, or if they are not polled in their turn later.
#[test]
fn a_task_that_is_not_polled_holds_up_no_other_for_long() {
    everyone(|crew| {
        for way in WAYS {
            let (tasks, ticks) = ([(); 2].map(|()| Task::new()), tick(SHORT_LIMIT));
            let mut futures = tasks.each_ref().map(|_| Box::pin(ticks.recv_async()));
            let had = [0, 1].map(|at| is_ready(&tasks[at], &mut futures[at]));
            let r = ticks.clone();
            crew.run(move || (0..3).for_each(|_| way(&r)));
            for at in [0, 1] {
                // One task after the other: no other receiver waits now.
                while !had[at] && !is_ready(&tasks[at], &mut futures[at]) {
                    thread::yield_now();
                }
            }
        }
    });
}

/// Fails if a call that does not wait takes the time of a waiter.
#[test]
fn a_call_that_does_not_wait_takes_nothing_from_a_waiter() {
    everyone(|crew| {
        for way in &WAYS[..3] {
            let (timer, gate) = (Timer::new(HOUR), Gate::default());
            let (r, opened, way) = (timer.receiver().clone(), gate.clone(), *way);
            let waiter = crew.go(move || {
                way(&r);
                opened.open();
            });
            waiter.until_it_waits();
            timer.reset(Duration::ZERO);
            while !gate.is_open() {
                assert_eq!(timer.receiver().try_recv(), Err(TryRecvError::Empty));
                assert!(select! { recv(timer.receiver()) -> _ => false, default => true });
                gmp::yield_now();
            }
            waiter.join();
        }
    });
}

/// A poll unwinds as it clones the waker for a new wait, when the future has left its last wait; the time comes before the next
/// poll. Fails by a panic, in builds that check this, when the record is dropped while it is queued.
#[test]
fn a_poll_that_unwinds_leaves_the_future_in_its_place() {
    static CLONES: AtomicUsize = AtomicUsize::new(0);
    fn clone(_: *const ()) -> RawWaker {
        assert_eq!(CLONES.fetch_add(1, SeqCst), 0, "a second clone");
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    // SAFETY: the functions do nothing with the pointer.
    let bomb = unsafe { Waker::new(std::ptr::null(), &TABLE) };
    let (begun, times) = (Instant::now(), tick(Duration::from_millis(30)));
    let (task, mut receives) = (Task::new(), pin!(times.recv_async()));
    assert!(task.poll(receives.as_mut()).is_pending());
    let poll = || receives.as_mut().poll(&mut task::Context::from_waker(&bomb)).is_ready();
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    until(|| begun.elapsed() > Duration::from_millis(50));
    assert!(task.poll(receives.as_mut()).is_ready());
    assert!(times.recv().is_ok());
}

/// Returns the least of three times that a thread spends on `tasks` tasks which wait for one channel, are polled again in vain,
/// and leave, the last one first.
fn least_cost_of_sharing(tasks: usize) -> Duration {
    let share = || {
        let ticks = tick(HOUR);
        let mut futures: Vec<_> = (0..tasks).map(|_| Box::pin(ticks.recv_async())).collect();
        for _ in 0..2 {
            for future in &mut futures {
                assert!(future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
            }
        }
        while futures.pop().is_some() {}
    };
    (0..3).map(|_| cost(share)).min().unwrap()
}

/// Fails when each task looks at all that wait before it: four times as many tasks then take sixteen times as long.
#[test]
fn many_tasks_share_a_channel() {
    let (few, many) = (least_cost_of_sharing(2500), least_cost_of_sharing(10_000));
    assert!(many < 9 * few + Duration::from_millis(20), "{few:?}, {many:?}");
}

/// Returns the least of three times that a thread spends on the end of `tasks` tasks which a receiver has passed, the first one
/// first.
fn least_cost_of_passed(tasks: usize) -> Duration {
    let end = || {
        let ticker = Ticker::new(HOUR);
        let mut futures: Vec<_> = (0..tasks).map(|_| Box::pin(ticker.receiver().recv_async())).collect();
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
        }
        ticker.reset(Duration::from_millis(1));
        assert!(ticker.receiver().recv().is_ok());
        ticker.reset(HOUR);
        cost(move || futures.drain(..).for_each(drop))
    };
    (0..3).map(|_| end()).min().unwrap()
}

/// Fails when each task that leaves looks at all those behind, though it holds nobody back: four times as many tasks then take
/// sixteen times as long.
#[test]
fn many_tasks_that_were_passed_leave() {
    let (few, many) = (least_cost_of_passed(500), least_cost_of_passed(2000));
    assert!(many < 9 * few + Duration::from_millis(20), "{few:?}, {many:?}");
}
