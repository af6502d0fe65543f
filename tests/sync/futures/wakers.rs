//! Misbehaving wakers, and polls that panic: no other waiter suffers from them.

use super::*;
use common::crew::{Member, on_thread};
use common::futures::falls;
use common::{PROCS, runtime};
use gmp::chan::watch;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// A waker that drops futures.
struct Drops(StdMutex<Vec<Waits<'static>>>);

// SAFETY: the futures of this test are Send.
unsafe impl Send for Drops {}
// SAFETY: as for `Send`.
unsafe impl Sync for Drops {}

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let dropped = std::mem::take(&mut *self.0.lock().unwrap());
        drop(dropped);
    }
}

/// One call notifies several tasks, and the waker of the first drops the futures of the others, as the waker of an executor
/// that has ended may do. Fails by a hang when the drop waits for a later step of the caller.
#[test]
fn a_waker_may_drop_others_that_are_notified() {
    fn check<W: Clone + 'static>(world: &W, waits: fn(W) -> Waits<'static>, frees: fn(&W)) {
        let drops = Arc::new(Drops(StdMutex::new(Vec::new())));
        let waker = Waker::from(Arc::clone(&drops));
        let mut first = waits(world.clone());
        assert!(first.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        let task = Task::new();
        for _ in 0..3 {
            let mut other = waits(world.clone());
            assert!(task.poll(other.as_mut()).is_pending());
            drops.0.lock().unwrap().push(other);
        }
        frees(world);
        assert!(drops.0.lock().unwrap().is_empty(), "the waker was not called");
        assert!(task.poll(first.as_mut()).is_ready());
    }
    everyone(|crew| {
        crew.run(|| {
            let permits = Arc::new(Semaphore::new(4));
            permits.acquire(4);
            check(
                &permits,
                |permits| Box::pin(async move { drop(permits.acquire_owned_async(1).await) }),
                |permits| permits.release(4),
            );
            assert_eq!(permits.available_permits(), 4);
            let lock = Arc::new(RwLock::new(()));
            forget(lock.write());
            check(
                &lock,
                |lock| Box::pin(async move { drop(lock.read_arc_async().await) }),
                // SAFETY: the guard of this lock was forgotten.
                |lock| unsafe { lock.force_unlock_write() },
            );
            assert!(!lock.is_locked());
            let tasks = WaitGroup::new();
            tasks.add(1);
            check(&tasks, |tasks| Box::pin(tasks.wait_async()), WaitGroup::done);
            check(
                &Arc::new(Event::new()),
                |event| Box::pin(async move { event.wait_async().await }),
                |event| event.notify_all(),
            );
            let (context, cancel) = Context::background().with_cancel();
            check(
                &(context, cancel),
                |(context, _)| {
                    Box::pin(async move {
                        let _error = context.ended().await;
                    })
                },
                |(_, cancel)| cancel.cancel(),
            );
        });
    });
}

/// The same for a change of a `watch`, which notifies a reader of the value and a waiter for the change: the waker of the first
/// drops the future of the second.
#[test]
fn the_waker_of_a_reader_may_drop_a_waiter_for_a_change() {
    everyone(|crew| {
        crew.run(|| {
            let (sender, mut reads) = watch::channel(0);
            let mut waits = sender.subscribe();
            let drops = Arc::new(Drops(StdMutex::new(Vec::new())));
            let waker = Waker::from(Arc::clone(&drops));
            let mut change: Waits<'static> = Box::pin(async move {
                let _changed = waits.changed_async().await;
            });
            assert!(Task::new().poll(change.as_mut()).is_pending());
            drops.0.lock().unwrap().push(change);
            let mut read = Box::pin(reads.wait_for_async(|value| *value > 0));
            sender.send_modify(|value| {
                let mut context = std::task::Context::from_waker(&waker);
                assert!(read.as_mut().poll(&mut context).is_pending());
                *value += 1;
            });
            assert!(drops.0.lock().unwrap().is_empty(), "the waker was not called");
            let Poll::Ready(Ok(value)) = Task::new().poll(read.as_mut()) else {
                panic!("the change is there")
            };
            assert_eq!(*value, 1);
        });
    });
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker's panic"));
    }
}

