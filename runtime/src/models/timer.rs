//! Callbacks: stop, reset and firing agree on how often a callback is called, no M sleeps past a callback that a
//! thread sets, and none is lost with its runtime.
//!
//! *Modelled*: one or two heaps, the M in the poller, the timer thread and its callback threads. *The mutants* take out
//! IdleFence and TimerFence, the one critical section of a firing, the wake-ups of an M or thread that would sleep past an
//! earlier time, and the moves of callbacks at the end of a runtime.

use super::caught;
use super::cover::{
    Handle, Held, InlineCall, ask_for_the_timer_thread, leave_call, refuse_beside_the_timer,
    timer_thread_ends, timer_thread_is_quiet,
};
use super::task::{Foreign, poll, run};
use crate::model::{
    Flag, LONG, Model, Mutant, at_rest, done, fall_asleep, grant_threads, pass, refuse_threads, runtime,
    together_with_us,
};
use crate::time::{Timer, after_func, sleep, sleep_async};
use crate::{JoinHandle, Runtime, chan, select};
use loom::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use loom::sync::{Condvar, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(1);

/// Counts calls; a thread may wait for a count.
#[derive(Clone, Default)]
struct Count(Arc<(Mutex<usize>, Condvar)>);

impl Count {
    fn add(&self) {
        *self.0.0.lock().expect("no panic under a model's lock") += 1;
        self.0.1.notify_all();
    }
    fn get(&self) -> usize {
        *self.0.0.lock().expect("no panic under a model's lock")
    }
    /// Blocks the thread until there were `n` calls.
    fn reaches(&self, n: usize) {
        let mut count = self.0.0.lock().expect("no panic under a model's lock");
        while *count < n {
            count = self.0.1.wait(count).expect("no panic under a model's lock");
        }
        assert_eq!(*count, n, "called too often");
    }
}

/// Makes a timer, whose time is far away, in the heap of the only P.
fn far_timer(runtime: &Runtime, count: &Count) -> Timer {
    let count = count.clone();
    runtime.go(move || after_func(4 * LONG, move || count.add())).join().unwrap()
}

/// Makes a runtime with one M, which waits in the poller for a timer that is far away. loom's search then begins.
fn far_away() -> (Runtime, Timer, Count) {
    let (runtime, count) = (runtime(1, 1), Count::default());
    let timer = far_timer(&runtime, &count);
    fall_asleep::<1>(&runtime);
    loom::explore();
    (runtime, timer, count)
}

/// Moves a timer that is far away to an earlier time. The search pauses meanwhile.
fn fires_soon(timer: &Timer) {
    loom::stop_exploring();
    assert!(timer.reset(DELAY));
    loom::explore();
}

/// Lets the clock move, which only the poller does: a goroutine that was made for the timer has run when this
/// returns.
fn let_it_fire(runtime: &Runtime) {
    runtime.go(|| sleep(DELAY)).join().unwrap();
}

/// Fails by deadlock when the M in the poller is not told of the earlier time.
#[test]
fn a_callback_that_is_moved_to_an_earlier_time_is_called_then() {
    Model::new().check("call_moved", || {
        let (_runtime, timer, count) = far_away();
        assert!(timer.reset(DELAY));
        count.reaches(1);
        done();
    });
}

/// An armed callback is moved to an earlier time while the M goes into the poller. Fails by deadlock when neither sees
/// the other.
#[test]
fn a_callback_is_moved_while_the_m_goes_into_the_poller() {
    Model::new().check("call_moved_vs_idle", || {
        let (runtime, count) = (runtime(1, 1), Count::default());
        let timer = far_timer(&runtime, &count);
        let [_goes_idle] = together_with_us(&runtime, [Box::new(|| ())]);
        assert!(timer.reset(DELAY));
        count.reaches(1);
        done();
    });
}

/// The M fires the callback while a thread stops it. Fails when the callback is called although `stop` returned
/// `true`, and by deadlock when it is not called although `stop` returned `false`.
#[test]
fn a_stop_and_a_firing_agree() {
    Model::new().check("call_stop", || {
        let (runtime, timer, count) = far_away();
        fires_soon(&timer);
        let expected = usize::from(!timer.stop());
        count.reaches(expected);
        assert!(!timer.stop(), "stopped, or fired");
        done();
        let_it_fire(&runtime);
        assert_eq!(count.get(), expected);
    });
}

/// As `a_stop_and_a_firing_agree`, with a reset: there is a firing for each setting that was not taken back.
#[test]
fn a_reset_and_a_firing_agree() {
    Model::new().check("call_reset", || {
        let (runtime, timer, count) = far_away();
        fires_soon(&timer);
        let expected = 2 - usize::from(timer.reset(DELAY));
        count.reaches(expected);
        done();
        let_it_fire(&runtime);
        assert_eq!(count.get(), expected);
        assert!(!timer.stop());
    });
}

/// A P without timers becomes idle while a thread puts a callback into its heap. Fails by deadlock when the M that goes
/// into the poller leaves that heap out.
#[test]
fn a_callback_is_put_into_the_heap_of_a_p_that_becomes_idle() {
    Model::new().check("call_vs_idle", || {
        let (runtime, count) = (runtime(1, 1), Count::default());
        let timer = far_timer(&runtime, &count);
        assert!(timer.stop());
        let [_goes_idle] = together_with_us(&runtime, [Box::new(|| ())]);
        assert!(!timer.reset(DELAY));
        count.reaches(1);
        done();
    });
}

/// Makes a callback in the heap of each of two Ps; their times are far away.
fn far_calls_on_two_ps(runtime: &Runtime, count: &Count) -> [InlineCall; 2] {
    let at_work = [Flag::default(), Flag::default()];
    // Each maker is on an M, and so on a P, of its own.
    let makers = [0, 1].map(|number| {
        let (at_work, calls) = (at_work.clone(), count.clone());
        runtime.go(move || {
            let call = InlineCall::after(4 * LONG, move || calls.add());
            at_work[number].raise();
            at_work[1 - number].wait_on_thread();
            call
        })
    });
    makers.map(|maker| maker.join().unwrap())
}

/// Two Ps are idle, each with an empty heap; one of their Ms waits in the poller and takes one of the Ps when it is
/// summoned. Fails by deadlock when that M then leaves the heap of the other P out.
#[test]
fn a_callback_is_put_into_the_heap_of_any_idle_p() {
    for which in [0, 1] {
        Model::new().preemptions(1).check("call_on_idle_p", move || {
            let (runtime, count) = (runtime(2, 2), Count::default());
            let calls = far_calls_on_two_ps(&runtime, &count);
            assert!(calls.iter().all(InlineCall::stop));
            fall_asleep::<2>(&runtime);
            loom::explore();
            assert!(!calls[which].reset(DELAY));
            count.reaches(1);
            done();
        });
    }
}

/// Two Ps are idle, each with a callback far away, and either callback is moved to an earlier time. Fails by deadlock when the
/// M in the poller waits for the other callback.
#[test]
fn the_poller_waits_for_the_earliest_of_two_heaps() {
    for which in [0, 1] {
        Model::new().preemptions(1).check("call_on_either_p", move || {
            let (runtime, count) = (runtime(2, 2), Count::default());
            let calls = far_calls_on_two_ps(&runtime, &count);
            fall_asleep::<2>(&runtime);
            loom::explore();
            assert!(calls[which].reset(DELAY));
            count.reaches(1);
            done();
            assert!(calls[1 - which].stop());
        });
    }
}

/// A P is taken away, and becomes idle, while its goroutine puts a callback into its heap. Fails by deadlock when the
/// M that goes to the poller from another P leaves that heap out.
#[test]
fn a_callback_is_put_into_the_heap_of_a_p_that_is_taken_away() {
    Model::new().with_retaker().preemptions(1).check("call_vs_retake", || {
        let (runtime, count) = (runtime(2, 2), Count::default());
        fall_asleep::<2>(&runtime);
        let handle = Handle::of(&runtime);
        let setter = runtime.go(move || {
            handle.await_poller();
            let calls = count.clone();
            let call = InlineCall::after(4 * LONG, move || calls.add());
            assert!(call.stop());
            handle.await_poller();
            let held = Held::current();
            loom::explore();
            let retaker = loom::thread::spawn(move || held.retake());
            assert!(!call.reset(DELAY));
            count.reaches(1);
            done();
            retaker.join().unwrap();
        });
        setter.join().unwrap();
    });
}

/// As `a_callback_is_put_into_the_heap_of_a_p_that_is_taken_away`, for a callback that the goroutine makes.
#[test]
fn a_callback_is_made_in_the_heap_of_a_p_that_is_taken_away() {
    Model::new().with_retaker().preemptions(1).check("new_call_vs_retake", || {
        let (runtime, count) = (runtime(2, 2), Count::default());
        fall_asleep::<2>(&runtime);
        let handle = Handle::of(&runtime);
        let setter = runtime.go(move || {
            handle.await_poller();
            let (held, calls) = (Held::current(), count.clone());
            loom::explore();
            let retaker = loom::thread::spawn(move || held.retake());
            let _call = InlineCall::after(DELAY, move || calls.add());
            count.reaches(1);
            done();
            retaker.join().unwrap();
        });
        setter.join().unwrap();
    });
}

/// The runtime ends while a thread arms a callback of its heap. Fails by deadlock when no thread is left to call the
/// callback, and when it is called twice.
#[test]
fn a_callback_that_is_set_while_its_runtime_ends_is_called() {
    Model::new().check("call_vs_end", || {
        let (runtime, count) = (runtime(1, 1), Count::default());
        let calls = count.clone();
        let call = runtime.go(move || InlineCall::after(4 * LONG, move || calls.add())).join().unwrap();
        assert!(call.stop());
        fall_asleep::<1>(&runtime);
        let setter = loom::thread::spawn(move || {
            assert!(!call.reset(Duration::ZERO));
            call
        });
        loom::explore();
        drop(runtime);
        let call = setter.join().unwrap();
        count.reaches(1);
        done();
        assert!(!call.stop());
        timer_thread_ends();
    });
}

/// The runtime ends while a callback is due: its goroutine runs, or was made and never runs, or no M has looked.
/// Fails by deadlock when the callback is not called.
#[test]
fn a_callback_that_is_due_when_its_runtime_ends_is_called() {
    Model::new().preemptions(1).check("due_vs_end", || {
        let (runtime, timer, count) = far_away();
        assert!(timer.reset(Duration::ZERO));
        drop(runtime);
        count.reaches(1);
        done();
        timer_thread_ends();
    });
}

/// A call is left to the timer thread, which sleeps for another callback, or is about to. Fails by deadlock when neither sees
/// the other.
#[test]
fn a_call_is_left_to_a_timer_thread_that_goes_to_sleep() {
    Model::new().check("left_vs_sleep", || {
        let count = Count::default();
        let calls = count.clone();
        let other = InlineCall::after(LONG, || unreachable!("it is stopped"));
        leave_call(move || calls.add());
        count.reaches(1);
        done();
        assert!(other.stop());
        timer_thread_ends();
    });
}

/// Outside of any runtime: a callback thread, the only one that there may be, ends while another callback is due. Fails by
/// deadlock when neither that thread nor the timer thread sees that the call waits.
#[test]
fn a_callback_thread_does_not_end_before_a_call_that_waits() {
    Model::new().preemptions(2).check("caller_ends", || {
        let count = Count::default();
        let timers = [(); 2].map(|()| {
            let calls = count.clone();
            after_func(Duration::ZERO, move || calls.add())
        });
        count.reaches(2);
        done();
        drop(timers);
        timer_thread_ends();
    });
}

/// Outside of any runtime: the timer thread ends while another callback is set. Fails by deadlock when that callback is not
/// called.
#[test]
fn the_timers_thread_does_not_end_before_a_callback() {
    Model::new().preemptions(3).check("timer_thread_ends", || {
        let count = Count::default();
        let calls = count.clone();
        let call = InlineCall::after(Duration::ZERO, move || calls.add());
        count.reaches(1);
        assert!(!call.reset(Duration::ZERO));
        count.reaches(2);
        done();
        timer_thread_ends();
    });
}

/// The timer thread is about to sleep for long when a callback is moved. Fails by deadlock when the thread sleeps past the
/// callback.
#[test]
fn the_timers_thread_does_not_sleep_past_a_callback() {
    Model::new().preemptions(3).check("timer_thread_sleeps", || {
        let count = Count::default();
        let calls = count.clone();
        let call = InlineCall::after(LONG, move || calls.add());
        assert!(call.reset(Duration::ZERO));
        count.reaches(1);
        done();
        timer_thread_ends();
    });
}

/// Fails by deadlock when the timer thread stays until the time of a callback that was stopped.
#[test]
fn the_timers_thread_goes_with_its_last_callback() {
    Model::new().preemptions(3).check("timer_thread_told", || {
        let call = InlineCall::after(LONG, || unreachable!("it is stopped"));
        assert!(call.stop());
        timer_thread_ends();
        done();
    });
}

/// The monitor finds the timer of a wait due while the commit hook of that wait refuses. Fails by an assertion of the word
/// when the owner closes its wait between the claim and the ready.
#[test]
fn a_wait_that_was_refused_meets_its_timer() {
    Model::new().preemptions(2).check("refused_vs_timer", || {
        let _runtime = refuse_beside_the_timer();
        done();
    });
}

/// The start of the timer thread is refused once. Fails by deadlock when the next setter does not ask for it again, as its
/// callback is not the earliest.
#[test]
fn a_timers_thread_that_was_refused_is_asked_for_again() {
    Model::new().check("timer_thread_refused", || {
        let flags: [Flag; 2] = Default::default();
        refuse_threads();
        let calls = flags.clone().map(|flag| {
            let call = InlineCall::after(Duration::ZERO, move || flag.raise());
            grant_threads();
            call
        });
        flags.iter().for_each(Flag::wait_on_thread);
        drop(calls);
        timer_thread_ends();
        done();
    });
}

/// A callback is set while the timer thread is refused, and no other is set. Fails by deadlock when a look does not ask for the
/// timer thread again.
#[test]
fn a_callback_without_a_timers_thread_waits_for_one() {
    Model::new().check("kept_refused", || {
        let flag = Flag::default();
        refuse_threads();
        let raises = flag.clone();
        let call = InlineCall::after(Duration::ZERO, move || raises.raise());
        ask_for_the_timer_thread();
        grant_threads();
        ask_for_the_timer_thread();
        flag.wait_on_thread();
        drop(call);
        timer_thread_ends();
        done();
    });
}

/// A call is left while the timer thread is refused. Fails when the thread that leaves the call makes it, and by deadlock when
/// a look does not ask for the timer thread again.
#[test]
fn a_call_that_is_left_without_a_thread_waits_for_one() {
    Model::new().check("left_refused", || {
        let count = Count::default();
        refuse_threads();
        let calls = count.clone();
        leave_call(move || calls.add());
        ask_for_the_timer_thread();
        assert_eq!(count.get(), 0, "called by a thread that leaves it, or asks");
        assert!(!timer_thread_is_quiet(), "a call waits");
        grant_threads();
        ask_for_the_timer_thread();
        count.reaches(1);
        done();
        timer_thread_ends();
    });
}

/// A call is left to the timer thread while all further threads are refused. Fails by deadlock when the timer thread takes the
/// thread that was refused for a callback thread, and does not make the call.
#[test]
fn a_call_for_which_a_thread_is_refused_is_made() {
    Model::new().preemptions(2).check("caller_refused", || {
        let (count, far) = (Count::default(), InlineCall::after(LONG, || unreachable!("it is stopped")));
        refuse_threads();
        let calls = count.clone();
        leave_call(move || calls.add());
        count.reaches(1);
        done();
        assert!(far.stop());
        timer_thread_ends();
    });
}

/// A call waits for the timer thread, and the monitors of two runtimes look. Fails when both start that thread: then one thread
/// still runs when the state says that there is none.
#[test]
fn two_looks_start_one_timer_thread() {
    Model::new().preemptions(2).check("left_vs_looks", || {
        let count = Count::default();
        refuse_threads();
        let calls = count.clone();
        leave_call(move || calls.add());
        grant_threads();
        let looks = loom::thread::spawn(ask_for_the_timer_thread);
        ask_for_the_timer_thread();
        count.reaches(1);
        done();
        looks.join().unwrap();
        timer_thread_ends();
    });
}

/// The judge of a deadlock asks while a callback is called, outside of any runtime. Fails when the judge misses the call.
#[test]
fn a_call_of_the_timers_thread_is_awake() {
    Model::new().preemptions(2).check("timer_thread_calls", || {
        let called = Arc::new(AtomicBool::new(false));
        let calls = Arc::clone(&called);
        let _call = InlineCall::after(Duration::ZERO, move || calls.store(true, Release));
        if timer_thread_is_quiet() {
            assert!(called.load(Acquire), "said to be quiet, with a call on its way");
        }
        timer_thread_ends();
        done();
    });
}

/// A goroutine watches a timer channel, and a thread sets the channel's time to now. Fails by deadlock when the watcher waits
/// for the time that was set before.
#[test]
fn a_ready_hears_of_an_earlier_time() {
    Model::new().preemptions(1).check("tick_moved", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let timer = Timer::new(4 * LONG);
        let receiver = timer.receiver().clone();
        loom::explore();
        let watcher = runtime.go(move || {
            let mut select = crate::chan::Select::new();
            select.recv(&receiver);
            select.ready()
        });
        assert!(timer.reset(Duration::ZERO));
        assert_eq!(watcher.join().unwrap(), 0);
        done();
    });
}

