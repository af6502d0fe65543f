//! Which signal action is in force, and which is restored.

use super::{CALLS, action, alone, dies_by, handler, install_over, limit, raise, set};
use common::{forked, until};
use gmp::process::Command;
use gmp::signal::{self, SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH, Signal};
use std::fs;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

extern "C" fn counts(_signal: libc::c_int) {
    CALLS.fetch_add(1, SeqCst);
}

/// Returns the handler. The address comes from a static: a function may have an address in each codegen unit.
pub(super) fn counting() -> libc::sighandler_t {
    static COUNTS: extern "C" fn(libc::c_int) = counts;
    COUNTS as *const () as usize
}

/// Fails when the restored action is not the one from before, or is restored too early.
#[test]
fn the_action_from_before_is_back_after_the_last_receiver() {
    alone("the_action_from_before_is_back_after_the_last_receiver", || {
        // SIGPIPE is ignored, the default action of SIGWINCH is to ignore it, and SIGUSR1 has a handler.
        set(libc::SIGUSR1, counting());
        for signal in [SIGINT, SIGTERM, SIGPIPE, SIGWINCH, SIGUSR1] {
            let before = action(signal);
            for _ in 0..2 {
                let first = signal::notify(&[signal]).unwrap();
                let second = signal::notify(&[signal, SIGCHLD]).unwrap();
                assert_ne!(handler(signal), before.sa_sigaction);
                // The library's handler calls the handler from before, which was installed without the flag.
                assert_eq!(action(signal).sa_flags & libc::SA_ONSTACK != 0, signal != SIGUSR1, "{signal}");
                drop(first);
                assert_ne!(handler(signal), before.sa_sigaction, "{signal}");
                raise(signal);
                assert_eq!(second.recv_deadline(limit()), Ok(signal));
                drop(second);
                let now = action(signal);
                // SA_RESTORER: the C library adds this flag to each action that it sets, and returns it with that action.
                let own_return = 0x0400_0000;
                assert_eq!(now.sa_sigaction, before.sa_sigaction, "{signal}");
                assert_eq!(now.sa_flags & !own_return, before.sa_flags & !own_return, "{signal}");
            }
        }
        assert_eq!(handler(SIGPIPE), libc::SIG_IGN);
        raise(SIGPIPE);
        raise(SIGWINCH);
    });
}

const EACH_RAISES_THE_NEXT: [libc::c_int; 6] =
    [libc::SIGUSR1, libc::SIGUSR2, libc::SIGHUP, libc::SIGWINCH, libc::SIGTERM, libc::SIGINT];
static DEPTH: AtomicUsize = AtomicUsize::new(0);
static DEEPEST: AtomicUsize = AtomicUsize::new(0);

extern "C" fn raises_the_next(signal: libc::c_int) {
    DEEPEST.fetch_max(DEPTH.fetch_add(1, SeqCst) + 1, SeqCst);
    let at = EACH_RAISES_THE_NEXT.iter().position(|&one| one == signal).unwrap();
    if let Some(&next) = EACH_RAISES_THE_NEXT.get(at + 1) {
        // SAFETY: no pointers. The signal comes to this thread, at once, unless the thread blocks it.
        unsafe { libc::raise(next) };
    }
    DEPTH.fetch_sub(1, SeqCst);
    CALLS.fetch_add(1, SeqCst);
}

/// Fails when one signal's handler interrupts another's: their frames share a small stack.
#[test]
fn signals_do_not_nest() {
    alone("signals_do_not_nest", || {
        for signal in EACH_RAISES_THE_NEXT {
            set(signal, raises_the_next as *const () as usize);
        }
        let all = signal::notify(&EACH_RAISES_THE_NEXT.map(Signal::from)).unwrap();
        // SAFETY: no pointers.
        unsafe { libc::raise(EACH_RAISES_THE_NEXT[0]) };
        let mut heard = EACH_RAISES_THE_NEXT.map(|_| all.recv_deadline(limit()).unwrap().as_raw());
        heard.sort_unstable();
        let mut sent = EACH_RAISES_THE_NEXT;
        sent.sort_unstable();
        assert_eq!(heard, sent);
        until(|| CALLS.load(SeqCst) == EACH_RAISES_THE_NEXT.len());
        assert_eq!(DEEPEST.load(SeqCst), 1);
    });
}