/// Fails by the panic, or when a task is not woken, because a waker harms the caller or the tasks that are notified with it.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let permits = Semaphore::new(2);
    permits.acquire(2);
    let panics = Waker::from(Arc::new(Panics));
    let (mut bad, mut good) = (Box::pin(permits.acquire_async(1)), Box::pin(permits.acquire_async(1)));
    assert!(bad.as_mut().poll(&mut std::task::Context::from_waker(&panics)).is_pending());
    let task = Task::new();
    assert!(task.poll(good.as_mut()).is_pending());
    permits.release(2);
    assert_eq!(task.wakes(), 1);
    drop((bad, good));
    assert!(has_all(&permits));
}

/// A waker that waits for a message, and tells when the message has come.
struct Receives {
    from: Receiver<()>,
    told: Sender<()>,
}

impl Wake for Receives {
    fn wake(self: Arc<Self>) {
        self.from.recv().unwrap();
        self.told.send(()).unwrap();
    }
}

/// Fails when a thread sleeps on because the waker of the mutex's next owner has waited on that thread, within the thread's own
/// wait for the condition.
#[test]
fn a_waker_that_waits_leaves_a_wait_for_a_condition_alone() {
    watched(1, || {
        let (mutex, condvar) = (Arc::new(Mutex::new(false)), Arc::new(Condvar::new()));
        let (queued, is_queued) = bounded::<()>(1);
        let (held, is_held) = bounded::<()>(1);
        let waits = thread::spawn({
            let (mutex, condvar) = (Arc::clone(&mutex), Arc::clone(&condvar));
            move || {
                let (context, _cancel) = Context::background().with_cancel();
                context.run(|| {
                    let mut guard = mutex.lock();
                    held.send(()).unwrap();
                    is_queued.recv().unwrap();
                    condvar.wait_while(&mut guard, |over| !*over);
                })
            }
        });
        is_held.recv().unwrap();
        let ((give, from), (told, hears)) = (bounded(0), bounded(1));
        let waker = Waker::from(Arc::new(Receives { from, told }));
        let mut locks = pin!(mutex.lock_async());
        assert!(locks.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        queued.send(()).unwrap();
        give.send(()).unwrap();
        hears.recv().unwrap();
        let mut guard = run(locks.as_mut());
        *guard = true;
        assert!(condvar.notify_one(), "it waits");
        drop(guard);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}

/// Fails by the panic, or by a use of freed memory when a future leaves its record in the queue as the drop of its waker
/// panics.
#[test]
fn a_waker_whose_drop_panics_leaves_no_record_behind() {
    let permits = Semaphore::new(1);
    permits.acquire(1);
    for _ in 0..3 {
        let mut waits = Box::pin(permits.acquire_async(1));
        {
            let waker = falls();
            assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        }
        drop(waits);
        assert_eq!(waiting(&permits), 0);
    }
    permits.release(1);
    assert_eq!(permits.available_permits(), 1);
}

/// A waker that takes a permit when called and when dropped, as the queue of an executor may take a lock.
struct Takes(Arc<Semaphore>, Arc<AtomicUsize>);

impl Takes {
    fn take(&self) {
        self.0.acquire(1);
        self.1.fetch_add(1, SeqCst);
    }
}

impl Wake for Takes {
    fn wake(self: Arc<Self>) {
        self.take();
    }
}

impl Drop for Takes {
    fn drop(&mut self) {
        self.take();
    }
}

fn no_permits() -> Arc<Semaphore> {
    let permits = Semaphore::new(100);
    permits.acquire(100);
    Arc::new(permits)
}

/// Gives permits to wakers that wait for one, until `caller`, which has called or dropped these wakers, is over.
fn give_permits<T>(permits: &Semaphore, caller: &Member<'_, T>) {
    while !caller.is_finished() {
        until(|| waiting(permits) > 0 || caller.is_finished());
        permits.release(waiting(permits));
    }
}

/// One task after the other polls a future. Fails by the panic, or by the count of wakes, when the drop of the replaced waker
/// is not caught; or by a hang, when that drop runs under a lock of the library, or is unwound from its wait.
#[test]
fn a_waker_that_is_replaced_may_wait_or_panic_as_it_is_dropped() {
    everyone(|crew| {
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        crew.run(move || {
            let (mut waits, task) = (pin!(waits.wait_async()), Task::new());
            {
                let waker = falls();
                assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            }
            assert!(task.poll(waits.as_mut()).is_pending());
            event.notify_one();
            assert_eq!(task.wakes(), 1);
            assert!(task.poll(waits.as_mut()).is_ready());
        });
        let (permits, taken) = (no_permits(), Arc::new(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::new(Takes(Arc::clone(&permits), Arc::clone(&taken))));
        let caller = crew.go(move || {
            let event = Event::new();
            let (mut waits, task) = (pin!(event.wait_async()), Task::new());
            assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            drop(waker);
            let (context, cancel) = Context::background().with_cancel();
            let polled = context.run(|| {
                cancel.cancel();
                task.poll(waits.as_mut()).is_pending()
            });
            event.notify_one();
            (polled, task.wakes())
        });
        give_permits(&permits, &caller);
        assert_eq!(caller.join(), (Ok(true), 1));
        assert_eq!(taken.load(SeqCst), 1);
    });
}

/// The context of a caller is done before it wakes tasks, and drops the futures of others. Fails by the count when a wait of a
/// waker is unwound, and the task is not queued; or by a hang when throws at the wakers count for the caller.
#[test]
fn a_waker_waits_on_where_its_caller_is_to_be_unwound() {
    everyone(|crew| {
        let (permits, taken) = (no_permits(), Arc::new(AtomicUsize::new(0)));
        let taker = || Waker::from(Arc::new(Takes(Arc::clone(&permits), Arc::clone(&taken))));
        let event = Arc::new(Event::new());
        let mut waits = [(); 8].map(|()| {
            let event = Arc::clone(&event);
            Box::pin(async move { event.wait_async().await })
        });
        for waits in &mut waits {
            assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&taker())).is_pending());
        }
        let caller = crew.go(move || {
            let (context, cancel) = Context::background().with_cancel();
            context.run(|| {
                cancel.cancel();
                let mut waits = waits.into_iter();
                waits.by_ref().take(4).for_each(drop);
                event.notify_all();
                gmp::time::sleep(Duration::from_secs(3600));
            })
        });
        give_permits(&permits, &caller);
        assert!(caller.join().is_err());
        // Four wakers were dropped, and four were called and dropped.
        assert_eq!(taken.load(SeqCst), 12);
    });
}

/// A goroutine that computes wakes a task while its runtime ends. Fails by the count, as above.
#[test]
fn a_waker_waits_on_where_its_callers_runtime_ends() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let (permits, taken) = (no_permits(), Arc::new(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::new(Takes(Arc::clone(&permits), Arc::clone(&taken))));
            let event = Arc::new(Event::new());
            let wakes = Arc::clone(&event);
            let mut waits = pin!(event.wait_async());
            assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            let (ends, begun) = (rt.handle(), Arc::new(AtomicBool::new(false)));
            let begins = Arc::clone(&begun);
            drop(rt.go(move || {
                begins.store(true, SeqCst);
                while !ends.is_ended() {
                    thread::yield_now();
                }
                wakes.notify_one();
            }));
            until(|| begun.load(SeqCst));
            let over = on_thread(move || rt.shutdown(Duration::from_secs(3600)));
            drop(waker);
            give_permits(&permits, &over);
            assert_eq!(over.join().goroutines_left(), 0);
            assert_eq!(taken.load(SeqCst), 2);
        });
    }
}

