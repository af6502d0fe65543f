//! Tasks of foreign executors, goroutines and threads in the same queues, against limits, ends and drops.

use crate::support::{Random, everywhere, share};
use common::foreign::run;
use gmp::block_on;
use gmp::context::Context;
use gmp::sync::{Mutex, RwLock, Semaphore};
use gmp::time::timeout_async;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;
/// The number of operations at each number of Ps.
const OPERATIONS: usize = 100_000;
const PERMITS: usize = 3;

struct Shared {
    permits: Arc<Semaphore>,
    /// Permits that are out, by the holders' own count.
    out: AtomicUsize,
    mutex: Arc<Mutex<usize>>,
    lock: Arc<RwLock<usize>>,
    /// How often the locks were taken for writing.
    written: [AtomicUsize; 2],
}

/// Awaits `future`, unless the context, or a limit, ends first.
async fn ended_early<T>(
    random: &mut Random,
    context: &Context,
    future: impl Future<Output = T>,
) -> Option<T> {
    let limit = Duration::from_nanos(random.below(60_000));
    let both = async {
        let (mut ended, mut future) = (pin!(context.ended()), pin!(future));
        poll_fn(|cx| match (future.as_mut().poll(cx), ended.as_mut().poll(cx)) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, Poll::Ready(_)) => Poll::Ready(None),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        })
        .await
    };
    match random.below(3) {
        0 => timeout_async(limit, both).await.ok().flatten(),
        _ => both.await,
    }
}

impl Shared {
    /// Holds `count` permits for a moment.
    fn holds(&self, count: usize, random: &mut Random) {
        let out = self.out.fetch_add(count, SeqCst) + count;
        assert!(out <= PERMITS, "{out} permits are out");
        random.pause(30);
        self.out.fetch_sub(count, SeqCst);
    }

    /// Does one operation of a task.
    async fn operate(&self, random: &mut Random, context: &Context) {
        match random.below(4) {
            0 => {
                let count = 1 + random.below(PERMITS as u64) as usize;
                let permit = ended_early(random, context, self.permits.acquire_async(count)).await;
                if let Some(permit) = permit {
                    let _permit = permit.unwrap();
                    self.holds(count, random);
                }
            }
            1 => {
                let guard = ended_early(random, context, self.mutex.lock_async()).await;
                if let Some(mut guard) = guard {
                    *guard += 1;
                    self.written[0].fetch_add(1, SeqCst);
                    random.pause(30);
                }
            }
            2 => {
                let guard = ended_early(random, context, self.lock.write_async()).await;
                if let Some(mut guard) = guard {
                    *guard += 1;
                    self.written[1].fetch_add(1, SeqCst);
                }
            }
            _ => drop(ended_early(random, context, self.lock.read_async()).await),
        }
    }

    /// Does one operation of a goroutine or a thread that blocks.
    fn block(&self, random: &mut Random) {
        match random.below(3) {
            0 => {
                let count = 1 + random.below(PERMITS as u64) as usize;
                let _permit = self.permits.acquire_guard(count).unwrap();
                self.holds(count, random);
            }
            1 => {
                *self.mutex.lock() += 1;
                self.written[0].fetch_add(1, SeqCst);
            }
            _ => {
                *self.lock.write() += 1;
                self.written[1].fetch_add(1, SeqCst);
            }
        }
    }
}

/// Fails by a hang when a wake, a permit or a lock is lost with a future that was dropped; by the counts when two members have
/// the same permit or lock.
#[test]
fn tasks_against_limits_ends_and_drops() {
    everywhere(|rt| {
        let shared = Arc::new(Shared {
            permits: Arc::new(Semaphore::new(PERMITS)),
            out: AtomicUsize::new(0),
            mutex: Arc::new(Mutex::new(0)),
            lock: Arc::new(RwLock::new(0)),
            written: [const { AtomicUsize::new(0) }; 2],
        });
        let each = share(OPERATIONS * common::PROCS.len(), THREADS);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let (context, cancel) = Context::background().with_cancel();
                        if random.one_in(20) {
                            cancel.cancel();
                        }
                        run(shared.operate(&mut random, &context));
                        if random.one_in(8) {
                            shared.block(&mut random);
                        }
                    }
                })
            })
            .collect();
        let goroutines: Vec<_> = (0..4)
            .map(|number| {
                let shared = Arc::clone(&shared);
                rt.go(move || {
                    let mut random = Random::new(100 + number);
                    for _ in 0..each {
                        if random.one_in(2) {
                            shared.block(&mut random);
                            continue;
                        }
                        let (context, cancel) = Context::background().with_cancel();
                        let cancels = random.one_in(8).then(|| gmp::go(move || cancel.cancel()));
                        block_on(shared.operate(&mut random, &context));
                        if let Some(cancels) = cancels {
                            block_on(cancels).unwrap();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|one| one.join().unwrap());
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(shared.permits.available_permits(), PERMITS);
        assert_eq!(*shared.mutex.try_lock().unwrap(), shared.written[0].load(SeqCst));
        assert_eq!(*shared.lock.try_write().unwrap(), shared.written[1].load(SeqCst));
    });
}
