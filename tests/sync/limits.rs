//! Waits with a limit of their own: of `Event`, `WaitGroup`, `ErrGroup`, `OnceLock` and `Barrier`.

use common::crew::{Crew, everyone};
use common::foreign::{Task, run};
use common::gate::Gate;
use common::{everywhere, until};
use gmp::sync::{Barrier, ErrGroup, Event, OnceLock, WaitGroup};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(600);

/// A wait for an object, for a duration and until a time.
struct Operation<W> {
    name: &'static str,
    new: fn() -> W,
    /// Both return `true` if the wait ended before the limit.
    for_a_time: fn(&W, Duration) -> bool,
    until_then: fn(&W, Instant) -> bool,
    /// Ends a wait.
    comes: fn(&W),
}

impl<W: Send + Sync + 'static> Operation<W> {
    fn check(self, crew: &Crew<'_>) {
        let Operation { name, new, for_a_time, until_then, comes } = self;
        let world = Arc::new(new());
        // The limit passes before the wait is ended.
        let theirs = Arc::clone(&world);
        crew.run(move || {
            let begin = Instant::now();
            assert!(!for_a_time(&theirs, SHORT), "{name}: it has not come");
            assert!(!until_then(&theirs, begin + 2 * SHORT), "{name}: it has not come");
            assert!(begin.elapsed() >= 2 * SHORT, "{name}: the limit came early");
            assert!(!until_then(&theirs, begin) && !for_a_time(&theirs, Duration::ZERO), "{name}: at once");
        });
        // The wait is ended while waiters are there.
        let theirs = Arc::clone(&world);
        let waiter = crew.go(move || for_a_time(&theirs, LONG));
        waiter.until_it_waits();
        comes(&world);
        assert!(waiter.join(), "{name}: not heard in time");
        let world = Arc::new(new());
        let theirs = Arc::clone(&world);
        let waiter = crew.go(move || until_then(&theirs, Instant::now() + LONG));
        waiter.until_it_waits();
        comes(&world);
        assert!(waiter.join(), "{name}: not heard in time");
    }
}

/// Fails by a hang when a limit does not end the wait; by the clock when it ends early; or when a wait ends in vain.
#[test]
fn a_limit_ends_a_wait_in_which_nothing_comes() {
    everyone(|crew| {
        Operation {
            name: "Event",
            new: Event::new,
            for_a_time: |event, limit| !event.wait_timeout(limit).timed_out(),
            until_then: |event, limit| !event.wait_deadline(limit).timed_out(),
            comes: Event::notify_one,
        }
        .check(crew);
        let of_one = || {
            let tasks = WaitGroup::new();
            tasks.add(1);
            tasks
        };
        Operation {
            name: "WaitGroup",
            new: of_one,
            for_a_time: |tasks, limit| !tasks.wait_timeout(limit).timed_out(),
            until_then: |tasks, limit| !tasks.wait_deadline(limit).timed_out(),
            comes: WaitGroup::done,
        }
        .check(crew);
        Operation {
            name: "OnceLock",
            new: OnceLock::new,
            for_a_time: |cell, limit| cell.wait_timeout(limit) == Some(&1),
            until_then: |cell, limit| cell.wait_deadline(limit) == Some(&1),
            comes: |cell| cell.set(1).unwrap(),
        }
        .check(crew);
        // A waiter that comes here must not come at a limit, as the two would meet. Waiters that have left do not count.
        Operation {
            name: "Barrier",
            new: || Barrier::new(2),
            for_a_time: |barrier, limit| barrier.wait_timeout(limit).is_some_and(|it| !it.is_leader()),
            until_then: |barrier, limit| barrier.wait_deadline(limit).is_some_and(|it| !it.is_leader()),
            comes: |barrier| assert!(barrier.wait_timeout(LONG).unwrap().is_leader()),
        }
        .check(crew);
    });
}

