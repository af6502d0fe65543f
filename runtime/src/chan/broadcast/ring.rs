//! The messages of a channel, and the look of a receiver at them.
//!
//! ```text
//!   State, locked:  head .. tail     the numbers of the messages in the ring
//!                   blocks           of `nodes` nodes each; the first has the message `head`, if there is one
//!   Node:           value            under its own lock, so that `T` need not be `Sync`
//!                   left             receivers that have not seen the message, ×2;  + GONE.  0: no message yet,
//!                                    or all have seen it
//!
//!   sender                           receiver                             who clears
//!
//!   lock the state                   R1  left is 0: look in the state,    C  try the node's lock;
//!   S1  node(tail).value := message      or wait there                        take the value out, unlock, drop it
//!   S2  node(tail).left := 2 × n     R2  lock the node
//!   S3  ring full: head += 1         R3  left has GONE: unlock, look
//!   unlock the state                 R4  clone
//!   S4  old.left |= GONE             R5  unlock the node
//!   S5  C, for the old node          R6  left -= 2, or -= 0 if R4 unwinds
//!                                    R7  it was the last: lock the state, head += 1 past each node that all have seen; C
//!                                    R8  it had GONE: C
//! ```
//! A receiver keeps the block in which its next message is, so most receives don't touch the state, and receivers in different
//! places of the ring share hardly any line that they write. These touch the state at each message: a receive as a future, a
//! receiver with a bell, the last receiver to see a message, and a channel whose blocks have one node.
//!
//! *A value that is removed is dropped by S5, or by a receiver that has the node's lock meanwhile.* S4 and R6 change one word,
//! so one comes first. If S4 does, R6 sees GONE, and that receiver clears. If R6 does, S4 sees it, and so S5 sees R5. If the
//! try of C fails, then the holder of the lock executes its own R6 later, or clears itself. A future that is dropped in its
//! turn executes R6, too. A goroutine that the end of its runtime left behind may hold the lock for good: then the value goes
//! with the block.
//!
//! *The head passes each node that all have seen.* A receiver sees a message only when it is through with R7 for the one
//! before, so the counts come to zero in order. A clone of a receiver adds to counts that are not zero, under the lock of the
//! state: a count that has come to zero stays there. A clone between S3 and S4 is not counted for the message that S3 has taken
//! out of the ring, if that is the clone's next one. So a clone that lags gets no block, and looks in the state first.
//!
//! *No value is dropped under the lock of the state.* A block leaves it when the head has passed the block's nodes, each of
//! which is cleared by a call that holds the block until then.
//!
//! Checked by `models/several.rs`.

use crate::chan::several::{HasParties, Parties, Side};
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, Arc, AtomicU64, Relaxed, Release};
use crate::sync;
use crate::sync::wait_queue::{HasWaitQueue, WaitQueue};
use std::collections::VecDeque;

/// The bit in `left` of a node that left the ring before all had seen its message.
const GONE: u64 = 1;
/// A receiver, in `left`.
const RECEIVER: u64 = 2;
/// The most nodes of a block.
const MOST_NODES: usize = 32;
/// About the most bytes of a block with more than one node.
const MOST_BYTES: usize = 4096;

pub(super) struct Node<T> {
    pub(super) value: sync::Mutex<Option<T>>,
    left: AtomicU64,
}

/// The result of R6.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(super) enum Seen {
    /// Other receivers have not seen the message.
    ByMe,
    /// The caller passes the node, and clears it.
    ByAll,
    /// The message has been removed: the caller clears the node.
    Removed,
}

impl<T> Node<T> {
    fn new() -> Self {
        Node { value: sync::Mutex::new(None), left: AtomicU64::new(0) }
    }

    /// R1: returns `true` if there is a message here that some receiver has not counted, and that was not removed. A receiver
    /// does not wait for the lock of a message that it may not have: another receiver may clone that message for good.
    #[inline]
    pub(super) fn has_come(&self) -> bool {
        // Acquire: sees the value; the partner is the Release in `State::put`. No model has the two: in loom the unlock of the
        // node, which comes before that Release, orders the value for the next receiver that locks the node.
        let left = self.left.load(Acquire);
        left != 0 && left & GONE == 0
    }

    /// R3, with the node locked.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        // Relaxed: the lock orders the value. A message whose removal is not seen here was received before it.
        self.left.load(Relaxed) & GONE != 0
    }

    /// R6, after the unlock.
    #[inline]
    pub(super) fn seen(&self) -> Seen {
        // Release: the unlock of the node, for the Acquire in `mark_gone`. Acquire: what the others did with the value, for the
        // one that clears it; partners are these Releases. No model has them: in loom a `try_lock` never reads an old state.
        let before = self.left.fetch_sub(RECEIVER, AcqRel);
        match before {
            _ if (before & GONE != 0).unless(BroadcastSeesNoRemoval) => Seen::Removed,
            RECEIVER => Seen::ByAll,
            _ => Seen::ByMe,
        }
    }

    /// R6 of a receiver that has had the lock, or its turn, without seeing the message; with R8.
    #[cold]
    pub(super) fn tidy(&self) {
        mutant!(BroadcastLeavesUntidy: return);
        // AcqRel: as in `seen`, with the same partners.
        if self.left.fetch_add(0, AcqRel) & GONE != 0 {
            self.clear();
        }
    }

    /// S4. The caller clears the node.
    pub(super) fn mark_gone(&self) {
        // Acquire: sees that the receivers before have unlocked the node; the partner is the Release in `seen`. No model has
        // the two, as there.
        self.left.fetch_or(GONE, AcqRel);
    }

    /// C. A `drop` of the value that unwinds goes on in the caller.
    pub(super) fn clear(&self) {
        drop(self.take());
    }

    /// C, for a caller that drops the value.
    pub(super) fn take(&self) -> Option<T> {
        self.value.try_lock().and_then(|mut value| value.take())
    }
}

