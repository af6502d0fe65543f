//! `Select`: operations that are known only as the program runs.

use super::share;
use common::cpu::thread_time;
use common::crew::{each, everyone, join_all};
use common::random::Random;
use common::{runtime, until};
use gmp::chan::{
    ReadyTimeoutError, RecvError, Select, SelectTimeoutError, SelectedOperation, SendError, Sender,
    TryReadyError, TrySelectError, bounded, never, unbounded,
};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);

#[track_caller]
fn panics_with(text: &str, f: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err(text);
    let said = payload.downcast_ref::<String>().cloned();
    let said = said.or_else(|| payload.downcast_ref::<&str>().map(|&said| said.to_owned()));
    assert!(said.as_ref().is_some_and(|said| said.contains(text)), "{said:?} does not say {text:?}");
}

/// For a type without the mark one implementation is inferred; for a type with it the call is ambiguous.
macro_rules! assert_not {
    ($mark:ident, $($type:ty),+) => {{
        trait Ambiguous<Which> {
            fn named() {}
        }
        struct Marked;
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $mark> Ambiguous<Marked> for T {}
        $(<$type as Ambiguous<_>>::named();)+
    }};
}

/// Fails to compile when a `Select` can't be sent to another thread, or when a selected operation can. Fails by a count when a
/// message that is not `Send` is dropped on another thread than its receiver's, or is not dropped there.
#[test]
fn a_select_may_go_to_another_thread_and_its_messages_may_not() {
    type End = fn(SelectedOperation<'_>);
    fn goes<T: Send + Sync>() {}
    goes::<Select<'static>>();
    assert_not!(Send, SelectedOperation<'static>);
    assert_not!(Sync, SelectedOperation<'static>);
    for large in [false, true] {
        let message = Rc::new(());
        let made = || (Rc::clone(&message), large.then_some([7_u64; 20]));
        let (small, from_small) = unbounded::<Rc<()>>();
        let (sender, receiver) = unbounded();
        let mut select = Select::new();
        if large {
            select.recv(&receiver)
        } else {
            select.recv(&from_small)
        };
        let send = || if large { drop(sender.send(made())) } else { drop(small.send(made().0)) };
        // On this thread.
        send();
        panics_with("without completing", || drop(select.select()));
        assert_eq!(Rc::strong_count(&message), 1, "the message is dropped with its operation");
        send();
        panics_with("without completing", || drop(select.try_select().unwrap()));
        assert_eq!(Rc::strong_count(&message), 1, "the message is dropped with its operation");
        send();
        panics_with("wasn't selected", || _ = select.select().recv(&never::<u8>()));
        assert_eq!(Rc::strong_count(&message), 1, "the message is dropped with its operation");
        // On another thread, with a `Select` that was made on this one, and with one that has operations of both threads.
        let ends: [(&str, End); 3] = [
            ("without completing", |operation| drop(operation)),
            ("wasn't selected", |operation| _ = operation.recv(&unbounded::<u8>().1)),
            ("wasn't selected", |operation| _ = operation.send(&unbounded().0, 7_u8)),
        ];
        for (of_both, (text, end)) in [false, true].into_iter().flat_map(|both| ends.map(|end| (both, end))) {
            let before = Rc::strong_count(&message);
            send();
            let mut select = select.clone();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let none = never::<()>();
                    let mut select = select.clone();
                    if of_both {
                        select.recv(&none);
                    }
                    panics_with(text, || end(select.select()));
                });
                other.join().unwrap();
            });
            assert_eq!(Rc::strong_count(&message), before + 1, "a message was dropped on another thread");
            assert!(receiver.is_empty() && from_small.is_empty() && select.try_select().is_err());
        }
    }
}

