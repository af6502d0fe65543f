//! Calls that a thread of a runtime must not make: of foreign wakers, and drops of foreign values.
//!
//! The calls are in one queue of the process. One thread, the *caller*, takes one after the other out and makes it. A call may
//! block for as long as it likes, but holds up the calls behind it only for a moment: as long as calls wait, at least one
//! thread *stands by*. That thread looks every `patience`. If the caller has not come back from its call since the last look,
//! the thread that stands by is the caller from then on. The old caller stands by when it comes back; if no call waits and
//! another thread stands by, it ends.
//!
//! So short calls, however many, take two threads, and calls that block take as many threads as calls block at a time. *The
//! obvious way* is a thread for each call. But a runtime that ends has a call for each task that it has found: that would be as
//! many threads at once.
//!
//! The last thread that stands by stays for a moment (`linger`) when no call waits: tasks that sleep outside of runtimes have a
//! call for each timer, and a thread that is started for each would cost much more than the call.
//!
//! If no thread can be started, the calls stay in the queue for the next thread that asks, or until `ask_again` is called: the
//! layer above looks after that (`sched/calls.rs`). The thread that asks makes none of them itself; if it may make its own
//! call, it takes that call back. If the caller is refused a thread to stand by, it says so (`refused`): then calls may wait
//! for the caller's next try, or for `ask_again`.

use super::thread::spawn;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call may hold up the others. A waker that queues its task and wakes a thread takes some microseconds.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

pub(super) type Call = Box<dyn FnOnce() + Send>;

pub(super) struct Aside {
    patience: Duration,
    /// How long the last thread that stands by stays without a call.
    linger: Duration,
    queue: Mutex<Queue>,
    /// A thread was refused, and calls may wait since then. Written under the lock. Only an `ask_again` that finds no call
    /// clears it: a start that succeeds says nothing about another start that is refused at the same time.
    refused: AtomicBool,
    /// Notified when a thread that stands by has something to do.
    changed: Condvar,
}

struct Queue {
    /// Each with its number.
    calls: VecDeque<(u64, Call)>,
    /// How many calls there have been.
    asked: u64,
    /// The number of the caller, if there is one.
    caller: Option<u64>,
    /// How many callers there have been.
    callers: u64,
    /// How many calls have begun.
    begun: u64,
    /// How many threads stand by, including those that are being started.
    standing: usize,
    /// The function to call if the caller is refused a thread, from the last asker.
    tell: Option<fn()>,
}

impl Queue {
    fn becomes_caller(&mut self) -> u64 {
        self.callers += 1;
        self.caller = Some(self.callers);
        self.callers
    }
}