/// Nodes of neighbouring messages.
pub(super) struct Block<T> {
    first: u64,
    nodes: Box<[Node<T>]>,
}

impl<T> Block<T> {
    fn new(first: u64, nodes: usize) -> Arc<Self> {
        Arc::new(Block { first, nodes: (0..nodes).map(|_| Node::new()).collect() })
    }

    /// Returns the node of the message `number`, if it is in this block.
    #[inline]
    pub(super) fn node(&self, number: u64) -> Option<&Node<T>> {
        self.nodes.get(usize::try_from(number.wrapping_sub(self.first)).ok()?)
    }
}

pub(super) struct State<T> {
    blocks: VecDeque<Arc<Block<T>>>,
    /// The number of nodes of a block.
    nodes: usize,
    head: u64,
    tail: u64,
    pub(super) parties: Parties,
}

impl<T> HasParties for State<T> {
    fn parties(&mut self) -> &mut Parties {
        &mut self.parties
    }
}

impl<T> HasWaitQueue for State<T> {
    type Want = Side;
    fn waiters(&mut self, side: &Side) -> &mut WaitQueue<Side> {
        self.parties.queue(*side)
    }
}

/// The result of a receiver's look.
pub(super) enum Found<T> {
    /// The next message is there, in this block, or in that which the receiver has.
    Message(Option<Arc<Block<T>>>),
    Lagged(u64),
    Closed,
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize, receivers: usize) -> Self {
        let nodes = (MOST_BYTES / size_of::<Node<T>>()).clamp(1, MOST_NODES).min(capacity);
        State { blocks: VecDeque::new(), nodes, head: 0, tail: 0, parties: Parties::new(receivers) }
    }

    /// Returns the number of the next message.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of messages in the ring.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.tail - self.head).expect("len: the ring is in memory")
    }

    /// Returns the block of a message that is in the ring, or of the next one.
    fn block(&self, number: u64) -> Option<&Arc<Block<T>>> {
        let place = (number - self.blocks.front()?.first) / self.nodes as u64;
        self.blocks.get(usize::try_from(place).expect("block: the ring is in memory"))
    }

    /// Returns the node of a message that is in the ring.
    fn node(&self, number: u64) -> &Node<T> {
        self.block(number).and_then(|block| block.node(number)).expect("node: the message is in the ring")
    }

    /// S1 and S2: puts a message at the tail, which all receivers are to see.
    pub(super) fn put(&mut self, message: T) {
        if self.block(self.tail).is_none() {
            self.blocks.push_back(Block::new(self.tail, self.nodes));
        }
        let node = self.node(self.tail);
        *node.value.try_lock().expect("put: no receiver locks a node before its message has come") =
            Some(message);
        let left = self.parties.receivers as u64 * RECEIVER;
        // Release: publishes the value, and the unlock, to its partner, the Acquire in `has_come`.
        node.left.store(left, Release);
        self.tail += 1;
    }

    /// S3: takes the oldest message out of the ring. The caller removes it from its node, in this block, after the lock.
    pub(super) fn pop(&mut self) -> (Arc<Block<T>>, u64) {
        let oldest = self.head;
        let block = Arc::clone(self.block(oldest).expect("pop: the ring has a message"));
        self.pass();
        (block, oldest)
    }

    /// Moves the head past a message.
    fn pass(&mut self) {
        self.head += 1;
        if self.blocks.front().is_some_and(|block| block.node(self.head).is_none()) {
            self.blocks.pop_front();
        }
    }

    /// Moves the head past the messages that all receivers have seen.
    pub(super) fn pass_seen(&mut self) {
        // Relaxed: the caller has brought one of the counts to zero. One whose zero is not seen has a caller that is about to
        // come here.
        while self.head < self.tail && self.node(self.head).left.load(Relaxed) == 0 {
            self.pass();
            mutant!(BroadcastPassesOne: break);
        }
    }

    /// Returns what a receiver finds that sees `next` next, and has this block; if it lags, sets `next` to the oldest message.
    pub(super) fn look(&self, next: &mut u64, has: Option<&Block<T>>) -> Option<Found<T>> {
        let missed = self.head.saturating_sub(*next);
        if missed > 0 {
            *next = self.head;
            return Some(Found::Lagged(missed));
        }
        if *next < self.tail {
            let in_it = has.is_some_and(|block| block.node(*next).is_some());
            return Some(Found::Message(if in_it { None } else { self.block(*next).cloned() }));
        }
        self.parties.closed.then_some(Found::Closed)
    }

    /// Counts one more receiver that has not seen the messages from `next` on. Returns `true` if the receiver lags: then it is
    /// not counted for the messages before the head.
    pub(super) fn add_receiver(&mut self, next: u64) -> bool {
        mutant!(BroadcastCloneUncounted: return false);
        for number in next.max(self.head)..self.tail {
            // Relaxed: the receiver that is cloned has not seen the message, so it is not cleared beside this.
            self.node(number).left.fetch_add(RECEIVER, Relaxed);
        }
        next < self.head
    }

    /// Counts the messages from `next` on as seen, for a receiver that goes. The caller clears the nodes that it gets, after
    /// the lock.
    pub(super) fn remove_receiver(&mut self, next: u64) -> Vec<(Arc<Block<T>>, u64)> {
        let mut seen = Vec::new();
        for number in next.max(self.head)..self.tail {
            let block = self.block(number).expect("remove_receiver: the message is in the ring");
            let last = block.node(number).is_some_and(|node| node.seen() == Seen::ByAll);
            if last {
                seen.push((Arc::clone(block), number));
            }
        }
        self.pass_seen();
        seen
    }
}
