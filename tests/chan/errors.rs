//! The errors: their texts, what they hold, and what they convert into.

use gmp::chan::{
    ReadyTimeoutError, Receiver, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, Sender, TryReadyError, TryRecvError, TrySelectError, TrySendError, bounded, broadcast,
    unbounded, watch,
};
use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::rc::Rc;

#[track_caller]
fn says(error: &(dyn Error + Send), display: &str, debug: &str) {
    assert_eq!((error.to_string().as_str(), format!("{error:?}").as_str()), (display, debug));
}

/// Fails if a text, which users search for, changes by accident, or if an error asks its message for a `Debug` that it lacks.
#[test]
fn each_error_says_what_is_the_matter() {
    const CLOSED: &str = "the channel is closed";
    says(&SendError(1), CLOSED, "SendError(..)");
    says(&TrySendError::Full(1), "the channel is full", "Full(..)");
    says(&TrySendError::Disconnected(1), CLOSED, "Disconnected(..)");
    const LATE: &str = "timed out waiting on a channel";
    says(&SendTimeoutError::Timeout(1), LATE, "Timeout(..)");
    says(&SendTimeoutError::Disconnected(1), CLOSED, "Disconnected(..)");
    const OVER: &str = "the channel is closed and empty";
    says(&RecvError, OVER, "RecvError");
    says(&TryRecvError::Empty, "the channel is empty", "Empty");
    says(&TryRecvError::Disconnected, OVER, "Disconnected");
    says(&RecvTimeoutError::Timeout, LATE, "Timeout");
    says(&RecvTimeoutError::Disconnected, OVER, "Disconnected");
    says(&TrySelectError, "no operation is ready", "TrySelectError");
    says(&SelectTimeoutError, "no operation was ready in time", "SelectTimeoutError");
    says(&TryReadyError, "no operation is ready", "TryReadyError");
    says(&ReadyTimeoutError, "no operation was ready in time", "ReadyTimeoutError");
}

#[test]
fn an_error_gives_the_value_back() {
    assert_eq!(SendError("value").into_inner(), "value");
    assert_eq!(TrySendError::Full("value").into_inner(), "value");
    assert_eq!(TrySendError::Disconnected("value").into_inner(), "value");
    assert_eq!(SendTimeoutError::Timeout("value").into_inner(), "value");
    assert_eq!(SendTimeoutError::Disconnected("value").into_inner(), "value");
    assert_eq!(broadcast::SendError("value").into_inner(), "value");
    assert_eq!(watch::SendError("value").into_inner(), "value");
}

/// Fails to compile when an error asks more of its message than std's errors do: `Send`, `Debug`, or a lifetime of `'static`.
#[test]
fn an_error_asks_nothing_of_its_message() {
    struct Plain<'a>(#[expect(dead_code, reason = "nobody asks")] Rc<[&'a str; 1]>);
    fn boxed<'a>(error: impl Error + 'a) -> Box<dyn Error + 'a> {
        Box::new(error)
    }
    let text = "value".to_owned();
    let plain = || Plain(Rc::new([&text[..]]));
    let errors = [
        boxed(SendError(plain())),
        boxed(TrySendError::Full(plain())),
        boxed(SendTimeoutError::Timeout(plain())),
        boxed(broadcast::SendError(plain())),
        boxed(watch::SendError(plain())),
    ];
    let told: Vec<_> = errors.iter().map(|error| format!("{error:?}")).collect();
    assert_eq!(told, ["SendError(..)", "Full(..)", "Timeout(..)", "SendError(..)", "SendError(..)"]);
}

#[test]
fn an_error_tells_its_kind() {
    assert!(TrySendError::Full(1).is_full() && !TrySendError::Full(1).is_disconnected());
    assert!(TrySendError::Disconnected(1).is_disconnected() && !TrySendError::Disconnected(1).is_full());
    assert!(SendTimeoutError::Timeout(1).is_timeout() && !SendTimeoutError::Timeout(1).is_disconnected());
    assert!(
        SendTimeoutError::Disconnected(1).is_disconnected()
            && !SendTimeoutError::Disconnected(1).is_timeout()
    );
    assert!(TryRecvError::Empty.is_empty() && !TryRecvError::Empty.is_disconnected());
    assert!(TryRecvError::Disconnected.is_disconnected() && !TryRecvError::Disconnected.is_empty());
    assert!(RecvTimeoutError::Timeout.is_timeout() && !RecvTimeoutError::Timeout.is_disconnected());
    assert!(RecvTimeoutError::Disconnected.is_disconnected() && !RecvTimeoutError::Disconnected.is_timeout());
}

#[test]
fn the_simple_error_becomes_the_richer_one() {
    assert_eq!(TrySendError::from(SendError(1)), TrySendError::Disconnected(1));
    assert_eq!(SendTimeoutError::from(SendError(1)), SendTimeoutError::Disconnected(1));
    assert_eq!(TryRecvError::from(RecvError), TryRecvError::Disconnected);
    assert_eq!(RecvTimeoutError::from(RecvError), RecvTimeoutError::Disconnected);
}

/// Fails to compile if a handle loses a property that a user of crossbeam-channel relies on.
#[test]
fn handles_cross_threads_and_unwinds() {
    fn crosses<T: Send + Sync + UnwindSafe + RefUnwindSafe + Clone>() {}
    crosses::<Sender<u8>>();
    crosses::<Receiver<u8>>();
    // Within a thread, a value needs no trait to be sent.
    let (s, r) = unbounded();
    s.send(Rc::new(1)).unwrap();
    assert_eq!(*r.recv().unwrap(), 1);
    assert_eq!(format!("{s:?} {r:?}"), "Sender { .. } Receiver { .. }");
}

/// Fails by an abort when the allocator is asked for more memory than any machine has.
#[test]
fn an_absurd_capacity_panics_with_a_text() {
    for cap in [usize::MAX, usize::MAX / 2, isize::MAX as usize, 1 << 60] {
        let payload = catch_unwind(|| bounded::<[u8; 64]>(cap)).expect_err("no machine has so much");
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()));
        assert!(text.is_some_and(|text| text.contains("no memory for a buffer of")), "{cap}");
    }
}
