//! Futures meet each other, goroutines, threads and selects; the longest waiter is served first.

use super::{Wakes, offers, parks, poll, waits};
use crate::every_kind;
use common::crew::{Member, everyone};
use common::{until, watched};
use gmp::chan::{TryRecvError, after, bounded, never, never_sender, tick, unbounded};
use gmp::context::Context as Ctx;
use gmp::time::Timer;
use gmp::{Runtime, block_on, select};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Polls both until both are ready.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut got_a, mut got_b) = (None, None);
    poll_fn(|cx| {
        if got_a.is_none()
            && let Poll::Ready(got) = a.as_mut().poll(cx)
        {
            got_a = Some(got);
        }
        if got_b.is_none()
            && let Poll::Ready(got) = b.as_mut().poll(cx)
        {
            got_b = Some(got);
        }
        match (got_a.take(), got_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (got_a, got_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Fails by a hang when each of the two waits for the other to wait.
#[test]
fn two_futures_of_one_task_meet() {
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in every_kind() {
                for n in 0..10 {
                    assert_eq!(block_on(both(s.send_async(n), r.recv_async())), (Ok(()), Ok(n)));
                    assert_eq!(block_on(both(r.recv_async(), s.send_async(n))), (Ok(n), Ok(())));
                }
            }
        });
    });
}

/// As `two_futures_of_one_task_meet`.
#[test]
fn two_futures_of_two_tasks_meet() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let sends = crew.go(move || {
                block_on(async {
                    for n in 0..100 {
                        s.send_async(n).await.unwrap()
                    }
                })
            });
            let receives = crew.go(move || {
                block_on(async {
                    for n in 0..100 {
                        assert_eq!(r.recv_async().await, Ok(n));
                    }
                    assert!(r.recv_async().await.is_err());
                });
            });
            sends.join();
            receives.join();
        }
    });
}

/// Each kind of sender meets each kind of receiver. Fails by a hang.
#[test]
fn futures_meet_blocking_calls_and_selects() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            for way in 0..9 {
                let (s, r) = (s.clone(), r.clone());
                let sends = crew.go(move || match way / 3 {
                    0 => s.send(7).unwrap(),
                    1 => block_on(s.send_async(7)).unwrap(),
                    _ => select! {
                        send(s, 7) -> sent => sent.unwrap(),
                        recv(never::<()>()) -> _ => unreachable!(),
                    },
                });
                let receives = crew.go(move || match way % 3 {
                    0 => r.recv().unwrap(),
                    1 => block_on(r.recv_async()).unwrap(),
                    _ => select! {
                        recv(r) -> got => got.unwrap(),
                        recv(never::<()>()) -> _ => unreachable!(),
                    },
                });
                assert_eq!(receives.join(), 7);
                sends.join();
            }
        }
    });
}

/// Fails when a later receiver, one that blocks or only tries, takes a message for which a future was woken.
#[test]
fn nobody_overtakes_a_receive_that_was_woken() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let [first, second] = [(); 2].map(|()| Wakes::new());
            let mut one = waits(&r, &first);
            // This goroutine waits behind the future.
            let behind = crew.go({
                let r = r.clone();
                move || r.recv().unwrap()
            });
            let mut three = waits(&r, &second);
            s.try_send(1).unwrap();
            assert_eq!((first.take(), r.try_recv()), (1, Err(TryRecvError::Empty)));
            assert_eq!(poll(one.as_mut(), &first), Poll::Ready(Ok(1)));
            s.send(2).unwrap();
            s.send(3).unwrap();
            let mut got = [behind.join(), parks(three.as_mut()).unwrap()];
            got.sort_unstable();
            assert_eq!(got, [2, 3]);
        }
    });
}

/// Fails when a goroutine behind a future that was woken gets the second message before the first one was taken, and
/// the order changes when the future is dropped.
#[test]
fn a_receiver_behind_a_woken_receive_gets_the_first_message() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let wakes = Wakes::new();
            let one = waits(&r, &wakes);
            s.try_send(1).unwrap();
            let behind = crew.go({
                let r = r.clone();
                move || r.recv().unwrap()
            });
            // The send and the goroutine may come in either order.
            s.send(2).unwrap();
            assert_eq!(behind.join(), 1);
            drop(one);
            assert_eq!(r.try_recv(), Ok(2));
        }
    });
}

