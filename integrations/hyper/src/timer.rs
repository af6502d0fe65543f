//! The clock of hyper's timeouts.

use gmp::time::{self, sleep_async};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// hyper's timeouts by the timers of gmp.
///
/// ```
/// use gmp_hyper::GmpTimer;
/// use hyper::server::conn::http1;
/// use std::time::Duration;
///
/// let mut server = http1::Builder::new();
/// server.timer(GmpTimer).header_read_timeout(Duration::from_secs(5));
/// ```
#[derive(Copy, Clone, Debug, Default)]
pub struct GmpTimer;

impl hyper::rt::Timer for GmpTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { sleep: sleep_async(duration), later: None })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { sleep: time::Sleep::until(deadline), later: None })
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(ours) => ours.get_mut().reset(new_deadline),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

/// A wait for a time; made by [`GmpTimer`]. A [`gmp::time::Sleep`], except that a wait that is moved to a later time leaves its
/// timer alone until the timer fires: hyper moves a wait for each request of a connection.
pub struct Sleep {
    sleep: time::Sleep,
    /// The end of the wait, if that is later than the timer.
    later: Option<Instant>,
}

impl Sleep {
    fn reset(&mut self, due: Instant) {
        self.later = (due > self.sleep.deadline()).then_some(due);
        if self.later.is_none() {
            self.sleep.reset(due);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(Pin::new(&mut self.sleep).poll(cx));
            let Some(due) = self.later.take() else { return Poll::Ready(()) };
            self.sleep.reset(due);
        }
    }
}

impl hyper::rt::Sleep for Sleep {}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let due = self.later.unwrap_or_else(|| self.sleep.deadline());
        f.debug_struct("Sleep").field("due", &due).finish_non_exhaustive()
    }
}