/// A goroutine receives from a timer channel, and a thread sets the channel's time to now. Fails by deadlock when the receiver
/// waits for the time that was set before.
#[test]
fn a_receive_hears_of_an_earlier_time() {
    Model::new().preemptions(2).check("tick_moved_for_a_receive", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let timer = Timer::new(4 * LONG);
        let receiver = timer.receiver().clone();
        loom::explore();
        let owner = runtime.go(move || receiver.recv());
        assert!(timer.reset(Duration::ZERO));
        assert!(owner.join().unwrap().is_ok());
        done();
    });
}

/// Starts a goroutine in a runtime with one P, and returns when it has parked.
fn parked<T: Send + 'static>(runtime: &Runtime, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let handle = runtime.go(f);
    // There is one M and one queue: once this goroutine has run, the other one has parked.
    runtime.run(|| ());
    handle
}

/// Two goroutines wait for one time. The time comes, and at the same moment the first goroutine, which has the turn, gets a
/// message from another channel. Fails by deadlock when the second does not hear that the turn is its own.
#[test]
fn a_turn_goes_on_beside_the_beat() {
    Model::new().preemptions_by_default(1).check("turn_goes_on", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let timer = Timer::new(LONG);
        let (s, other) = chan::bounded(1);
        let [first, second] = [(); 2].map(|()| timer.receiver().clone());
        let first = parked(&runtime, move || select! { recv(first) -> _ => true, recv(other) -> _ => false });
        let second = parked(&runtime, move || second.recv().is_ok());
        fall_asleep::<1>(&runtime);
        pass(LONG);
        loom::explore();
        // This goroutine makes the M look at the time.
        drop(runtime.go(|| ()));
        // The first goroutine may have received the time, and be gone.
        let _sent = s.send(());
        if first.join().unwrap() {
            timer.reset(Duration::ZERO);
        }
        assert!(second.join().unwrap());
        done();
    });
}

