//! A queue of waiters, first come first served, whose records lie on their owners' stacks.
//!
//! The list is doubly linked, so that a record can leave from anywhere in constant time. The lock of the channel, lock or
//! socket for which the owners wait protects the list; a record's links, and its mark that it is in the list, are touched only
//! under that lock. A record stays valid while it is in a queue: before the owner's frame ends, the owner takes the record out,
//! or finds under the lock that a waker has taken it out. The stack of a goroutine that is left behind with a record in a queue
//! is never freed.
//!
//! The owner goes on using the value that contains the node, through a `&mut`, while other threads write the node under the
//! lock. If a function has such a reference as an argument, the compiler assumes that no other way leads to the value as long
//! as the function runs, unless the type is pinned. So a node is [`PhantomPinned`], and so is all that contains a node.

#[cfg(debug_assertions)]
use crate::host::{Active, Process};
use crate::prim::UnsafeCell;
use std::marker::PhantomPinned;
use std::ptr::NonNull;

struct Links<T> {
    prev: Option<NonNull<Node<T>>>,
    next: Option<NonNull<Node<T>>>,
    queued: bool,
}

/// Checks that an owner that drops a node has left the queue: no waker may find the node there.
#[cfg(debug_assertions)]
impl<T> Drop for Links<T> {
    fn drop(&mut self) {
        assert!(!self.queued || Active::is_panicking(), "drop: the node stands in a queue");
    }
}

/// A record, with the links.
pub(crate) struct Node<T> {
    links: UnsafeCell<Links<T>>,
    pub(crate) value: T,
    _pinned: PhantomPinned,
}

impl<T> Node<T> {
    pub(crate) fn new(value: T) -> Self {
        let links = UnsafeCell::new(Links { prev: None, next: None, queued: false });
        Node { links, value, _pinned: PhantomPinned }
    }

    /// # Safety
    /// The caller holds the lock of the queue, or the node stands in no queue and belongs to the caller.
    unsafe fn links<R>(this: NonNull<Self>, f: impl FnOnce(&mut Links<T>) -> R) -> R {
        // SAFETY: a node that stands in a queue is valid; the lock makes the access exclusive.
        unsafe { this.as_ref() }.links.with_mut(|links| f(unsafe { &mut *links }))
    }
}

/// The queue. `&mut` stands for the queue's lock, held.
pub(crate) struct Queue<T> {
    head: Option<NonNull<Node<T>>>,
    tail: Option<NonNull<Node<T>>>,
}

// SAFETY: the records are reached only under the queue's lock, which hands their contents from thread to thread.
unsafe impl<T: Send> Send for Queue<T> {}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Queue { head: None, tail: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Returns the record that has waited longest. Valid while the queue's lock is held.
    pub(crate) fn front(&self) -> Option<NonNull<Node<T>>> {
        self.head
    }

    /// # Safety
    /// The node stands in no queue, and is not moved until taken out of this one.
    pub(crate) unsafe fn push_back(&mut self, node: NonNull<Node<T>>) {
        let last = self.tail.replace(node);
        // SAFETY: the caller holds the lock, and hands the node over.
        unsafe {
            Node::links(node, |links| {
                debug_assert!(!links.queued, "push_back: the node stands in a queue");
                *links = Links { prev: last, next: None, queued: true };
            });
            match last {
                Some(last) => Node::links(last, |links| links.next = Some(node)),
                None => self.head = Some(node),
            }
        }
    }

    /// # Safety
    /// As `push_back`.
    pub(crate) unsafe fn push_front(&mut self, node: NonNull<Node<T>>) {
        // SAFETY: by this function's contract; the head stands in this queue.
        unsafe { self.insert_before(node, self.head) };
    }

    /// Inserts the node before `next`, which stands in this queue, or at the end if that is `None`.
    ///
    /// # Safety
    /// As `push_back`.
    pub(crate) unsafe fn insert_before(&mut self, node: NonNull<Node<T>>, next: Option<NonNull<Node<T>>>) {
        let Some(next) = next else {
            // SAFETY: by this function's contract.
            return unsafe { self.push_back(node) };
        };
        // SAFETY: as in `push_back`; `next` and the node before it stand in this queue.
        unsafe {
            let prev = Node::links(next, |links| links.prev.replace(node));
            Node::links(node, |links| {
                debug_assert!(!links.queued, "insert_before: the node stands in a queue");
                *links = Links { prev, next: Some(next), queued: true };
            });
            match prev {
                Some(prev) => Node::links(prev, |links| links.next = Some(node)),
                None => self.head = Some(node),
            }
        }
    }