/// Fails when the first task is woken in place of the one that has polled last.
#[test]
fn the_task_that_has_polled_last_is_woken() {
    for (s, r) in every_kind() {
        let [first, second] = [(); 2].map(|()| Wakes::new());
        let mut receive = waits(&r, &first);
        assert!(poll(receive.as_mut(), &second).is_pending());
        s.try_send(1).unwrap();
        assert_eq!((first.take(), second.take()), (0, 1));
        assert_eq!(poll(receive.as_mut(), &first), Poll::Ready(Ok(1)));
        // The same future receives again.
        assert!(poll(receive.as_mut(), &first).is_pending());
        s.try_send(2).unwrap();
        assert_eq!(poll(receive.as_mut(), &second), Poll::Ready(Ok(2)));
        let Some(capacity) = s.capacity() else { continue };
        (0..capacity).for_each(|_| s.try_send(3).unwrap());
        first.take();
        let mut send = offers(&s, 4, &first);
        assert!(poll(send.as_mut(), &second).is_pending());
        r.try_recv().unwrap();
        assert_eq!((first.take(), second.take()), (0, 1));
        assert!(poll(send.as_mut(), &first).is_ready());
    }
}

/// Fails when a wait goes on after the other side has ended.
#[test]
fn the_end_of_the_other_side_ends_each_wait() {
    for (s, r) in every_kind::<u32>() {
        let wakes = Wakes::new();
        let mut receive = waits(&r, &wakes);
        drop(s);
        assert_eq!(wakes.take(), 1);
        assert!(poll(receive.as_mut(), &wakes).map(|got| got.is_err()).is_ready());
        assert!(poll(receive.as_mut(), &wakes).map(|got| got.is_err()).is_ready(), "and once more");
    }
    for (s, r) in every_kind::<u32>() {
        let wakes = Wakes::new();
        (0..s.capacity().unwrap_or(0)).for_each(|_| s.try_send(0).unwrap());
        let mut send = s.capacity().map(|_| offers(&s, 1, &wakes));
        drop(r);
        assert_eq!(wakes.take(), usize::from(send.is_some()));
        if let Some(send) = &mut send {
            assert!(poll(send.as_mut(), &wakes).map(|sent| sent.is_err()).is_ready());
        }
        assert!(poll(pin!(s.send_async(2)), &wakes).map(|sent| sent.is_err()).is_ready());
    }
}

#[test]
fn a_disabled_channel_is_never_ready() {
    let (wakes, s) = (Wakes::new(), never_sender());
    assert!(poll(pin!(never::<()>().recv_async()), &wakes).is_pending());
    assert!(poll(pin!(s.send_async(())), &wakes).is_pending());
    assert_eq!(wakes.take(), 0);
}

#[test]
#[should_panic(expected = "send_async: polled after it was ready")]
fn a_send_that_is_over_is_not_polled_again() {
    let (s, _r) = unbounded();
    let mut send = Box::pin(s.send_async(1));
    let wakes = Wakes::new();
    assert!(poll(send.as_mut(), &wakes).is_ready());
    let _panics = poll(send.as_mut(), &wakes);
}

/// Fails when a task is not woken at the due time, or gets an earlier time.
#[test]
fn a_future_waits_for_a_channel_that_tells_the_time() {
    let tells = || {
        let (start, span) = (Instant::now(), Duration::from_millis(3));
        for receiver in [after(span), tick(span)] {
            let due = parks(receiver.recv_async()).unwrap();
            assert!(due >= start + span && Instant::now() >= due);
        }
        // Moved while the future waits, to an earlier time.
        let timer = Timer::new(Duration::from_secs(3600));
        let wakes = Wakes::new();
        let mut waits = waits(timer.receiver(), &wakes);
        assert!(timer.reset(span));
        assert!(wakes.take() > 0);
        assert!(parks(waits.as_mut()).is_ok());
        // Stopped, and set again.
        timer.reset(Duration::from_secs(3600));
        assert!(poll(waits.as_mut(), &wakes).is_pending());
        assert!(timer.stop());
        assert!(poll(waits.as_mut(), &wakes).is_pending());
        assert!(!timer.reset(span));
        assert!(parks(waits).is_ok());
    };
    watched(1, tells);
    everyone(|crew| crew.run(tells));
}

/// The threads that have woken a task, one for each wake.
struct WokenBy(Mutex<Vec<ThreadId>>);

impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