/// The goroutine that has the turn is left behind by its runtime, and a goroutine of another runtime waits behind it. Fails by
/// deadlock when the second does not hear that the turn is its own.
#[test]
fn a_turn_goes_on_from_a_goroutine_that_is_left_behind() {
    Model::new().preemptions(1).check("turn_left_behind", || {
        let theirs = runtime(1, 1);
        loom::explore();
        let (ours, at) = (runtime(1, 1), chan::after(LONG));
        let [first, second] = [(); 2].map(|()| at.clone());
        drop(parked(&theirs, move || first.recv()));
        let second = parked(&ours, move || second.recv().is_ok());
        pass(LONG);
        loom::explore();
        assert_eq!(theirs.shutdown(Duration::ZERO).goroutines_left(), 1);
        assert!(second.join().unwrap());
        done();
    });
}

/// Outside of any runtime: a task that sleeps for long is given an earlier time. Fails by the clock when the timer keeps its
/// time, by deadlock when the timer does not wake the task.
#[test]
fn a_task_that_sleeps_is_given_an_earlier_time() {
    Model::new().check("sleep_moved", || {
        let (mut sleep, task) = (sleep_async(LONG), Foreign::new());
        let before = sleep.deadline();
        assert!(poll(Pin::new(&mut sleep), &task).is_pending());
        sleep.reset(sleep.deadline() - LONG);
        // The task waits before the next poll, which would see by the clock that the time has come.
        task.until_woken();
        run(Pin::new(&mut sleep), &task);
        // The clock has not come to the time that was set before.
        assert!(sleep_async(Duration::ZERO).deadline() < before, "woken late");
        done();
        timer_thread_ends();
    });
}

