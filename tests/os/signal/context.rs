//! Contexts that a signal ends.

use super::{alone, dies_by, handler, limit, raise, serves};
use common::crew::everyone;
use common::until;
use gmp::context::{Context, ContextError, with_signals};
use gmp::signal::{self, SIGINT, SIGKILL, SIGTERM, Signal};
use gmp::sync::Event;

/// Fails when a context does not end, by a wrong cause, or when the action is not yet restored when the end is seen.
#[test]
fn the_first_signal_ends_the_context_and_is_the_cause() {
    alone("the_first_signal_ends_the_context_and_is_the_cause", || {
        everyone(|crew| {
            for signal in [SIGINT, SIGTERM] {
                let (context, _cancel) = with_signals(&Context::background(), &[SIGINT, SIGTERM]).unwrap();
                let (below, _) = context.with_cancel();
                let wait =
                    crew.go(move || (below.run(|| Event::new().wait()), [SIGINT, SIGTERM].map(handler)));
                wait.until_it_waits();
                raise(signal);
                assert_eq!(wait.join(), (Err(ContextError::Canceled), [libc::SIG_DFL; 2]));
                let cause = context.cause().unwrap();
                assert_eq!(
                    (cause.downcast_ref::<Signal>(), cause.to_string()),
                    (Some(&signal), signal.to_string())
                );
            }
        });
    });
}

#[test]
fn a_second_signal_kills() {
    dies_by(SIGINT, "a_second_signal_kills", || {
        let rt = common::runtime(2);
        rt.go(|| {
            let (context, _cancel) = with_signals(&Context::background(), &[SIGINT]).unwrap();
            raise(SIGINT);
            let _closed = context.done().recv();
            raise(SIGINT);
        })
        .join()
        .unwrap();
    });
}

/// Fails when an action stays after its context is done or dropped, or when the serving thread stays.
#[test]
fn a_context_that_is_done_or_gone_listens_no_more() {
    alone("a_context_that_is_done_or_gone_listens_no_more", || {
        everyone(|crew| {
            crew.run(|| {
                let (parent, stop) = Context::background().with_cancel();
                let (context, cancel) = with_signals(&parent, &[SIGINT]).unwrap();
                assert_ne!(handler(SIGINT), libc::SIG_DFL);
                cancel.cancel();
                assert_eq!(handler(SIGINT), libc::SIG_DFL);
                assert_eq!(context.cause().unwrap().to_string(), "context canceled");

                let (context, cancel) = with_signals(&parent, &[SIGINT]).unwrap();
                drop(cancel);
                let below = context.with_value(1);
                drop(context);
                assert_ne!(handler(SIGINT), libc::SIG_DFL);
                drop(below);
                assert_eq!(handler(SIGINT), libc::SIG_DFL);

                let (_context, _cancel) = with_signals(&parent, &[SIGINT]).unwrap();
                stop.cancel();
                assert_eq!(handler(SIGINT), libc::SIG_DFL);
                let (late, _cancel) = with_signals(&parent, &[SIGINT]).unwrap();
                assert!(late.err().is_some() && handler(SIGINT) == libc::SIG_DFL);
                assert!(with_signals(&parent, &[SIGKILL]).is_err());
            });
            until(|| !serves());
        });
    });
}

/// Fails by the default action although there is a receiver.
#[test]
fn a_receiver_beside_a_context_keeps_the_action_away() {
    alone("a_receiver_beside_a_context_keeps_the_action_away", || {
        everyone(|crew| {
            crew.run(|| {
                let signals = signal::notify(&[SIGINT]).unwrap();
                let (context, _cancel) = with_signals(&Context::background(), &[SIGINT]).unwrap();
                for _ in 0..3 {
                    raise(SIGINT);
                    assert_eq!(signals.recv_deadline(limit()), Ok(SIGINT));
                }
                let _closed = context.done().recv();
                assert_eq!(context.err(), Some(ContextError::Canceled));
            });
        });
    });
}
