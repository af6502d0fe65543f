//! Wakers of tasks that poll a socket, and that use the socket themselves.

use common::everywhere;
use gmp::net::{UnixStream, is_closed};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Returns a waker that closes `stream` each time it is cloned. The clone is a waker that does nothing.
fn closes_when_cloned(stream: &Arc<UnixStream>) -> Waker {
    fn clone(stream: *const ()) -> RawWaker {
        // SAFETY: `stream` is a pointer to a stream, which is there until the waker is dropped.
        let _twice = unsafe { &*stream.cast::<UnixStream>() }.close();
        RawWaker::new(Waker::noop().data(), Waker::noop().vtable())
    }
    fn drop(stream: *const ()) {
        // SAFETY: as in `clone`; the pointer came from a counted one, which was kept for this drop.
        unsafe { Arc::decrement_strong_count(stream.cast::<UnixStream>()) };
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| unreachable!(), |_| unreachable!(), drop);
    // SAFETY: the functions may be called on any thread, as a stream may be used there.
    unsafe { Waker::new(Arc::into_raw(Arc::clone(stream)).cast(), &TABLE) }
}

/// Fails by a hang when the closer, in the waker's clone, waits for the end of the poll that makes the clone; or by a task that
/// is told to wait at a closed socket.
#[test]
fn a_waker_that_is_cloned_may_close_the_socket() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, _far) = UnixStream::pair().unwrap();
            let near = Arc::new(near);
            let waker = closes_when_cloned(&near);
            let Poll::Ready(Err(closed)) = near.poll_read(&mut Context::from_waker(&waker), &mut [0]) else {
                panic!("it is closed")
            };
            assert!(is_closed(&closed), "{closed}");
        });
    });
}
