//! A sandbox refuses to return the action of a signal, and to set one.

use super::actions::counting;
use super::{CALLS, alone, handler, limit, raise, serves, set};
use common::seccomp::{refuse, refuse_here};
use common::{runtime, until};
use gmp::context::{Context, with_signals};
use gmp::signal::{self, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use std::io::ErrorKind::PermissionDenied;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

const ACTIONS: [libc::c_long; 1] = [libc::SYS_rt_sigaction];

/// Asserts that no receiver of a new signal can be made, and that no action can be changed: each call returns an error.
fn all_is_refused() {
    let refused = [
        signal::notify(&[SIGHUP]).map(drop),
        signal::ignore(&[SIGHUP]),
        with_signals(&Context::background(), &[SIGHUP]).map(drop),
    ];
    for refused in refused.map(Result::unwrap_err) {
        assert!(
            refused.kind() == PermissionDenied && refused.to_string().starts_with("cannot "),
            "{refused}"
        );
    }
}

/// Fails when a drop or a later call panics, or when the thread that serves receivers panics, which ends the process at the
/// next signal.
#[test]
fn a_sandbox_that_comes_later_leaves_the_handler_where_it_is() {
    alone("a_sandbox_that_comes_later_leaves_the_handler_where_it_is", || {
        set(libc::SIGUSR2, counting());
        let first = signal::notify(&[SIGUSR1, SIGUSR2]).unwrap();
        refuse(&ACTIONS, libc::EPERM);
        all_is_refused();
        assert_eq!(signal::reset(&[SIGUSR1]).unwrap_err().kind(), PermissionDenied);
        assert_eq!(signal::ignore(&[SIGUSR1, SIGHUP]).unwrap_err().kind(), PermissionDenied);
        // The library's handler catches this signal already.
        let second = signal::notify(&[SIGUSR1]).unwrap();
        for signal in [SIGUSR1, SIGUSR2] {
            raise(signal);
            assert_eq!(first.recv_deadline(limit()), Ok(signal));
        }
        assert_eq!(second.recv_deadline(limit()), Ok(SIGUSR1));
        until(|| CALLS.load(SeqCst) == 1);
        drop(first);
        drop(second);
        until(|| !serves());
        all_is_refused();
        assert_eq!(signal::notify(&[SIGUSR2, SIGWINCH]).unwrap_err().kind(), PermissionDenied);
        raise(SIGUSR1);
        raise(SIGUSR2);
        until(|| CALLS.load(SeqCst) == 2);
        assert_eq!(runtime(2).run(|| gmp::go(|| 7).join().unwrap()), 7);
    });
}

/// Fails when the start of the first runtime panics.
#[test]
fn in_a_sandbox_from_the_start_all_is_refused() {
    alone("in_a_sandbox_from_the_start_all_is_refused", || {
        refuse(&ACTIONS, libc::EPERM);
        assert_eq!(runtime(2).run(|| gmp::go(|| 7).join().unwrap()), 7);
        all_is_refused();
        until(|| !serves());
        // There is nothing to undo.
        signal::reset(&[SIGUSR1]).unwrap();
    });
}

/// A thread in a sandbox can't restore an action; the next drop, on another thread, can. Fails when a receiver gets no signal,
/// or when an action is not restored.
#[test]
fn what_one_thread_could_not_undo_another_one_undoes() {
    alone("what_one_thread_could_not_undo_another_one_undoes", || {
        set(libc::SIGUSR2, counting());
        let befores = [SIGTERM, SIGQUIT, SIGUSR2].map(handler);
        for _ in 0..2 {
            let dropped = signal::notify(&[SIGTERM, SIGQUIT, SIGUSR2]).unwrap();
            let kept = signal::notify(&[SIGUSR1]).unwrap();
            let in_a_sandbox = thread::spawn(move || {
                refuse_here(&ACTIONS, libc::EPERM);
                drop(dropped);
                all_is_refused();
            });
            in_a_sandbox.join().unwrap();
            raise(SIGUSR1);
            assert_eq!(kept.recv_deadline(limit()), Ok(SIGUSR1));
            drop(kept);
            let again = signal::notify(&[SIGTERM, SIGQUIT, SIGUSR2]).unwrap();
            for signal in [SIGTERM, SIGQUIT, SIGUSR2] {
                raise(signal);
                assert_eq!(again.recv_deadline(limit()), Ok(signal));
            }
            drop(again);
            assert_eq!([SIGTERM, SIGQUIT, SIGUSR2].map(handler), befores);
            assert_eq!(handler(SIGHUP), libc::SIG_DFL);
        }
    });
}