/// Fails when an error is lost with a wait that was given up, or is told twice; or when such a wait ends the group's context.
#[test]
fn a_group_that_was_waited_for_in_vain_tells_the_next_one() {
    everywhere(|rt| {
        let (go_on, hears) = gmp::chan::bounded::<()>(0);
        let (group, context) = rt.run(move || {
            let (group, context) = ErrGroup::with_context(&gmp::context::Context::background());
            group.go(move || if hears.recv().is_err() { Err("first") } else { Ok(()) });
            assert_eq!(group.wait_timeout(SHORT), None);
            assert_eq!(group.wait_deadline(Instant::now()), None);
            (group, context)
        });
        assert_eq!(group.wait_timeout(SHORT), None, "on a plain thread");
        assert!(context.err().is_none());
        let mut waits = pin!(group.wait_async());
        let task = Task::new();
        assert!(task.poll(waits.as_mut()).is_pending());
        let mut goes = Box::pin(group.wait_async());
        assert!(task.poll(goes.as_mut()).is_pending());
        drop((go_on, goes));
        until(|| task.wakes() > 0);
        assert_eq!(task.poll(waits.as_mut()), std::task::Poll::Ready(Err("first")));
        assert!(context.err().is_some());
        assert_eq!(
            (group.wait_timeout(SHORT), group.wait_deadline(Instant::now())),
            (Some(Ok(())), Some(Ok(())))
        );
    });
}

/// Fails when the end of the future does not pass on a panic of a task, or the error behind it.
#[test]
fn a_future_of_a_group_tells_of_a_panic_as_the_wait_does() {
    everywhere(|rt| {
        let group = rt.run(|| {
            let group = ErrGroup::new();
            group.go(|| resume_unwind(Box::new("a bug")));
            group.go(|| Err(1));
            group
        });
        let panic = catch_unwind(AssertUnwindSafe(|| run(group.wait_async()))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a bug"));
        assert_eq!((run(group.wait_async()), run(group.wait_async())), (Err(1), Ok(())));
    });
}

/// Fails when a closure that unwinds ends the wait before there is a value; or by a hang when the waiters are not told of the
/// value that is made later.
#[test]
fn a_closure_that_unwinds_ends_no_wait_for_the_value() {
    everyone(|crew| {
        let cell = Arc::new(OnceLock::<u32>::new());
        let theirs = Arc::clone(&cell);
        let waiter = crew.go(move || theirs.wait_timeout(LONG).copied());
        let theirs = Arc::clone(&cell);
        waiter.until_it_waits();
        let task = Task::new();
        let mut waits = Box::pin(cell.wait_async());
        assert!(task.poll(waits.as_mut()).is_pending());
        let fails = crew.go(move || {
            let unwinds = || theirs.get_or_init(|| resume_unwind(Box::new("on purpose")));
            assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err());
            assert_eq!((theirs.wait_timeout(SHORT), theirs.get()), (None, None));
        });
        fails.join();
        assert!(!waiter.is_finished());
        assert!(task.wakes() == 1 && task.poll(waits.as_mut()).is_pending());
        cell.set(7).unwrap();
        assert_eq!((waiter.join(), run(waits)), (Some(7), &7));
    });
}

/// Fails by a hang when a notification goes to a waiter whose limit has passed.
#[test]
fn a_waiter_that_has_left_an_event_takes_no_notification() {
    everyone(|crew| {
        let event = Arc::new(Event::new());
        let (theirs, left) = (Arc::clone(&event), Gate::default());
        let leaves = left.clone();
        let stays = crew.go(move || theirs.wait_timeout(LONG).timed_out());
        stays.until_it_waits();
        let theirs = Arc::clone(&event);
        let goes = crew.go(move || {
            let late = theirs.wait_timeout(SHORT).timed_out();
            leaves.open();
            late
        });
        left.pass();
        assert!(goes.join());
        // One notification for the waiter that is there, and one for the event to keep.
        event.notify_one();
        assert!(!stays.join());
        event.notify_one();
        assert!(!event.wait_timeout(Duration::ZERO).timed_out() && event.wait_timeout(SHORT).timed_out());
    });
}
