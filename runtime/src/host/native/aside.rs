//! Calls that a thread of a runtime is not to make: of foreign wakers, and drops of what is foreign.
//!
//! They stand in one queue of the process. One thread, the *caller*, takes one after the other out and makes it. A call may
//! block for as long as it likes, and holds up those behind it for a moment only: as long as calls wait, at least one thread
//! *stands by*. It looks every `patience`. If the caller has not come back from a call in between, the thread is the caller
//! from then on. The old caller stands by when it comes back, or ends if no call waits.
//!
//! So short calls, however many, take two threads; and calls that block take as many as block at a time. *The obvious way* is a
//! thread for each call. A runtime that ends has a call for each task that it has found; these were as many threads at once.
//!
//! Where no thread can be started, the thread that asks makes the calls itself that it finds in the queue. Where the caller is
//! refused a thread to stand by, calls wait for the caller's next one, or for the next thread that asks.

use super::thread::Starting;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So long a call may hold up the others. A waker that queues its task and wakes a thread takes some microseconds.
const PATIENCE: Duration = Duration::from_millis(1);

static ASIDE: Aside = Aside::new(PATIENCE);

/// Runs `f` on a thread of no runtime's, or on the caller's if no thread can be started.
pub(crate) fn run_aside(f: impl FnOnce() + Send + 'static) {
    ASIDE.run(Box::new(f));
}

type Call = Box<dyn FnOnce() + Send>;

struct Aside {
    patience: Duration,
    queue: Mutex<Queue>,
    /// A thread that stands by has something to do.
    changed: Condvar,
}

struct Queue {
    calls: VecDeque<Call>,
    /// The number of the caller, if there is one.
    caller: Option<u64>,
    /// How many callers there have been.
    callers: u64,
    /// How many calls have begun.
    begun: u64,
    /// How many threads stand by, with those that are being started.
    standing: usize,
}

impl Queue {
    fn becomes_caller(&mut self) -> u64 {
        self.callers += 1;
        self.caller = Some(self.callers);
        self.callers
    }
}

impl Aside {
    const fn new(patience: Duration) -> Self {
        let queue = Queue { calls: VecDeque::new(), caller: None, callers: 0, begun: 0, standing: 0 };
        Aside { patience, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No call is made under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&'static self, call: Call) {
        let mut queue = self.lock();
        queue.calls.push_back(call);
        if queue.standing > 0 {
            if queue.caller.is_none() {
                self.changed.notify_one();
            }
            return;
        }
        queue.standing += 1;
        drop(queue);
        if self.start().is_err() {
            self.call_here();
        }
    }

    /// Starts a thread that stands by. It is among those that stand by already.
    fn start(&'static self) -> io::Result<()> {
        let (builder, starting) = Starting::begin("gmp-aside", None)?;
        let body = move || {
            drop(starting);
            self.stand_by();
        };
        builder.spawn(body).map(drop)
    }

    /// No thread can be started. Others may have relied on that thread, so this makes their calls, too; a caller, if there is
    /// one, goes on beside this.
    #[cold]
    fn call_here(&self) {
        let mut queue = self.lock();
        queue.standing -= 1;
        for _ in 0..queue.calls.len() {
            let Some(call) = queue.calls.pop_front() else { return };
            drop(queue);
            make(call);
            queue = self.lock();
        }
    }

    /// The body of a thread, which is among those that stand by.
    fn stand_by(&'static self) {
        let mut queue = self.lock();
        while !queue.calls.is_empty() {
            if queue.caller.is_some() {
                let begun = queue.begun;
                let waited = self.changed.wait_timeout(queue, self.patience);
                let timeout;
                (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if queue.caller.is_some() && !(timeout.timed_out() && queue.begun == begun) {
                    continue;
                }
                if queue.calls.is_empty() {
                    break;
                }
            }
            queue.standing -= 1;
            let me = queue.becomes_caller();
            queue = self.call_all(queue, me);
            queue.standing += 1;
        }
        queue.standing -= 1;
    }

    /// Makes calls until there is none in the queue, or another thread is the caller.
    fn call_all<'a>(&'static self, mut queue: MutexGuard<'a, Queue>, me: u64) -> MutexGuard<'a, Queue> {
        while queue.caller == Some(me) {
            let Some(call) = queue.calls.pop_front() else {
                queue.caller = None;
                // They end.
                self.changed.notify_all();
                break;
            };
            queue.begun += 1;
            let alone = !queue.calls.is_empty() && queue.standing == 0;
            queue.standing += usize::from(alone);
            drop(queue);
            // Without a thread that stands by the others wait for this call, or for the next thread that asks.
            let refused = alone && self.start().is_err();
            if refused {
                self.lock().standing -= 1;
            }
            make(call);
            queue = self.lock();
        }
        queue
    }
}

/// A panic of it ends here; the panic hook has printed it.
fn make(call: Call) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // The drop of the payload might panic again.
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    fn aside(patience: Duration) -> &'static Aside {
        Box::leak(Box::new(Aside::new(patience)))
    }

    /// Fails by the number of the threads: each call has one of its own.
    #[test]
    fn many_calls_take_two_threads() {
        let (aside, by) = (aside(Duration::MAX), Arc::new(Mutex::new(HashSet::new())));
        let ((begin, begins), (done, is_done)) = (channel::<()>(), channel());
        aside.run(Box::new(move || begins.recv().unwrap()));
        for _ in 0..200 {
            let (by, done) = (Arc::clone(&by), done.clone());
            aside.run(Box::new(move || {
                by.lock().unwrap().insert(thread::current().id());
                done.send(()).unwrap();
            }));
        }
        let standing = aside.lock().standing;
        assert!(standing <= 1, "{standing} threads stand by");
        begin.send(()).unwrap();
        (0..200).for_each(|_| is_done.recv().unwrap());
        let by = by.lock().unwrap().len();
        assert!(by <= 2, "{by} threads");
    }

    /// Fails by a hang: the first call waits for the last one, and all the others for the one before.
    #[test]
    fn a_call_that_blocks_holds_no_other_up() {
        let aside = aside(Duration::from_millis(1));
        let (first, mut told) = channel();
        let (done, is_done) = channel();
        for n in 0..20 {
            let (tell, next) = channel();
            let (told, done) = (std::mem::replace(&mut told, next), done.clone());
            aside.run(Box::new(move || {
                told.recv().unwrap();
                let _first_has_gone = tell.send(());
                done.send(n).unwrap();
            }));
        }
        // Behind them all.
        aside.run(Box::new(move || first.send(()).unwrap()));
        let mut all: Vec<_> = (0..20).map(|_| is_done.recv().unwrap()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20));
    }

    /// Fails by a hang: the thread ends with the call, and the others wait.
    #[test]
    fn a_call_that_panics_holds_no_other_up() {
        let (aside, (done, is_done)) = (aside(Duration::MAX), channel());
        aside.run(Box::new(|| std::panic::resume_unwind(Box::new("call"))));
        aside.run(Box::new(move || done.send(()).unwrap()));
        is_done.recv().unwrap();
    }
}