/// Fails by a count when an operation is lost or done twice while one `Select` goes round.
#[test]
fn a_select_goes_from_one_goroutine_to_the_next() {
    everyone(|crew| {
        let rounds = share(1000, 1);
        let ((s, r), (t, q)) = (bounded(1), bounded(1));
        // A channel that is closed would be ready, too.
        let _open = (s.clone(), t.clone());
        let senders = [(s, 0), (t, 1)].map(|(sender, first)| {
            crew.go(move || (0..rounds).for_each(|round| sender.send(2 * round + first).unwrap()))
        });
        let receivers: &'static _ = Box::leak(Box::new([r, q]));
        let mut select = Select::new();
        receivers.iter().for_each(|receiver| assert!(select.recv(receiver) < 2));
        let mut got = Vec::new();
        for _ in 0..2 * rounds {
            let (message, back) = crew.run(move || {
                let chosen = select.select();
                let index = chosen.index();
                (chosen.recv(&receivers[index]).unwrap(), select)
            });
            select = back;
            got.push(message);
        }
        got.sort_unstable();
        assert!(got.into_iter().eq(0..2 * rounds));
        senders.into_iter().for_each(|sender| sender.join());
    });
}

/// Fails if an index is not that of its operation, with many or after some were removed.
#[test]
fn sixty_four_arms_keep_their_indices() {
    everyone(|crew| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..64).map(|cap| bounded::<usize>(cap % 3)).unzip();
        let rounds = share(20_000, 1);
        let sender = crew.go(move || {
            let mut random = Random::new(1);
            for round in 0..rounds {
                let at = random.below(64) as usize;
                senders[at].send(at + 64 * round).unwrap();
            }
        });
        crew.run(move || {
            let mut select = Select::new();
            let indices: Vec<_> = receivers.iter().map(|r| select.recv(r)).collect();
            assert!(indices.iter().copied().eq(0..64));
            let mut received = 0;
            let mut open = 64;
            while open > 0 {
                let chosen = select.select();
                let index = chosen.index();
                match chosen.recv(&receivers[index]) {
                    Ok(message) => received += usize::from(message % 64 == index),
                    Err(RecvError) => {
                        select.remove(index);
                        open -= 1;
                    }
                }
            }
            assert_eq!(received, rounds);
            assert_eq!(select.try_select().map(drop), Err(TrySelectError));
        });
        sender.join();
    });
}

/// Selects lock many channels, which each select names in an order of its own. Fails by a hang when two wait for each other.
#[test]
fn many_arms_in_any_order_meet_each_other() {
    const ARMS: usize = 100;
    const SELECTS: usize = 3;
    everyone(|crew| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..ARMS).map(|_| bounded::<usize>(1)).unzip();
        let rounds = share(10_000, 1);
        let takers = each(crew, SELECTS, move |taker| {
            let mut random = Random::new(taker);
            let mut order: Vec<_> = (0..ARMS).collect();
            (1..ARMS).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
            let mut select = Select::new();
            order.iter().for_each(|&at| assert!(select.recv(&receivers[at]) < ARMS));
            let (mut got, mut open) = (Vec::new(), ARMS);
            while open > 0 {
                let chosen = select.select();
                let index = chosen.index();
                match chosen.recv(&receivers[order[index]]) {
                    Ok(message) => {
                        assert_eq!(message % ARMS, order[index]);
                        got.push(message / ARMS);
                    }
                    Err(RecvError) => {
                        select.remove(index);
                        open -= 1;
                    }
                }
            }
            got
        });
        let mut random = Random::new(SELECTS);
        for round in 0..rounds {
            let at = random.below(ARMS as u64) as usize;
            senders[at].send(round * ARMS + at).unwrap();
        }
        drop(senders);
        let mut got = join_all(takers).concat();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..rounds));
    });
}