/// A goroutine awaits a time, which a thread moves on beside the firing. Fails by deadlock when the goroutine, which is woken
/// early, is not woken again; by the assertion when the future is ready early.
#[test]
fn a_sleep_is_moved_on_beside_the_firing() {
    Model::new().check("sleep_moved_on", || {
        let (runtime, sleep) = (runtime(1, 1), Arc::new(Mutex::new(sleep_async(4 * LONG))));
        let theirs = Arc::clone(&sleep);
        let sleeper = runtime.go(move || {
            crate::block_on(std::future::poll_fn(|cx| {
                let mut sleep = theirs.lock().expect("no panic under a model's lock");
                let polled = Pin::new(&mut *sleep).poll(cx);
                assert!(polled.is_pending() || sleep.is_elapsed(), "ready early");
                polled
            }));
            done();
        });
        fall_asleep::<1>(&runtime);
        loom::explore();
        for times in [1, 3] {
            let mut sleep = sleep.lock().expect("no panic under a model's lock");
            let soon = if times == 1 { sleep.deadline() - 4 * LONG } else { sleep.deadline() };
            sleep.reset(soon + times * DELAY);
        }
        sleeper.join().unwrap();
    });
}

/// A future that sleeps is dropped as its time comes. Fails by a causality violation, or by an assertion of the word, when
/// the timer wakes a wait that has gone; by deadlock when a waker stays behind.
#[test]
fn a_sleep_is_dropped_beside_the_firing() {
    Model::new().check("sleep_dropped", || {
        let (mut sleep, task) = (sleep_async(LONG), Foreign::new());
        assert!(poll(Pin::new(&mut sleep), &task).is_pending());
        sleep.reset(sleep.deadline() - LONG);
        drop(sleep);
        timer_thread_ends();
        if Arc::strong_count(&task) > 1 {
            // A thread aside has the waker.
            task.until_woken();
        }
        done();
    });
}

