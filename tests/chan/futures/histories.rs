//! Random histories of futures, by one thread: each message that was sent is received, once and in order, whichever future is
//! dropped.

use super::{Receives, Sends, Wakes, poll, withdraws};
use crate::every_kind;
use common::random::{Random, rounds};
use gmp::chan::{Receiver, Select, Sender, TryRecvError, TrySendError};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The numbers of the letters that were dropped.
type Drops = Rc<RefCell<Vec<usize>>>;

struct Letter(usize, Drops);

impl Drop for Letter {
    fn drop(&mut self) {
        self.1.borrow_mut()[self.0] += 1;
    }
}

/// A future with its task.
struct Task<F> {
    future: F,
    wakes: Arc<Wakes>,
    number: usize,
}

struct History<'a> {
    sender: &'a Sender<Letter>,
    receiver: &'a Receiver<Letter>,
    receives: Vec<Task<Receives<'a, Letter>>>,
    sends: Vec<Task<Sends<'a, Letter>>>,
    drops: Drops,
    /// In the order in which they came.
    got: Vec<usize>,
    sent: HashSet<usize>,
    /// The sends whose future was dropped: each has sent its letter or not.
    unknown: HashSet<usize>,
    closed: bool,
}

impl<'a> History<'a> {
    fn new(sender: &'a Sender<Letter>, receiver: &'a Receiver<Letter>) -> Self {
        History {
            sender,
            receiver,
            receives: Vec::new(),
            sends: Vec::new(),
            drops: Drops::default(),
            got: Vec::new(),
            sent: HashSet::new(),
            unknown: HashSet::new(),
            closed: false,
        }
    }

    fn letter(&self) -> Letter {
        self.drops.borrow_mut().push(0);
        Letter(self.drops.borrow().len() - 1, Rc::clone(&self.drops))
    }

    fn poll_receive(&mut self, at: usize) {
        let task = &mut self.receives[at];
        task.wakes.take();
        if let Poll::Ready(got) = poll(task.future.as_mut(), &task.wakes) {
            match got {
                Ok(letter) => self.got.push(letter.0),
                Err(_) => assert!(self.closed, "a receive ends on an open channel"),
            }
            self.receives.swap_remove(at);
        }
    }

    fn poll_send(&mut self, at: usize) {
        let task = &mut self.sends[at];
        task.wakes.take();
        if let Poll::Ready(ended) = poll(task.future.as_mut(), &task.wakes) {
            match ended {
                Ok(()) => assert!(self.sent.insert(task.number)),
                Err(error) => assert_eq!((self.closed, error.into_inner().0), (true, task.number)),
            }
            self.sends.swap_remove(at);
        }
    }

    /// Polls the woken tasks until no task is woken; then no task may wait for a message that is there.
    fn settle(&mut self) {
        loop {
            let woken = |wakes: &Wakes| wakes.0.load(std::sync::atomic::Ordering::SeqCst) > 0;
            if let Some(at) = self.receives.iter().position(|task| woken(&task.wakes)) {
                self.poll_receive(at);
            } else if let Some(at) = self.sends.iter().position(|task| woken(&task.wakes)) {
                self.poll_send(at);
            } else {
                break;
            }
        }
        if !self.receives.is_empty() {
            assert!(self.sends.is_empty(), "a send and a receive wait for each other");
            assert_eq!(self.receiver.len(), 0, "a receive waits beside a message");
            assert!(!self.closed, "a receive waits on a closed channel");
        }
        assert!(self.sends.is_empty() || self.sender.is_full() && !self.closed, "a send waits beside room");
    }

    fn step(&mut self, random: &mut Random) {
        let any = |random: &mut Random, many: usize| random.below(many as u64) as usize;
        match random.below(16) {
            0..3 if self.receives.len() < 4 => {
                let future: Receives<'a, Letter> = Box::pin(self.receiver.recv_async());
                self.receives.push(Task { future, wakes: Wakes::new(), number: 0 });
                self.poll_receive(self.receives.len() - 1);
            }
            3..6 if self.sends.len() < 4 => {
                let letter = self.letter();
                let number = letter.0;
                let future: Sends<'a, Letter> = Box::pin(self.sender.send_async(letter));
                self.sends.push(Task { future, wakes: Wakes::new(), number });
                self.poll_send(self.sends.len() - 1);
            }
            6 | 7 if !self.receives.is_empty() => {
                let at = any(random, self.receives.len());
                drop(self.receives.swap_remove(at));
            }
            8 if !self.sends.is_empty() => {
                let at = any(random, self.sends.len());
                let task = self.sends.swap_remove(at);
                self.unknown.insert(task.number);
            }
            9 | 10 if !self.receives.is_empty() => self.poll_receive(any(random, self.receives.len())),
            11 if !self.sends.is_empty() => self.poll_send(any(random, self.sends.len())),
            12 => match self.receiver.try_recv() {
                Ok(letter) => self.got.push(letter.0),
                Err(error) => assert!(self.closed || error == TryRecvError::Empty),
            },
            13 => {
                let letter = self.letter();
                let number = letter.0;
                match self.sender.try_send(letter) {
                    Ok(()) => assert!(self.sent.insert(number)),
                    Err(error) => assert_eq!(matches!(error, TrySendError::Disconnected(_)), self.closed),
                }
            }
            14 => self.select(random),
            _ if random.one_in(64) => {
                self.sender.close();
                self.closed = true;
            }
            _ => self.settle(),
        }
    }

    /// Sends by a select, if that is possible at once; or promises a message and withdraws the promise.
    fn select(&mut self, random: &mut Random) {
        if random.one_in(3) {
            withdraws(self.sender);
            return;
        }
        let mut select = Select::new();
        select.send(self.sender);
        let Ok(operation) = select.try_select() else { return };
        if random.one_in(3) {
            self.receives.clear();
        }
        let letter = self.letter();
        let number = letter.0;
        if operation.send(self.sender, letter).is_ok() {
            assert!(self.sent.insert(number));
        }
    }

    fn end(mut self) {
        self.settle();
        self.receives.clear();
        self.got.extend(self.receiver.try_iter().map(|letter| letter.0));
        (0..self.sends.len()).rev().for_each(|at| self.poll_send(at));
        assert!(self.sends.is_empty());
        let in_order = self.got.windows(2).all(|two| two[0] < two[1]);
        assert!(in_order, "out of order, or twice: {:?}", self.got);
        let got: HashSet<_> = self.got.iter().copied().collect();
        assert!(self.sent.is_subset(&got), "lost: {:?}", self.sent.difference(&got));
        let unsent: Vec<_> =
            got.iter().filter(|it| !self.sent.contains(it) && !self.unknown.contains(it)).collect();
        assert!(unsent.is_empty(), "received, and not sent: {unsent:?}");
        assert!(self.drops.borrow().iter().all(|&drops| drops == 1), "{:?}", self.drops);
    }
}

/// Fails when a message is lost, comes twice, or out of order; when a future waits for a message that is there; when a message
/// is dropped twice, or never.
#[test]
fn whatever_is_dropped_messages_are_received_once_and_in_order() {
    for seed in 0..rounds(4000) {
        let mut random = Random::new(seed);
        for (sender, receiver) in every_kind() {
            let mut history = History::new(&sender, &receiver);
            (0..60).for_each(|_| history.step(&mut random));
            history.end();
        }
    }
}
