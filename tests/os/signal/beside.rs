//! The program sets an action while a call of the library reads that action and changes it: at each `sigaction` of the call.

use super::actions::counting;
use super::{CALLS, action, alone, handler, install_over, limit, set};
use common::{child, gate::Gate, runtime, seccomp, until};
use gmp::signal::{self, SIGQUIT, Signal};
use std::hint::spin_loop;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// The number of the call at which the program sets the action; 0 when the program does not.
static NTH: AtomicUsize = AtomicUsize::new(0);
/// The number of calls since `at` was called.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// From here on `sets` runs before the `sigaction` of this thread that `at` names, and before each later one. Its argument is
/// the number of calls since the named one.
fn hold_all(mut sets: impl FnMut(usize) + Send + 'static) {
    seccomp::precede(libc::SYS_rt_sigaction, move || {
        let nth = NTH.load(SeqCst);
        if nth > 0
            && let Some(later) = (MADE.fetch_add(1, SeqCst) + 1).checked_sub(nth)
        {
            sets(later);
        }
    });
}

/// As `hold_all`, but only before the named call.
fn hold(mut sets: impl FnMut() + Send + 'static) {
    hold_all(move |later| {
        if later == 0 {
            sets();
        }
    });
}

/// Makes the program set the action at the call `nth`, from 1 on, that `changes` makes. Returns `false` if there are fewer
/// calls.
fn at(nth: usize, changes: impl FnOnce()) -> bool {
    MADE.store(0, SeqCst);
    NTH.store(nth, SeqCst);
    changes();
    NTH.store(0, SeqCst);
    MADE.load(SeqCst) >= nth
}

fn nth_signal(nth: usize) -> Signal {
    Signal::from(libc::SIGRTMIN() + nth as libc::c_int)
}

fn set_counting(signal: Signal) {
    set(signal.as_raw(), counting());
}

/// Sends the signal to this thread, which handles it at once.
fn raise_here(signal: Signal) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(signal.as_raw()) }, 0);
}

/// The signal of this round, for the thread that holds the calls.
static ROUND: AtomicUsize = AtomicUsize::new(0);

fn hold_for_signals() {
    hold(|| set_counting(nth_signal(ROUND.load(SeqCst))));
}

/// Returns a signal that no round before had.
fn next(nth: usize) -> Signal {
    ROUND.store(nth, SeqCst);
    nth_signal(nth)
}

fn is_called(signal: Signal, nth: usize) {
    let before = CALLS.load(SeqCst);
    raise_here(signal);
    until(|| CALLS.load(SeqCst) == before + 1);
    assert_eq!(CALLS.load(SeqCst), before + 1, "call {nth}");
}

/// Checks that the action that the program sets is in force after `changes`. Without that, `changes` makes `least` calls or
/// more.
fn stays<T>(least: usize, prepare: impl Fn(Signal) -> T, changes: impl Fn(Signal, T)) {
    hold_for_signals();
    for nth in 1.. {
        let signal = next(nth);
        let prepared = prepare(signal);
        if !at(nth, || changes(signal, prepared)) {
            assert!(nth > least, "{nth}");
            return;
        }
        assert_eq!(handler(signal), counting(), "call {nth}");
        is_called(signal, nth);
    }
}

/// Fails when a handler of the program is not called, or is not restored.
#[test]
fn a_handler_that_is_set_beside_notify_is_passed_on_to() {
    alone("a_handler_that_is_set_beside_notify_is_passed_on_to", || {
        hold_for_signals();
        for nth in 1.. {
            let (signal, mut receiver) = (next(nth), None);
            if !at(nth, || receiver = Some(signal::notify(&[signal]).unwrap())) {
                assert!(nth > 2, "{nth}");
                return;
            }
            let receiver = receiver.expect("it was made");
            is_called(signal, nth);
            assert_eq!(receiver.recv_deadline(limit()), Ok(signal));
            drop(receiver);
            assert_eq!(handler(signal), counting(), "call {nth}");
        }
    });
}

/// Fails when two handlers call each other for ever, until the stack is full.
#[test]
fn a_handler_that_comes_over_ours_beside_notify_stays_and_passes_on() {
    alone("a_handler_that_comes_over_ours_beside_notify_stays_and_passes_on", || {
        let signal = || nth_signal(ROUND.load(SeqCst));
        hold_all(move |later| match later {
            0 => set_counting(signal()),
            1 => install_over(signal()),
            _ => {}
        });
        // Another signal tells how many calls there are: the last one sets the library's handler.
        let other = next(1);
        let mut receivers = Vec::new();
        assert!(!at(usize::MAX, || receivers.push(signal::notify(&[other]).unwrap())));
        let (last, signal) = (MADE.load(SeqCst), next(2));
        assert!(at(last, || receivers.push(signal::notify(&[signal]).unwrap())));
        assert!(MADE.load(SeqCst) > last);
        let over = handler(signal);
        raise_here(signal);
        assert_eq!(receivers[1].recv_deadline(limit()), Ok(signal));
        assert_eq!(CALLS.load(SeqCst), 2);
        drop(receivers);
        raise_here(signal);
        assert_eq!((CALLS.load(SeqCst), handler(signal)), (4, over));
    });
}

