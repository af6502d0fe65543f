use crate::support::{MS, everywhere, many};
use gmp::time::sleep;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, mpsc, oneshot, watch};

/// Fails if a message between goroutines and tasks is lost or comes out of order, in either direction.
#[test]
fn mpsc_messages_pass_between_goroutines_and_tasks() {
    everywhere(|| {
        many(10, |_| {
            let (ask, mut asked) = mpsc::channel(2);
            let (answer, mut answers) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Some(n) = asked.recv().await {
                    answer.send(n * 2).unwrap();
                }
            });
            let asks = gmp::go(move || {
                for n in 0..100 {
                    gmp::block_on(ask.send(n)).unwrap();
                }
            });
            for n in 0..100 {
                assert_eq!(gmp::block_on(answers.recv()), Some(n * 2));
            }
            assert_eq!(gmp::block_on(answers.recv()), None);
            asks.join().unwrap();
        });
    });
}

/// A goroutine holds each lock of tokio over a park. Fails if the lock is lost with the thread on which it was taken.
#[test]
fn locks_of_tokio_are_held_over_a_park() {
    everywhere(|| {
        let (mutex, rwlock) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
        let few = Arc::new(Semaphore::new(2));
        let theirs = (Arc::clone(&mutex), Arc::clone(&rwlock));
        many(20, move |_| {
            let _permit = gmp::block_on(few.acquire()).unwrap();
            let mut held = gmp::block_on(theirs.0.lock());
            let before = *held;
            sleep(MS / 4);
            *held = before + 1;
            drop(held);
            let mut held = gmp::block_on(theirs.1.write());
            let before = *held;
            sleep(MS / 4);
            *held = before + 1;
            drop(held);
            let one = gmp::block_on(theirs.1.read());
            sleep(MS / 4);
            assert!(*one > 0);
        });
        assert_eq!((*gmp::block_on(mutex.lock()), *gmp::block_on(rwlock.read())), (20, 20));
    });
}

/// Fails if a one-shot value, a changed value, or a bare notification does not wake the goroutine.
#[test]
fn what_tells_of_a_change_wakes_goroutines() {
    everywhere(|| {
        many(10, |n| {
            let (gives, gets) = oneshot::channel();
            let (changes, mut changed) = watch::channel(0);
            let notify = Arc::new(Notify::new());
            let theirs = Arc::clone(&notify);
            tokio::spawn(async move {
                gives.send(n).unwrap();
                changes.send(n + 1).unwrap();
                theirs.notify_one();
            });
            assert_eq!(gmp::block_on(gets), Ok(n));
            gmp::block_on(changed.wait_for(|&now| now == n + 1)).unwrap();
            gmp::block_on(notify.notified());
        });
    });
}