/// Fails if an index moves as another goes, or is given twice.
#[test]
fn a_removed_operation_is_never_chosen() {
    everyone(|crew| {
        crew.run(|| {
            let channels: Vec<_> = (0..4).map(|_| unbounded()).collect();
            channels.iter().for_each(|(s, _)| s.send(1).unwrap());
            let mut select = Select::new();
            channels.iter().for_each(|(_, r)| assert!(select.recv(r) < 4));
            select.remove(1);
            select.remove(3);
            assert_eq!(select.send(&channels[1].0), 4);
            for _ in 0..60 {
                let chosen = select.select();
                match chosen.index() {
                    index @ (0 | 2) => {
                        assert_eq!(chosen.recv(&channels[index].1), Ok(1));
                        channels[index].0.send(1).unwrap();
                    }
                    4 => chosen.send(&channels[1].0, 2).unwrap(),
                    index => unreachable!("{index} was removed"),
                }
            }
            panics_with("", || select.remove(1));
            panics_with("", || select.remove(9));
        });
    });
}

/// Fails if `ready` takes a message, misses one, or waits longer than it may.
#[test]
fn ready_tells_and_takes_nothing() {
    everyone(|crew| {
        crew.run(|| {
            let ((s, r), (full, rest)) = (bounded(1), bounded(1));
            full.send('f').unwrap();
            let mut select = Select::new();
            let (recv, send) = (select.recv(&r), select.send(&full));
            assert_eq!(select.try_ready(), Err(TryReadyError));
            let start = Instant::now();
            assert_eq!(select.ready_timeout(SHORT_LIMIT), Err(ReadyTimeoutError));
            assert_eq!(select.ready_deadline(start + 2 * SHORT_LIMIT), Err(ReadyTimeoutError));
            assert_eq!(select.select_timeout(SHORT_LIMIT).map(drop), Err(SelectTimeoutError));
            assert_eq!(select.select_deadline(start + 4 * SHORT_LIMIT).map(drop), Err(SelectTimeoutError));
            assert!(start.elapsed() >= 4 * SHORT_LIMIT);
            s.send('a').unwrap();
            for _ in 0..9 {
                assert_eq!((select.try_ready(), select.ready()), (Ok(recv), recv));
                assert_eq!(select.ready_timeout(SHORT_LIMIT), Ok(recv));
            }
            assert_eq!((r.recv(), rest.recv()), (Ok('a'), Ok('f')));
            assert_eq!((select.try_ready(), select.ready()), (Ok(send), send));
            full.send('g').unwrap();
            s.close();
            assert_eq!((select.ready(), r.recv()), (recv, Err(RecvError)));
            rest.close();
            let mut seen = [0; 2];
            (0..99).for_each(|_| seen[select.ready()] += 1);
            assert!(seen[recv] > 0 && seen[send] > 0);
        });
    });
}

/// Fails by a hang when a member that waits until an operation is ready is not woken, or another is woken in its place.
#[test]
fn ready_waits_for_each_kind_of_operation() {
    everyone(|crew| {
        for cap in [0, 1] {
            let rounds = share(20_000, 2);
            let (s, r) = bounded(cap);
            let sender = crew.go(move || {
                let mut random = Random::new(1);
                for message in 0..rounds {
                    random.pause(50);
                    // On an unbuffered channel only one of the two may wait to be asked.
                    if cap > 0 {
                        let mut select = Select::new();
                        select.send(&s);
                        assert_eq!(select.ready(), 0);
                        assert_eq!(s.try_send(message), Ok(()));
                    } else {
                        s.send(message).unwrap();
                    }
                }
            });
            let receiver = crew.go(move || {
                let mut random = Random::new(2);
                for message in 0..rounds {
                    random.pause(50);
                    let mut select = Select::new();
                    let idle = never::<()>();
                    select.recv(&idle);
                    let index = select.recv(&r);
                    loop {
                        assert_eq!(select.ready(), index);
                        // The watcher may be woken in vain, but not for ever.
                        match r.try_recv() {
                            Ok(got) => break assert_eq!(got, message),
                            Err(_) => gmp::yield_now(),
                        }
                    }
                }
            });
            sender.join();
            receiver.join();
        }
    });
}

