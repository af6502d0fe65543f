//! `Debug` of `Semaphore` and `Event`: the program's writer may use the object that is written to it.

use common::everywhere;
use common::writer::written;
use gmp::sync::{Event, Semaphore};

/// Fails by a hang, or by a panic about locks, when the semaphore is locked while its text is written.
#[test]
fn a_writer_may_use_the_semaphore() {
    everywhere(|rt| {
        let writes = || {
            let permits = Semaphore::new(3);
            permits.acquire(1);
            let text = written(&permits, || {
                assert!(permits.try_acquire(2), "two are free");
                gmp::yield_now();
                permits.release(2);
            });
            assert_eq!(text, "Semaphore { capacity: 3, free: 2, waiting: 0, closed: false }");
        };
        rt.go(writes).join().unwrap();
        writes();
    });
}

/// Fails by a hang, or by a panic about locks, when the event is locked while its text is written.
#[test]
fn a_writer_may_use_the_event() {
    everywhere(|rt| {
        let writes = || {
            let event = Event::new();
            let text = written(&event, || {
                event.notify_one();
                gmp::yield_now();
                event.wait();
            });
            assert_eq!(text, "Event { permit: false, waiting: 0 }");
        };
        rt.go(writes).join().unwrap();
        writes();
    });
}