/// A waker whose clone panics.
fn no_clone() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        std::panic::resume_unwind(Box::new("a clone's panic"));
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    // SAFETY: the functions do nothing with the pointer.
    unsafe { Waker::new(std::ptr::null(), &TABLE) }
}

/// A future is woken for a lock in vain, and its poll panics; then the lock is free, and the future is dropped, or polled
/// again. Fails when no task is woken: the second waiter then waits for the one that was woken in vain.
#[test]
fn a_poll_that_panics_takes_no_call_with_it() {
    for again in [false, true] {
        a_poll_panics(again);
    }
}

fn a_poll_panics(again: bool) {
    let lock = Mutex::new(());
    let held = lock.lock();
    let (mut first, mut second) = (Box::pin(lock.lock_async()), Box::pin(lock.lock_async()));
    let (head, behind) = (Task::new(), Task::new());
    assert!(head.poll(first.as_mut()).is_pending() && behind.poll(second.as_mut()).is_pending());
    drop(held);
    assert_eq!((head.wakes(), behind.wakes()), (1, 0));
    let barges = lock.try_lock().expect("the first is not polled yet");
    let waker = no_clone();
    let polled = catch_unwind(AssertUnwindSafe(|| {
        first.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready()
    }));
    assert!(polled.is_err());
    if again {
        drop(barges);
        assert!(head.poll(first.as_mut()).is_ready());
    } else {
        drop(first);
        drop(barges);
    }
    assert_eq!(behind.wakes(), 1);
    assert!(behind.poll(second.as_mut()).is_ready());
    assert!(!lock.is_locked());
}