/// A select reserves the only slot and then evaluates its message, or a future is granted the only message; meanwhile the
/// channel is closed. Fails by `Ok` when the close reports a receive as ready that would have to wait; and by a hang when the
/// message has come and no watcher is told of it.
#[test]
fn a_close_does_not_make_ready_what_still_waits_for_a_message() {
    const LONG_ENOUGH: Duration = Duration::from_millis(30);
    everyone(|crew| {
        for granted in [false, true] {
            let ((s, r), (begun, begins), (goes_on, go_on)) = (bounded(1), bounded(1), bounded::<()>(1));
            let (own, closer) = (s.clone(), s);
            let of_future = r.clone();
            let holder = crew.go(move || {
                if granted {
                    let mut future = Box::pin(of_future.recv_async());
                    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    own.send(7).unwrap();
                    begun.send(()).unwrap();
                    go_on.recv().unwrap();
                } else {
                    let message = || {
                        begun.send(()).unwrap();
                        go_on.recv().map_or(0, |()| 7)
                    };
                    gmp::select! { send(own, message()) -> sent => sent.unwrap() }
                }
            });
            begins.recv().unwrap();
            let (watches, watched) = bounded(1);
            let watcher = crew.go(move || {
                let mut select = Select::new();
                let index = select.recv(&r);
                watches.send(()).unwrap();
                let early = select.ready_timeout(LONG_ENOUGH);
                watches.send(()).unwrap();
                (early, select.ready() == index, r.try_recv())
            });
            watched.recv().unwrap();
            crew.run(|| gmp::time::sleep(LONG_ENOUGH / 6));
            assert!(closer.close());
            watched.recv().unwrap();
            goes_on.send(()).unwrap();
            holder.join();
            assert_eq!(watcher.join(), (Err(ReadyTimeoutError), true, Ok(7)), "granted: {granted}");
        }
    });
}

/// Fails when two members take one message; or by a hang when one member is notified, another takes the message, and a third is
/// not notified.
#[test]
fn members_that_wait_until_ready_share_the_messages() {
    everyone(|crew| {
        let rounds = share(20_000, 1);
        let (s, r) = bounded(2);
        let receivers = each(crew, 3, move |_| {
            let mut select = Select::new();
            select.recv(&r);
            let mut all = Vec::new();
            loop {
                select.ready();
                match r.try_recv() {
                    Ok(message) => all.push(message),
                    Err(error) if error.is_disconnected() => return all,
                    Err(_) => {}
                }
            }
        });
        (0..rounds).for_each(|message| s.send(message).unwrap());
        drop(s);
        let mut got = join_all(receivers).concat();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..rounds));
    });
}

#[test]
fn a_select_without_arms_panics_or_has_its_default() {
    everyone(|crew| {
        crew.run(|| {
            panics_with("no operations have been added to `Select`", || drop(Select::new().select()));
            panics_with("no operations have been added to `Select`", || _ = Select::new().ready());
            assert_eq!(Select::new().try_select().map(drop), Err(TrySelectError));
            assert_eq!(Select::new().try_ready(), Err(TryReadyError));
            let start = Instant::now();
            assert_eq!(Select::new().select_timeout(SHORT_LIMIT).map(drop), Err(SelectTimeoutError));
            assert_eq!(Select::new().ready_timeout(SHORT_LIMIT), Err(ReadyTimeoutError));
            assert!(start.elapsed() >= 2 * SHORT_LIMIT);
        });
    });
}

/// Fails if a chosen operation can be forgotten in silence, or its slot is lost.
#[test]
fn an_operation_that_is_dropped_panics() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = bounded::<u8>(1);
            let mut select = Select::new();
            select.send(&s);
            panics_with("dropped `SelectedOperation` without completing the operation", || {
                drop(select.select())
            });
            // The channel can still be closed and dropped, whatever the dropped operation did to it.
            assert!(s.close() && r.is_closed());
        });
    });
}