#[test]
fn the_default_action_is_taken_after_the_last_receiver() {
    dies_by(SIGTERM, "the_default_action_is_taken_after_the_last_receiver", || {
        let signals = signal::notify(&[SIGTERM]).unwrap();
        raise(SIGTERM);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGTERM));
        drop(signals);
        raise(SIGTERM);
    });
}

#[test]
fn a_reset_signal_has_its_default_action() {
    dies_by(SIGINT, "a_reset_signal_has_its_default_action", || {
        let _deaf = signal::notify(&[SIGINT]).unwrap();
        signal::ignore(&[SIGINT]).unwrap();
        raise(SIGINT);
        signal::reset(&[SIGINT]).unwrap();
        raise(SIGINT);
    });
}

/// Fails when a handler of another library is not called, or is lost.
#[test]
fn handlers_from_before_go_on() {
    alone("handlers_from_before_go_on", || {
        set(libc::SIGUSR1, counting());
        let signals = signal::notify(&[SIGUSR1]).unwrap();
        for calls in 1..4 {
            raise(SIGUSR1);
            assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
            until(|| CALLS.load(SeqCst) == calls);
        }
        drop(signals);
        raise(SIGUSR1);
        until(|| CALLS.load(SeqCst) == 4);
        assert_eq!(handler(SIGUSR1), counting());
    });
}

extern "C" fn has_a_large_frame(_signal: libc::c_int) {
    black_box([0_u8; 16 << 10]);
    CALLS.fetch_add(1, SeqCst);
}

/// The handler from before was installed for the thread's own stack. Fails by a SIGSEGV if the handler runs on std's signal
/// stack, which is half as large as the handler's frame.
#[test]
fn a_handler_from_before_that_asked_for_no_signal_stack_gets_none() {
    alone("a_handler_from_before_that_asked_for_no_signal_stack_gets_none", || {
        set(libc::SIGUSR1, has_a_large_frame as *const () as usize);
        let signals = signal::notify(&[SIGUSR1]).unwrap();
        // SAFETY: no pointers. The signal goes to this thread, which std has started, at once.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert_eq!(CALLS.load(SeqCst), 1);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
    });
}

/// Fails when a handler that was set later is removed, when two handlers call each other for ever, or when a signal is lost.
#[test]
fn a_handler_from_later_stays_and_passes_on() {
    alone("a_handler_from_later_stays_and_passes_on", || {
        let signals = signal::notify(&[SIGUSR1]).unwrap();
        install_over(SIGUSR1);
        let over = handler(SIGUSR1);
        for calls in 0..3 {
            let signals = signal::notify(&[SIGUSR1]).unwrap();
            raise(SIGUSR1);
            // This may be the signal of the last round, which the receiver gets after the handler has run.
            assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
            until(|| CALLS.load(SeqCst) == 2 * calls + 1);
            assert_eq!(handler(SIGUSR1), over);
            drop(signals);
            raise(SIGUSR1);
            until(|| CALLS.load(SeqCst) == 2 * calls + 2);
        }
        drop(signals);
        raise(SIGUSR1);
        until(|| CALLS.load(SeqCst) == 7);
        assert_eq!(handler(SIGUSR1), over);
        let signals = signal::notify(&[SIGUSR1]).unwrap();
        raise(SIGUSR1);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
        until(|| CALLS.load(SeqCst) == 8);
    });
}