    /// Takes the node out. Returns `false` if the node was already out.
    ///
    /// # Safety
    /// The node is valid, and stands in this queue or in none.
    pub(crate) unsafe fn remove(&mut self, node: NonNull<Node<T>>) -> bool {
        // SAFETY: the caller holds the lock; the neighbours stand in this queue, and so are valid.
        unsafe {
            let (prev, next, queued) = Node::links(node, |links| {
                (links.prev.take(), links.next.take(), std::mem::take(&mut links.queued))
            });
            if !queued {
                return false;
            }
            match prev {
                Some(prev) => Node::links(prev, |links| links.next = next),
                None => self.head = next,
            }
            match next {
                Some(next) => Node::links(next, |links| links.prev = prev),
                None => self.tail = prev,
            }
        }
        true
    }

    /// Returns `true` if the node stands in this queue. The node is the caller's own, or stands in the queue.
    pub(crate) fn contains(&self, node: NonNull<Node<T>>) -> bool {
        // SAFETY: the caller holds the lock, and keeps the node.
        unsafe { Node::links(node, |links| links.queued) }
    }

    /// Returns `true` if the node is the only one that stands in this queue.
    pub(crate) fn is_alone(&self, node: NonNull<Node<T>>) -> bool {
        self.head == Some(node) && self.tail == Some(node)
    }

    /// Takes out the record that has waited longest. The record is valid until the owner was claimed and readied, or, if the
    /// claim fails, while the queue's lock is held.
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<Node<T>>> {
        let first = self.head?;
        // SAFETY: the head stands in this queue, whose lock the caller holds (`&mut`).
        unsafe { self.remove(first) };
        Some(first)
    }

    /// Returns the node behind `node`, which stands in this queue.
    pub(crate) fn next(&self, node: NonNull<Node<T>>) -> Option<NonNull<Node<T>>> {
        // SAFETY: the node stands in this queue, whose lock is held.
        unsafe { Node::links(node, |links| links.next) }
    }

    /// Returns the nodes of the queue, in order. Valid while the queue's lock is held.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<Node<T>>> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let node = at?;
            at = self.next(node);
            Some(node)
        })
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    struct Probe<T>(T);
    impl<T: Unpin> Probe<T> {
        const IS_UNPIN: bool = true;
    }
    /// `Probe::IS_UNPIN` names this trait's constant for all other types.
    trait IsNotUnpin {
        const IS_UNPIN: bool = false;
    }
    impl<T> IsNotUnpin for Probe<T> {}

    /// Fails if the compiler may assume that a `&mut` to a value that contains a node is the only way to that node.
    #[test]
    fn the_owners_reference_is_not_the_only_way_to_its_node() {
        let unpin =
            [Probe::<u32>::IS_UNPIN, Probe::<Node<u32>>::IS_UNPIN, Probe::<Option<Node<u32>>>::IS_UNPIN];
        assert_eq!(unpin, [true, false, false]);
    }

    fn values(queue: &Queue<u32>) -> Vec<u32> {
        // SAFETY: the nodes of these tests outlive their queue.
        queue.iter().map(|node| unsafe { node.as_ref() }.value).collect()
    }

    /// Fails if a link is lost when a node leaves at the front, at the end, in the middle, or as the last one.
    #[test]
    fn nodes_leave_from_anywhere_and_the_others_keep_their_order() {
        let nodes: Vec<_> = (0..4).map(Node::new).collect();
        let at = |index: usize| NonNull::from(&nodes[index]);
        let mut queue = Queue::new();
        // SAFETY: the nodes outlive the queue and do not move.
        unsafe {
            for index in 0..4 {
                queue.push_back(at(index));
            }
            assert!(queue.remove(at(1)));
            assert!(!queue.remove(at(1)), "it is out already");
            assert_eq!(values(&queue), [0, 2, 3]);
            assert!(queue.remove(at(3)));
            assert!(queue.remove(at(0)));
            assert_eq!(values(&queue), [2]);
            queue.insert_before(at(3), Some(at(2)));
            queue.insert_before(at(0), Some(at(2)));
            assert_eq!(values(&queue), [3, 0, 2]);
            assert_eq!(queue.pop_front(), Some(at(3)));
            assert!(queue.remove(at(0)));
            assert_eq!(queue.pop_front(), Some(at(2)));
            assert_eq!(queue.pop_front(), None);
            assert!(queue.is_empty());
            queue.insert_before(at(0), None);
            queue.push_back(at(1));
            assert_eq!(values(&queue), [0, 1]);
            while queue.pop_front().is_some() {}
        }
    }
}