/// Fails if an operation is completed on a channel that was not selected: a value goes to a channel that the select did not
/// check.
#[test]
fn an_operation_is_completed_on_its_own_handle() {
    everyone(|crew| {
        crew.run(|| {
            let ((s, r), (other_s, other_r)) = (unbounded::<u8>(), unbounded::<u8>());
            let mut select = Select::new();
            let index = select.send(&s);
            let chosen = select.select();
            assert_eq!((chosen.index(), chosen.send(&s, 1)), (index, Ok(())));
            let mut select = Select::new();
            select.recv(&r);
            assert_eq!(select.select().recv(&r), Ok(1));
            other_s.close();
            let mut select = Select::new();
            select.send(&other_s);
            assert_eq!(select.select().send(&other_s, 9), Err(SendError(9)));
            let mut copy = select.clone();
            copy.recv(&other_r);
            copy.remove(0);
            assert_eq!(copy.select().recv(&other_r), Err(RecvError));
        });
    });
}

/// Fails by the thread's CPU time when each try walks over all records that were claimed through another queue, in either
/// direction.
#[test]
fn tries_do_not_walk_over_what_was_claimed_elsewhere() {
    const WAITING: usize = 5_000;
    const TRIES: usize = 20_000;
    fn tries(mut once: impl FnMut()) -> Duration {
        let start = thread_time();
        (0..TRIES).for_each(|_| once());
        thread_time() - start
    }
    runtime(1).run(|| {
        let ((to_none, of_none), (to_all, of_all)) = (bounded::<()>(0), bounded::<()>(0));
        let quiet = tries(|| {
            gmp::select! { send(to_none, ()) -> _ => unreachable!(), default => {} }
            gmp::select! { recv(of_none) -> _ => unreachable!(), default => {} }
        });
        for receives in [true, false] {
            let (wakes, waiters): (Vec<_>, Vec<_>) = (0..WAITING)
                .map(|_| {
                    let ((wake, wakes), s, r) = (bounded::<()>(0), to_all.clone(), of_all.clone());
                    let waiter = gmp::go(move || match receives {
                        true => gmp::select! { recv(r) -> _ => unreachable!(), recv(wakes) -> _ => {} },
                        false => gmp::select! { send(s, ()) -> _ => unreachable!(), recv(wakes) -> _ => {} },
                    });
                    (wake, waiter)
                })
                .unzip();
            // A waiter whose thread the kernel preempts loses its P, and begins to wait after the others.
            until(|| {
                wakes.iter().all(|wake| {
                    let mut waited_for = Select::new();
                    waited_for.send(wake);
                    waited_for.try_ready().is_ok()
                })
            });
            // These sends claim all waiters; with one P no waiter has run yet.
            wakes.iter().for_each(|wake| wake.try_send(()).unwrap());
            let took = tries(|| match receives {
                true => gmp::select! { send(to_all, ()) -> _ => unreachable!(), default => {} },
                false => gmp::select! { recv(of_all) -> _ => unreachable!(), default => {} },
            });
            assert!(took < 2 * quiet + Duration::from_millis(50), "{took:?}, and {quiet:?} without them");
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        }
    });
}

thread_local! { static LEFT: RefCell<Option<SelectedOperation<'static>>> = const { RefCell::new(None) } }

#[inline(never)]
fn leave_in_the_thread(operation: SelectedOperation<'static>) {
    LEFT.with(|left| *left.borrow_mut() = Some(operation));
}

#[inline(never)]
fn find_in_the_thread() -> SelectedOperation<'static> {
    LEFT.with(|left| left.borrow_mut().take()).expect("the thread is the same")
}