/// Outside of any runtime. Fails if a thread is started for each message of a timer channel.
#[test]
fn one_thread_wakes_a_task_for_all_that_a_channel_tells() {
    watched(1, || {
        // For as long as the timer thread has this, it does not end.
        let far = Timer::new(Duration::from_secs(3600));
        let wakes = Arc::new(WokenBy(Mutex::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let ticks = tick(Duration::from_millis(1));
        let woken = || wakes.0.lock().unwrap().len();
        while woken() < 8 {
            let (before, mut told) = (woken(), pin!(ticks.recv_async()));
            while told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                until(|| woken() > before);
            }
        }
        let mut threads = wakes.0.lock().unwrap().clone();
        threads.dedup();
        assert_eq!(threads.len(), 1, "{threads:?}");
        assert!(far.stop());
    });
}

/// The waker of another executor takes locks of its own. Fails by a hang, or by the assertion that none of our locks is held.
struct Locks(Mutex<usize>, AtomicBool);

impl Wake for Locks {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
        // Uses the library.
        let (s, r) = bounded(1);
        s.send(()).unwrap();
        r.recv().unwrap();
        self.1.store(true, SeqCst);
    }
}

#[test]
fn a_foreign_waker_is_called_without_a_lock_of_ours() {
    let tell = |what: &str, receiver: &gmp::chan::Receiver<()>, act: &mut dyn FnMut()| {
        let locks = Arc::new(Locks(Mutex::new(0), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&locks));
        let mut receive = Box::pin(receiver.recv_async());
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{what}");
        act();
        // The runtime may call the waker a little later.
        while !locks.1.load(SeqCst) {
            thread::yield_now();
            gmp::yield_now();
        }
    };
    everyone(|crew| {
        crew.run(move || {
            let (s, r) = bounded(0);
            tell("a send", &r, &mut || s.try_send(()).unwrap());
            assert_eq!(r.try_recv(), Ok(()));
            tell("a close", &r, &mut || assert!(s.close()));
            let (ctx, cancel) = Ctx::background().with_cancel();
            tell("the end of a context", ctx.done(), &mut || cancel.cancel());
            let (news, mut hears) = gmp::chan::broadcast::channel(4);
            let bell = hears.bell();
            tell("a broadcast", &bell, &mut || assert_eq!(news.send(1), Ok(1)));
            assert_eq!((bell.try_recv(), hears.try_recv()), (Ok(()), Ok(1)));
            tell("the end of a broadcast", &bell, &mut || assert!(news.close()));
        });
    });
}

