//! A value with a count of its owners: the last owner frees the value, once, after all accesses of the others.

use super::caught;
use super::cover::Shared;
use crate::model::{Model, Mutant};
use loom::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A value that its owners look at. Its drop writes to the cell, so that loom finds a look that is not ordered before the drop.
struct Value {
    cell: UnsafeCell<()>,
    ends: Arc<AtomicUsize>,
}

impl Value {
    fn look(&self) {
        self.cell.with(|_| ());
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.cell.with_mut(|_| ());
        self.ends.fetch_add(1, Relaxed);
    }
}

/// Returns two owners, and the count of the value's drops.
fn two() -> ([Shared<Value>; 2], Arc<AtomicUsize>) {
    let ends = Arc::new(AtomicUsize::new(0));
    let value = Value { cell: UnsafeCell::new(()), ends: Arc::clone(&ends) };
    (Shared::two(value), ends)
}

/// Fails when the value is freed while the other owner looks at it, or freed twice, or never.
#[test]
fn two_owners_go_at_the_same_time() {
    Model::new().unbounded().check("shared_two", || {
        let ([ours, theirs], ends) = two();
        let other = loom::thread::spawn(move || {
            theirs.look();
            drop(theirs);
        });
        ours.look();
        drop(ours);
        other.join().unwrap();
        assert_eq!(ends.load(Relaxed), 1);
    });
}

/// As `two_owners_go_at_the_same_time`, with a third owner, made meanwhile.
#[test]
fn an_owner_makes_another_while_one_goes() {
    Model::new().unbounded().check("shared_three", || {
        let ([ours, theirs], ends) = two();
        let other = loom::thread::spawn(move || {
            theirs.look();
            drop(theirs);
        });
        let third = ours.clone();
        let last = loom::thread::spawn(move || {
            third.look();
            drop(third);
        });
        drop(ours);
        other.join().unwrap();
        last.join().unwrap();
        assert_eq!(ends.load(Relaxed), 1);
    });
}

#[test]
fn mutants() {
    const TWO: &str = "two_owners_go_at_the_same_time";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SharedAloneRelaxed, TWO),
            (Mutant::SharedAloneRelaxed, "an_owner_makes_another_while_one_goes"),
            (Mutant::SharedNoAcquire, TWO),
            (Mutant::SharedNoRelease, TWO),
        ],
    );
}