/// Its wake waits until a callback was called.
struct Behind(Count);

impl Wake for Behind {
    fn wake(self: Arc<Self>) {
        self.0.reaches(1);
    }
}

/// Outside of any runtime: the waker of a task that sleeps waits for a callback. Fails by deadlock when the timer thread calls
/// the waker, and so never comes to the callback.
#[test]
fn a_waker_waits_for_a_callback() {
    Model::new().preemptions(1).check("waker_waits", || {
        let (mut sleep, count) = (sleep_async(LONG), Count::default());
        let waker = Waker::from(Arc::new(Behind(count.clone())));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        let calls = count.clone();
        let timer = after_func(LONG, move || calls.add());
        sleep.reset(sleep.deadline() - LONG);
        timer.reset(Duration::ZERO);
        count.reaches(1);
        done();
        timer_thread_ends();
    });
}

#[test]
fn mutants() {
    const IDLE: &str = "a_callback_is_put_into_the_heap_of_a_p_that_becomes_idle";
    const END: &str = "a_callback_that_is_set_while_its_runtime_ends_is_called";
    const DUE: &str = "a_callback_that_is_due_when_its_runtime_ends_is_called";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::NewCallLeavesThePEarly, "a_callback_is_made_in_the_heap_of_a_p_that_is_taken_away"),
            (Mutant::RefusedCallerStaysCounted, "a_call_for_which_a_thread_is_refused_is_made"),
            (Mutant::SleepKeepsItsTimer, "a_task_that_sleeps_is_given_an_earlier_time"),
            (Mutant::SleepEndsEarly, "a_sleep_is_moved_on_beside_the_firing"),
            (Mutant::TimerThreadFiresUnseen, "a_call_of_the_timers_thread_is_awake"),
            (Mutant::TickMovesNoWatcher, "a_ready_hears_of_an_earlier_time"),
            (Mutant::TickReceiveQueuesLate, "a_receive_hears_of_an_earlier_time"),
            (Mutant::TurnEndsInSilence, "a_turn_goes_on_beside_the_beat"),
            (Mutant::TurnLeftBehind, "a_turn_goes_on_from_a_goroutine_that_is_left_behind"),
            (Mutant::RefusedClosesBlindly, "a_wait_that_was_refused_meets_its_timer"),
            (Mutant::CallMovedInSilence, "a_callback_that_is_moved_to_an_earlier_time_is_called_then"),
            (Mutant::TimerNoFence, "a_callback_is_moved_while_the_m_goes_into_the_poller"),
            (Mutant::IdleNoFence, "a_callback_is_moved_while_the_m_goes_into_the_poller"),
            (Mutant::FiringStaysArmed, "a_stop_and_a_firing_agree"),
            (Mutant::FiringInTwoSections, "a_stop_and_a_firing_agree"),
            (Mutant::FiringInTwoSections, "a_reset_and_a_firing_agree"),
            (Mutant::CallUnmasked, "a_callback_is_put_into_the_heap_of_any_idle_p"),
            (Mutant::PollerTakesTheFirstTimer, "the_poller_waits_for_the_earliest_of_two_heaps"),
            (Mutant::CallWithoutTheLock, IDLE),
            (Mutant::CallLeavesThePEarly, "a_callback_is_put_into_the_heap_of_a_p_that_is_taken_away"),
            (Mutant::OrphansForgotten, END),
            (Mutant::OrphanStaysHome, END),
            (Mutant::UnrunFiringLost, DUE),
            (Mutant::LeftInSilence, "a_call_is_left_to_a_timer_thread_that_goes_to_sleep"),
            (Mutant::TimerThreadCallsWakers, "a_waker_waits_for_a_callback"),
            (Mutant::LeaverCalls, "a_call_that_is_left_without_a_thread_waits_for_one"),
            (Mutant::MonitorLeavesCalls, "a_call_that_is_left_without_a_thread_waits_for_one"),
            (Mutant::MonitorLeavesTimers, "a_callback_without_a_timers_thread_waits_for_one"),
            (Mutant::LookStartsAnother, "two_looks_start_one_timer_thread"),
            (Mutant::CallbackThreadEndsLate, "a_callback_thread_does_not_end_before_a_call_that_waits"),
            (Mutant::TimerThreadEndsLate, "the_timers_thread_does_not_end_before_a_callback"),
            (Mutant::TimerThreadLooksEarly, "the_timers_thread_does_not_sleep_past_a_callback"),
            (Mutant::TimerThreadLooksEarly, "a_sleep_is_dropped_beside_the_firing"),
            (Mutant::TimerThreadRefusedForGood, "a_timers_thread_that_was_refused_is_asked_for_again"),
            (Mutant::TimerThreadNotTold, "the_timers_thread_goes_with_its_last_callback"),
        ],
    );
}
