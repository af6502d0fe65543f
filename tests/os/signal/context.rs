//! Contexts that a signal ends.

use super::{alone, dies_by, handler, limit, raise, serves};
use common::crew::everyone;
use common::until;
use gmp::context::{Cancel, Context, ContextError, Ended, with_signals};
use gmp::signal::{self, SIGINT, SIGKILL, SIGTERM, SIGUSR1, Signal};
use gmp::sync::Event;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};

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

/// Unwinds as it is dropped, with a payload that is another one as long as there are some left.
struct Unwinds(usize);

impl Drop for Unwinds {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Unwinds(self.0 - 1)));
        }
    }
}

/// All that refers to a context.
type All = (Context, Cancel, Pin<Box<Ended>>);

/// Drops a context where it is called.
struct DropsAll(Mutex<Option<All>>);

impl Wake for DropsAll {
    fn wake(self: Arc<Self>) {
        let all = self.0.lock().unwrap().take();
        drop(all);
    }
}

/// The thread that serves receivers drops the last reference to a context, and with it what the program has left there. Fails
/// by an abort when the unwinding of one of these drops ends that thread.
#[test]
fn a_payload_whose_drop_unwinds_does_not_end_the_serving_thread() {
    alone("a_payload_whose_drop_unwinds_does_not_end_the_serving_thread", || {
        let beside = signal::notify(&[SIGUSR1]).unwrap();
        let (above, _) = Context::background().with_cancel();
        let unwinds = Unwinds(2);
        drop(above.after_func(move || drop(unwinds)));
        let (context, cancel) = with_signals(&above, &[SIGTERM]).unwrap();
        drop(above);
        let waker = Arc::new(DropsAll(Mutex::default()));
        let mut ended = Box::pin(context.ended());
        let task = Waker::from(Arc::clone(&waker));
        assert_eq!(ended.as_mut().poll(&mut std::task::Context::from_waker(&task)), Poll::Pending);
        *waker.0.lock().unwrap() = Some((context, cancel, ended));
        raise(SIGTERM);
        until(|| waker.0.lock().unwrap().is_none());
        raise(SIGUSR1);
        assert_eq!(beside.recv_deadline(limit()), Ok(SIGUSR1));
    });
}