impl Aside {
    pub(super) const fn new(patience: Duration, linger: Duration) -> Self {
        let queue = Queue {
            calls: VecDeque::new(),
            asked: 0,
            caller: None,
            callers: 0,
            begun: 0,
            standing: 0,
            tell: None,
        };
        let refused = AtomicBool::new(false);
        Aside { patience, linger, queue: Mutex::new(queue), refused, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No call is made under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` on a thread that belongs to no runtime.
    ///
    /// # Errors
    /// If no thread can be started: then `call` waits for one, and the error is its number. `tell` is called if a thread to
    /// stand by is refused later: without a lock, on the thread that makes the calls.
    pub(super) fn run(&'static self, call: Call, tell: fn()) -> Result<(), u64> {
        let mut queue = self.lock();
        queue.tell = Some(tell);
        queue.asked += 1;
        let number = queue.asked;
        queue.calls.push_back((number, call));
        if queue.standing > 0 {
            // Behind other calls that wait, the thread that stands by looks again by itself.
            if queue.caller.is_none() || queue.calls.len() == 1 {
                self.changed.notify_one();
            }
            return Ok(());
        }
        self.start(queue).map_err(|_refused| number)
    }

    /// Takes back a call that waits.
    pub(super) fn take_back(&self, number: u64) -> Option<Call> {
        let mut queue = self.lock();
        let at = queue.calls.iter().position(|call| call.0 == number)?;
        queue.calls.remove(at).map(|call| call.1)
    }

    /// Returns `true` if calls may wait because a thread was refused.
    pub(super) fn calls_wait(&self) -> bool {
        // Relaxed: a hint, the lock decides.
        self.refused.load(Relaxed)
    }

    /// Asks once more for a thread for calls that wait.
    ///
    /// # Errors
    /// If the thread is refused.
    pub(super) fn ask_again(&'static self) -> io::Result<()> {
        let queue = self.lock();
        if queue.calls.is_empty() {
            // Relaxed: a hint, the lock decides.
            self.refused.store(false, Relaxed);
            return Ok(());
        }
        if queue.standing > 0 {
            // A thread stands by, or is being started, which may still be refused.
            return Ok(());
        }
        self.start(queue)
    }

    /// Starts a thread that stands by. It counts from here on, and others rely on it: if it is refused, their calls wait, as
    /// the caller's does.
    fn start(&'static self, mut queue: MutexGuard<'static, Queue>) -> io::Result<()> {
        queue.standing += 1;
        drop(queue);
        let started = spawn("gmp-aside", None, || self.stand_by()).map(drop);
        if started.is_err() {
            let mut queue = self.lock();
            queue.standing -= 1;
            // Relaxed: a hint, the lock decides.
            self.refused.store(true, Relaxed);
        }
        started
    }

    /// The body of a thread, which counts as standing by.
    fn stand_by(&'static self) {
        let (mut queue, mut idle) = (self.lock(), None);
        loop {
            if queue.calls.is_empty() {
                let left = self.linger.saturating_sub(idle.get_or_insert_with(Instant::now).elapsed());
                if queue.standing > 1 || left.is_zero() {
                    break;
                }
                queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            idle = None;
            if queue.caller.is_some() {
                let begun = queue.begun;
                let waited = self.changed.wait_timeout(queue, self.patience);
                let timeout;
                (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if queue.caller.is_some() && !(timeout.timed_out() && queue.begun == begun) {
                    continue;
                }
                if queue.calls.is_empty() {
                    continue;
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
    fn call_all(&'static self, mut queue: MutexGuard<'static, Queue>, me: u64) -> MutexGuard<'static, Queue> {
        while queue.caller == Some(me) {
            let Some((_, call)) = queue.calls.pop_front() else {
                queue.caller = None;
                // The threads that stand by end, but for one.
                self.changed.notify_all();
                break;
            };
            queue.begun += 1;
            if !queue.calls.is_empty() && queue.standing == 0 {
                // Without a thread that stands by, the other calls wait for this one, or for the next thread that asks.
                let tell = queue.tell;
                if self.start(queue).is_err()
                    && let Some(tell) = tell
                {
                    tell();
                }
            } else {
                drop(queue);
            }
            make(call);
            queue = self.lock();
        }
        queue
    }
}

/// Makes a call. A panic of the call ends here; the panic hook has printed it.
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
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    fn aside(patience: Duration) -> &'static Aside {
        Box::leak(Box::new(Aside::new(patience, Duration::ZERO)))
    }

    /// Fails by another thread when each call has one; and by a hang when a call that comes while another blocks the caller
    /// does not wake the thread that lingers.
    #[test]
    fn a_thread_stays_for_the_next_call() {
        let aside: &Aside = Box::leak(Box::new(Aside::new(Duration::from_millis(1), Duration::MAX)));
        let (done, is_done) = channel();
        let by = |begins: Option<Receiver<()>>| {
            let done = done.clone();
            let call = move || {
                if let Some(begins) = begins {
                    begins.recv().unwrap();
                }
                done.send(thread::current().id()).unwrap();
            };
            aside.run(Box::new(call), || {}).unwrap();
        };
        let stands = |is_caller: bool| {
            let is_so = || {
                let queue = aside.lock();
                queue.caller.is_some() == is_caller && queue.standing == 1 && queue.calls.is_empty()
            };
            while !is_so() {
                thread::yield_now();
            }
        };
        by(None);
        let first = is_done.recv().unwrap();
        stands(false);
        let [(begin, begins), (begin_next, begins_next)] = [(); 2].map(|()| channel());
        by(Some(begins));
        by(Some(begins_next));
        while aside.lock().begun < 3 {
            thread::yield_now();
        }
        begin.send(()).unwrap();
        assert_eq!(is_done.recv().unwrap(), first);
        stands(true);
        by(None);
        assert_eq!(is_done.recv().unwrap(), first);
        begin_next.send(()).unwrap();
        assert_ne!(is_done.recv().unwrap(), first);
    }

    /// Fails by the number of the threads: each call has one of its own.
    #[test]
    fn many_calls_take_two_threads() {
        let (aside, by) = (aside(Duration::MAX), Arc::new(Mutex::new(HashSet::new())));
        let ((begin, begins), (done, is_done)) = (channel::<()>(), channel());
        aside.run(Box::new(move || begins.recv().unwrap()), || {}).unwrap();
        for _ in 0..200 {
            let (by, done) = (Arc::clone(&by), done.clone());
            aside
                .run(
                    Box::new(move || {
                        by.lock().unwrap().insert(thread::current().id());
                        done.send(()).unwrap();
                    }),
                    || {},
                )
                .unwrap();
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
            aside
                .run(
                    Box::new(move || {
                        told.recv().unwrap();
                        let _first_has_gone = tell.send(());
                        done.send(n).unwrap();
                    }),
                    || {},
                )
                .unwrap();
        }
        // After all of them.
        aside.run(Box::new(move || first.send(()).unwrap()), || {}).unwrap();
        let mut all: Vec<_> = (0..20).map(|_| is_done.recv().unwrap()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20));
    }

    /// Fails by a hang: the thread ends with the call, and the others wait.
    #[test]
    fn a_call_that_panics_holds_no_other_up() {
        let (aside, (done, is_done)) = (aside(Duration::MAX), channel());
        aside.run(Box::new(|| std::panic::resume_unwind(Box::new("call"))), || {}).unwrap();
        aside.run(Box::new(move || done.send(()).unwrap()), || {}).unwrap();
        is_done.recv().unwrap();
    }
}