fn chosen_send(sender: &'static Sender<Arc<()>>) -> SelectedOperation<'static> {
    let mut select = Select::new();
    select.send(sender);
    select.select()
}

/// A chosen send goes from one goroutine to another through a thread-local, against the sixth clause of the contract. The
/// second goroutine is refused, and the first goes on with its records of both sends. Fails when the second goroutine completes
/// the send: its record is then freed, and the first goroutine still finds that record in its list.
#[test]
fn a_chosen_send_is_not_completed_by_another_goroutine() {
    common::child::without_retakes("a_chosen_send_is_not_completed_by_another_goroutine", || {
        type End = fn(SelectedOperation<'_>, &Sender<Arc<()>>, Arc<()>);
        let ends: [(&str, End); 2] = [
            ("was chosen in another goroutine", |left, sender, message| left.send(sender, message).unwrap()),
            ("without completing", |left, _, _| drop(left)),
        ];
        for (text, end) in ends {
            runtime(1).run(move || {
                let (ours, theirs) = (bounded(1), bounded(1));
                let [(ours, from_ours), (theirs, from_theirs)] =
                    [ours, theirs].map(|pair| (&*Box::leak(Box::new(pair.0)), pair.1));
                let first = chosen_send(ours);
                leave_in_the_thread(chosen_send(theirs));
                let message = Arc::new(());
                let same = Arc::clone(&message);
                let other = gmp::go(move || {
                    let left = find_in_the_thread();
                    panics_with(text, || end(left, theirs, same));
                });
                other.join().unwrap();
                assert_eq!(Arc::strong_count(&message), 1);
                // These would reuse the memory of a freed record.
                let _others: Vec<_> = (0..64).map(|_| Box::new([usize::MAX; 10])).collect();
                first.send(ours, message).unwrap();
                assert!(from_ours.recv().is_ok());
                // The slot stays promised, as where an operation is forgotten.
                assert!(from_theirs.is_empty() && theirs.is_full());
            });
        }
    });
}

type Unsent = Pin<Box<dyn Future<Output = ()>>>;

thread_local! { static BEGUN: RefCell<Option<Unsent>> = const { RefCell::new(None) } }

#[inline(never)]
fn leave_begun(future: Unsent) {
    BEGUN.with(|begun| *begun.borrow_mut() = Some(future));
}

#[inline(never)]
fn find_begun() -> Unsent {
    BEGUN.with(|begun| begun.borrow_mut().take()).expect("the thread is the same")
}

/// As the test above, for the send of a `select!` in a future that one goroutine begins to poll and another goes on to poll.
/// The send can't be left where it is, so the process ends. Fails when the send goes on.
#[test]
fn a_send_that_a_macro_has_chosen_is_not_completed_by_another_goroutine() {
    const NAME: &str = "a_send_that_a_macro_has_chosen_is_not_completed_by_another_goroutine";
    if common::child::is_child() {
        return runtime(1).run(|| {
            let poll = |future: &mut Unsent| future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let (sender, _receiver) = bounded(1);
            let mut polls = 0;
            let mut future: Unsent = Box::pin(async move {
                let message = std::future::poll_fn(|_| {
                    polls += 1;
                    if polls == 1 { Poll::Pending } else { Poll::Ready(7) }
                });
                gmp::select! {
                    send(sender, message.await) -> sent => sent.unwrap(),
                }
            });
            assert!(poll(&mut future).is_pending());
            leave_begun(future);
            assert!(gmp::go(move || poll(&mut find_begun()).is_ready()).join().unwrap());
        });
    }
    let ended = common::child::run(NAME, &[("GMPDEBUG", "handoff=0")]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("is another goroutine's"), "{ended:?}");
}

/// A message that is not `Send`, and counts the drops.
struct OfThread(Arc<AtomicUsize>, PhantomData<Rc<()>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A `Select` outlives the runtime in whose first goroutine, which was the calling thread's, its operation was added, and goes
/// to the first goroutine of the next one, which often is at the same address. Fails when the message is dropped there.
#[test]
fn a_message_is_not_dropped_in_a_goroutine_of_a_later_runtime() {
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 0..40 {
        let counts = Arc::clone(&drops);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let first = unsafe { gmp::Runtime::builder().procs(1).build().unwrap() };
        // SAFETY: as above.
        let mut select = unsafe {
            first.run_locked(|| {
                let (sender, receiver) = bounded(1);
                sender.send(OfThread(counts, PhantomData)).unwrap();
                let mut select = Select::new();
                select.recv(Box::leak(Box::new(receiver)));
                select
            })
        };
        drop(first);
        runtime(1).run(move || panics_with("without completing", || drop(select.select())));
        assert_eq!(drops.load(SeqCst), 0, "in round {round}");
    }
}