/// After `reset` the library must remember that the handler that stays calls the library's handler. Fails when the two call
/// each other for ever, until the signal stack is full.
#[test]
fn a_handler_from_later_that_stays_after_reset_passes_on() {
    alone("a_handler_from_later_that_stays_after_reset_passes_on", || {
        let mut first = Some(signal::notify(&[SIGUSR1]).unwrap());
        install_over(SIGUSR1);
        let over = handler(SIGUSR1);
        // In the second round there is no receiver at first.
        for calls in [0, 2] {
            signal::reset(&[SIGUSR1]).unwrap();
            assert_eq!(handler(SIGUSR1), over);
            let signals = signal::notify(&[SIGUSR1]).unwrap();
            raise(SIGUSR1);
            assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
            until(|| CALLS.load(SeqCst) == calls + 1);
            assert_eq!(handler(SIGUSR1), over);
            drop((signals, first.take()));
            raise(SIGUSR1);
            until(|| CALLS.load(SeqCst) == calls + 2);
        }
        assert_eq!(handler(SIGUSR1), over);
        // The later handler is gone, and the action that has replaced it is restored.
        signal::reset(&[SIGUSR1]).unwrap();
        set(libc::SIGUSR1, libc::SIG_IGN);
        let _deaf = signal::notify(&[SIGUSR1]).unwrap();
        signal::reset(&[SIGUSR1]).unwrap();
        assert_eq!(handler(SIGUSR1), libc::SIG_IGN);
    });
}

/// Another library puts the library's handler back after the last receiver was dropped. Fails when a signal is swallowed for
/// ever.
#[test]
fn a_handler_that_is_put_back_takes_the_default_action() {
    dies_by(SIGINT, "a_handler_that_is_put_back_takes_the_default_action", || {
        let signals = signal::notify(&[SIGINT]).unwrap();
        let ours = action(SIGINT);
        install_over(SIGINT);
        drop(signals);
        raise(SIGINT);
        until(|| CALLS.load(SeqCst) == 1);
        // SAFETY: the action was in force before.
        unsafe { libc::sigaction(libc::SIGINT, &raw const ours, std::ptr::null_mut()) };
        raise(SIGINT);
    });
}

/// Fails when a signal counts as ignored that a receiver or a handler has, or an ignored one does not.
#[test]
fn it_is_told_whether_a_signal_is_ignored() {
    alone("it_is_told_whether_a_signal_is_ignored", || {
        set(libc::SIGUSR1, counting());
        // SIGWINCH has a default action that does nothing, and SIGHUP is ignored as by nohup.
        set(libc::SIGHUP, libc::SIG_IGN);
        let told = || [SIGHUP, SIGTERM, SIGUSR1, SIGWINCH, SIGPIPE].map(signal::is_ignored);
        let from_the_start = [true, false, false, false, true];
        assert_eq!(told(), from_the_start);
        let hears = signal::notify(&[SIGHUP, SIGTERM, SIGPIPE]).unwrap();
        assert_eq!(told(), [false; 5]);
        drop(hears);
        assert_eq!(told(), from_the_start);
        signal::ignore(&[SIGTERM, SIGUSR1]).unwrap();
        assert_eq!(told(), [true, true, true, false, true]);
        let hears = signal::notify(&[SIGTERM]).unwrap();
        assert_eq!(told(), [true, false, true, false, true]);
        drop(hears);
        signal::reset(&[SIGTERM, SIGUSR1]).unwrap();
        assert_eq!(told(), from_the_start);
        assert!([0, -1, 65, 1000, libc::SIGKILL].iter().all(|&none| !signal::is_ignored(none.into())));
    });
}

