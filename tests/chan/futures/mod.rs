//! Channels for tasks: futures that are polled by hand, by threads that park, and by goroutines.

mod dropped;
mod histories;
mod meets;
mod polled;
mod several;
mod tasks;

use gmp::chan::{Receiver, RecvError, SendError, Sender};
use gmp::select;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Wakes {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the number of wakes that came, and resets it.
    fn take(&self) -> usize {
        self.0.swap(0, SeqCst)
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

type Receives<'a, T> = Pin<Box<dyn Future<Output = Result<T, RecvError>> + 'a>>;
type Sends<'a, T> = Pin<Box<dyn Future<Output = Result<(), SendError<T>>> + 'a>>;

/// A receive that waits, and has been polled once.
fn waits<'a, T>(receiver: &'a Receiver<T>, wakes: &Arc<Wakes>) -> Receives<'a, T> {
    let mut receive: Receives<'a, T> = Box::pin(receiver.recv_async());
    assert!(poll(receive.as_mut(), wakes).is_pending(), "there is nothing to receive");
    receive
}

/// A send that waits, and has been polled once.
fn offers<'a, T>(sender: &'a Sender<T>, message: T, wakes: &Arc<Wakes>) -> Sends<'a, T> {
    let mut send: Sends<'a, T> = Box::pin(sender.send_async(message));
    assert!(poll(send.as_mut(), wakes).is_pending(), "there is no room");
    send
}

/// The waker of a thread that parks.
struct Unparks(Thread, AtomicUsize);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        self.0.unpark();
    }
}

/// An executor that is not the library's: the thread parks between two polls.
fn parks<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unparks = Arc::new(Unparks(thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unparks));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while unparks.1.swap(0, SeqCst) == 0 {
            thread::park();
        }
    }
}

/// Unwinds without a call of the panic hook.
fn unwinds<T>() -> T {
    resume_unwind(Box::new(()))
}

/// A `select!` chooses to send, if that is possible at once, and its message never comes. Returns `true` if it was chosen.
fn withdraws<T>(sender: &Sender<T>) -> bool {
    let chosen = catch_unwind(AssertUnwindSafe(|| {
        select! {
            send(sender, unwinds()) -> _ => unreachable!(),
            default => {}
        }
    }));
    chosen.is_err()
}