/// Fails when the action from before is restored instead.
#[test]
fn a_handler_that_is_set_beside_the_drop_of_the_receiver_stays() {
    alone("a_handler_that_is_set_beside_the_drop_of_the_receiver_stays", || {
        stays(2, |signal| signal::notify(&[signal]).unwrap(), |_, receiver| drop(receiver));
    });
}

/// Fails when the action from before is restored instead.
#[test]
fn a_handler_that_is_set_beside_reset_stays() {
    alone("a_handler_that_is_set_beside_reset_stays", || {
        stays(
            2,
            |signal| signal::notify(&[signal]).unwrap(),
            |signal, receiver| {
                signal::reset(&[signal]).unwrap();
                drop(receiver);
            },
        );
    });
}

/// Another library has put the library's handler back, which then removes itself. Fails when the action from before is restored
/// instead.
#[test]
fn a_handler_that_is_set_while_ours_takes_itself_out_stays() {
    extern "C" fn idle(_signal: libc::c_int) {}
    alone("a_handler_that_is_set_while_ours_takes_itself_out_stays", || {
        let left_behind = |signal: Signal| {
            set(signal.as_raw(), idle as *const () as usize);
            let receiver = signal::notify(&[signal]).unwrap();
            let ours = action(signal);
            drop(receiver);
            // SAFETY: the action was in force before.
            unsafe { libc::sigaction(signal.as_raw(), &raw const ours, std::ptr::null_mut()) };
        };
        stays(2, left_behind, |signal, ()| raise_here(signal));
    });
}

/// Runs `test` in one child for each call that the test makes, with the number of the call, as long as the child says that the
/// call came.
fn at_each(test: &str, least: usize, child: impl FnOnce(usize) -> bool) {
    const NTH: &str = "NTH";
    const CAME: &str = "the program has set an action";
    if let Ok(nth) = std::env::var(NTH) {
        if child(nth.parse().unwrap()) {
            eprintln!("{CAME}");
        }
        return;
    }
    let came = |nth: &usize| child::passes(test, &[(NTH, &nth.to_string())]).contains(CAME);
    let calls = (1..).take_while(came).count();
    assert!(calls >= least, "{calls}");
}

/// Fails when the handler is replaced, or is not called for a SIGSEGV that was sent; or when the program's handler came first,
/// and the library removes its own, which then reports no overflow.
#[test]
fn a_handler_that_is_set_beside_the_first_runtime_stays() {
    at_each("a_handler_that_is_set_beside_the_first_runtime_stays", 3, |nth| {
        static BEFORE: AtomicUsize = AtomicUsize::new(0);
        let fault = Signal::from(libc::SIGSEGV);
        let from_before = handler(fault);
        hold(move || {
            set(SIGQUIT.as_raw(), counting());
            BEFORE.store(set(libc::SIGSEGV, counting()), SeqCst);
        });
        let mut rt = None;
        if !at(nth, || rt = Some(runtime(2))) {
            return false;
        }
        assert_eq!(handler(SIGQUIT), counting());
        assert_eq!(handler(fault) != counting(), BEFORE.load(SeqCst) == from_before);
        is_called(SIGQUIT, nth);
        is_called(fault, nth);
        true
    });
}

/// Fails when a handler of the program is replaced for good.
#[test]
fn a_handler_that_is_set_beside_the_first_dump_stays() {
    alone("a_handler_that_is_set_beside_the_first_dump_stays", || {
        let rt = runtime(2);
        let (begun, over) = (Gate::default(), Gate::default());
        let [begins, ends] = [&begun, &over].map(Gate::clone);
        let runs = rt.go(move || {
            begins.open();
            while !ends.is_open() {
                spin_loop();
            }
        });
        begun.pass();
        let asks = Signal::from(libc::SIGRTMIN() + 12);
        hold(move || set_counting(asks));
        for nth in 1.. {
            set(asks.as_raw(), libc::SIG_DFL);
            if !at(nth, || drop(rt.dump())) {
                assert!(nth > 2, "{nth}");
                break;
            }
            assert_eq!(handler(asks), counting(), "call {nth}");
            is_called(asks, nth);
        }
        over.open();
        runs.join().unwrap();
    });
}