/// Fails when `reset` does not restore an action, or when a drop undoes `ignore`.
#[test]
fn ignore_stays_until_reset() {
    alone("ignore_stays_until_reset", || {
        for (signal, original) in [(SIGINT, libc::SIG_DFL), (SIGPIPE, libc::SIG_IGN), (SIGUSR1, counting())] {
            if original == counting() {
                set(signal.as_raw(), counting());
            }
            assert_eq!(handler(signal), original);
            signal::ignore(&[signal]).unwrap();
            raise(signal);
            assert_eq!(handler(signal), libc::SIG_IGN);
            let signals = signal::notify(&[signal]).unwrap();
            raise(signal);
            assert_eq!(signals.recv_deadline(limit()), Ok(signal));
            drop(signals);
            assert_eq!(handler(signal), libc::SIG_IGN);
            let signals = signal::notify(&[signal]).unwrap();
            signal::reset(&[signal]).unwrap();
            assert_eq!(handler(signal), original);
            drop(signals);
            assert_eq!(handler(signal), original);
            signal::reset(&[signal]).unwrap();
        }
        assert_eq!(CALLS.load(SeqCst), 0);
    });
}

/// Fails by a dump, which ends the process, or when the handler that dumps is lost.
#[test]
fn sigquit_with_a_receiver_asks_for_no_dump() {
    alone("sigquit_with_a_receiver_asks_for_no_dump", || {
        let rt = common::runtime(1);
        let dumps = handler(SIGQUIT);
        assert_ne!(dumps, libc::SIG_DFL);
        let signals = signal::notify(&[SIGQUIT]).unwrap();
        raise(SIGQUIT);
        assert_eq!(rt.go(move || signals.recv_deadline(limit())).join().unwrap(), Ok(SIGQUIT));
        assert_eq!(handler(SIGQUIT), dumps);
    });
}

/// Fails when the status of a child is lost, when the signal of its end does not come, or when a zombie stays.
#[test]
fn the_ends_of_children_are_told_and_theirs_to_wait_for() {
    alone("the_ends_of_children_are_told_and_theirs_to_wait_for", || {
        let signals = signal::notify(&[SIGCHLD]).unwrap();
        let rt = common::runtime(2);
        let ours = rt.go(|| Command::new("sh").args(["-c", "exit 3"]).status().unwrap());
        assert_eq!(ours.join().unwrap().code(), Some(3));
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGCHLD));
        let others = std::process::Command::new("sh").args(["-c", "exit 4"]).status().unwrap();
        assert_eq!(others.code(), Some(4));
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGCHLD));
        drop(signals);
        assert_eq!(handler(SIGCHLD), libc::SIG_DFL);

        // If SIGCHLD is ignored there are no zombies, and with a receiver there are none either.
        set(libc::SIGCHLD, libc::SIG_IGN);
        let signals = signal::notify(&[SIGCHLD]).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGCHLD));
        until(|| fs::metadata(format!("/proc/{}", child.id())).is_err());
        assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
        drop(signals);
        assert_eq!(handler(SIGCHLD), libc::SIG_IGN);
    });
}

/// A child gets the signal between fork and exec, as its whole group does from the terminal. Fails when the signal is lost, as
/// the child has no thread that serves receivers, and the program runs.
#[test]
fn a_child_that_has_not_begun_its_program_has_the_action_from_before() {
    alone("a_child_that_has_not_begun_its_program_has_the_action_from_before", || {
        let signals = signal::notify(&[SIGTERM]).unwrap();
        let mut command = std::process::Command::new("true");
        let raises = || {
            raise(SIGTERM);
            Ok(())
        };
        // SAFETY: the function makes system calls alone, which may be made between fork and exec.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, raises) };
        assert_eq!(command.status().unwrap().signal(), Some(libc::SIGTERM));
        assert!(signals.try_recv().is_err());
        raise(SIGTERM);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGTERM));
    });
}