/// A task's waker drops the future of another task, which the same call has notified. Fails by a hang when the drop waits for
/// work that the caller has yet to do.
#[test]
fn a_waker_may_drop_what_was_woken_with_it() {
    struct Drops(Mutex<Option<super::Receives<'static, u32>>>);
    // SAFETY: one thread.
    unsafe impl Send for Drops {}
    // SAFETY: as for `Send`.
    unsafe impl Sync for Drops {}
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    watched(1, || {
        let (s, r) = unbounded();
        let r: &'static _ = Box::leak(Box::new(r));
        let drops = Arc::new(Drops(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&drops));
        let mut first: super::Receives<'static, u32> = Box::pin(r.recv_async());
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *drops.0.lock().unwrap() = Some(waits(r, &Wakes::new()));
        s.close();
        assert!(drops.0.lock().unwrap().is_none());
    });
}

/// A goroutine holds a future that was woken, and its runtime ends. Fails when the message is lost.
#[test]
fn the_end_of_the_runtime_gives_back_what_its_futures_were_woken_for() {
    for (s, r) in every_kind() {
        let runtime: Runtime = common::runtime(2);
        let (tells, told) = bounded(0);
        let theirs = r.clone();
        let holds = runtime.go(move || {
            let wakes = Wakes::new();
            let receive = waits(&theirs, &wakes);
            tells.send(()).unwrap();
            never::<()>().recv().unwrap();
            drop(receive);
        });
        told.recv().unwrap();
        s.try_send(1).unwrap();
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        let report = runtime.shutdown(Duration::from_secs(60));
        assert!(report.is_clean(), "{report:?}");
        assert!(holds.join().unwrap_err().is_shutdown());
        assert_eq!(r.try_recv(), Ok(1));
    }
}

/// A task that `rt` holds up waits for a channel, and this thread ends the runtime, which leaves its goroutines behind. Fails
/// when this thread calls the task's waker, which may wait for this thread.
fn is_woken_by_another<T>(task: impl Future<Output = T>, holds_it_up: impl FnOnce() -> Runtime) {
    let wakes = Arc::new(WokenBy(Mutex::default()));
    let (waker, mut task) = (Waker::from(Arc::clone(&wakes)), pin!(task));
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    holds_it_up().shutdown(Duration::ZERO);
    until(|| !wakes.0.lock().unwrap().is_empty());
    assert!(!wakes.0.lock().unwrap().contains(&thread::current().id()));
}

/// A runtime with a goroutine that waits in `f`.
fn waiting_in<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Runtime {
    let rt = common::runtime(1);
    let waits = rt.go(f);
    Member::Goroutine(&rt, waits).until_it_waits();
    rt
}

#[test]
fn who_ends_a_runtime_calls_no_waker_for_a_message_that_will_not_come() {
    watched(1, || {
        let (s, r) = bounded::<u32>(0);
        let evaluates = || {
            waiting_in(move || {
                select! {
                    send(s, { gmp::time::sleep(Duration::from_secs(3600)); 1 }) -> sent => sent.is_ok(),
                }
            })
        };
        is_woken_by_another(r.recv_async(), evaluates);
    });
}

/// As above. The goroutine's send is chosen by the task, and the runtime ends before the goroutine has run.
#[test]
fn who_ends_a_runtime_calls_no_waker_for_a_send_that_it_has_chosen() {
    watched(1, || {
        let (s, r) = bounded::<u32>(0);
        let rt = waiting_in(move || {
            select! {
                send(s, 1) -> sent => sent.is_ok(),
            }
        });
        // This one keeps the P.
        let (kept, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (keeps, ends) = (Arc::clone(&kept), Arc::clone(&over));
        drop(rt.go(move || {
            keeps.store(true, SeqCst);
            while !ends.load(SeqCst) {
                thread::yield_now();
            }
        }));
        until(|| kept.load(SeqCst));
        is_woken_by_another(r.recv_async(), || rt);
        over.store(true, SeqCst);
    });
}

/// As above. The goroutine has the turn of a timer channel.
#[test]
fn who_ends_a_runtime_calls_no_waker_for_a_turn() {
    watched(1, || {
        let late = after(Duration::from_secs(3600));
        let theirs = late.clone();
        let rt = waiting_in(move || theirs.recv());
        is_woken_by_another(late.recv_async(), || rt);
        let theirs = late.clone();
        let rt = waiting_in(move || {
            select! {
                recv(theirs) -> at => at.is_ok(),
                recv(never::<()>()) -> _ => false,
            }
        });
        is_woken_by_another(late.recv_async(), || rt);
    });
}

/// As `the_end_of_the_runtime_gives_back_what_its_futures_were_woken_for`, in `block_on`, with the message on its way.
#[test]
fn the_end_of_the_runtime_beside_a_message() {
    for round in 0..50 {
        for (s, r) in every_kind() {
            let runtime = common::runtime(1 + round % 2);
            let theirs = r.clone();
            let gets = runtime.go(move || block_on(theirs.recv_async()));
            let sender = thread::spawn(move || s.send(1).is_ok());
            drop(runtime);
            let got = gets.join();
            let left = r.recv_timeout(Duration::from_millis(if got.is_ok() { 1 } else { 60_000 }));
            assert!(matches!((&got, &left), (Ok(Ok(1)), Err(_)) | (Err(_), Ok(1))), "{got:?} {left:?}");
            assert!(sender.join().unwrap());
        }
    }
}

/// Futures are sent to other threads, as the standard library's are, and used there.
#[test]
fn futures_go_from_thread_to_thread() {
    let (s, r) = bounded(0);
    let wakes = Wakes::new();
    thread::scope(|scope| {
        let mut receive = Box::pin(r.recv_async());
        assert!(poll(receive.as_mut(), &wakes).is_pending());
        let gets = scope.spawn(move || parks(receive));
        // The send is ready at its first poll if it finds the receive waiting.
        let mut send = Box::pin(s.send_async(vec![1]));
        let sent = poll(send.as_mut(), &wakes);
        let sends = scope.spawn(move || if sent.is_pending() { parks(send) } else { Ok(()) });
        sends.join().unwrap().unwrap();
        assert_eq!(gets.join().unwrap(), Ok(vec![1]));
    });
}