/// Fails when a forked child that never calls exec, and has a receiver of its own, does not receive.
#[test]
fn a_forked_child_has_receivers_of_its_own() {
    alone("a_forked_child_has_receivers_of_its_own", || {
        let _signals = signal::notify(&[SIGTERM]).unwrap();
        let ended = forked::ends(|| {
            let signals = signal::notify(&[SIGTERM]);
            raise(SIGTERM);
            signals.is_ok_and(|signals| signals.recv_deadline(limit()) == Ok(SIGTERM))
        });
        assert!(ended.success(), "the child has heard nothing: {ended}");
    });
}

/// In the child the handler takes itself out for a signal that comes before the child has a receiver. Fails when `notify` takes
/// the handler for set, because the parent has set it.
#[test]
fn a_forked_child_receives_a_signal_that_has_come_before() {
    alone("a_forked_child_receives_a_signal_that_has_come_before", || {
        let _signals = signal::notify(&[SIGWINCH]).unwrap();
        let ended = forked::ends(|| {
            raise(SIGWINCH);
            let signals = signal::notify(&[SIGWINCH]);
            raise(SIGWINCH);
            signals.is_ok_and(|signals| signals.recv_deadline(limit()) == Ok(SIGWINCH))
        });
        assert!(ended.success(), "the child has heard nothing: {ended}");
    });
}

/// Fails when the child takes its parent's thread for its own, once its own was refused.
#[test]
fn a_forked_child_asks_again_for_a_thread_that_was_refused() {
    alone("a_forked_child_asks_again_for_a_thread_that_was_refused", || {
        let _signals = signal::notify(&[SIGTERM]).unwrap();
        let ended = forked::ends(|| {
            let mut room = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the struct is ours.
            let set = |room: &libc::rlimit| unsafe { libc::setrlimit(libc::RLIMIT_AS, room) } == 0;
            // SAFETY: as above.
            let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut room) } == 0;
            let was_set = known && set(&libc::rlimit { rlim_cur: 0, ..room });
            let refused = signal::notify(&[SIGTERM]).is_err();
            let was_undone = set(&room);
            let signals = signal::notify(&[SIGTERM]);
            raise(SIGTERM);
            let heard = signals.is_ok_and(|signals| signals.recv_deadline(limit()) == Ok(SIGTERM));
            was_set && refused && was_undone && heard
        });
        assert!(ended.success(), "the child has heard nothing: {ended}");
    });
}

/// The parent's receivers are copied, and nothing in the child asks them. Fails when they keep a signal from its default action
/// once the child has a receiver for another one.
#[test]
fn a_forked_child_has_the_actions_from_before_beside_its_receivers() {
    alone("a_forked_child_has_the_actions_from_before_beside_its_receivers", || {
        let signals = signal::notify(&[SIGTERM]).unwrap();
        let ended = forked::ends(|| {
            let own = signal::notify(&[SIGUSR1]);
            raise(SIGUSR1);
            let heard = own.is_ok_and(|own| own.recv_deadline(limit()) == Ok(SIGUSR1));
            if heard {
                raise(SIGTERM);
            }
            false
        });
        assert_eq!(ended.signal(), Some(libc::SIGTERM), "{ended}");
        raise(SIGTERM);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGTERM));
    });
}

/// Fails when a child inherits the handler of a signal that is caught here, or does not inherit that a signal is ignored.
#[test]
fn children_have_default_actions_and_ignore_what_is_ignored() {
    alone("children_have_default_actions_and_ignore_what_is_ignored", || {
        let _signals = signal::notify(&[SIGTERM, SIGWINCH]).unwrap();
        signal::ignore(&[SIGINT]).unwrap();
        let status = || {
            let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let set = |name| {
                let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            (set("SigIgn:"), set("SigCgt:"))
        };
        let bit = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
        let (ignored, caught) = status();
        assert!(ignored & bit(SIGINT) != 0 && ignored & (bit(SIGTERM) | bit(SIGWINCH)) == 0 && caught == 0);
        signal::reset(&[SIGINT]).unwrap();
        assert_eq!(status().0 & bit(SIGINT), 0);
    });
}
