//! The cover of the jobs of one P.

use crate::host::Active;
use crate::p::jobs::{Entry, Jobs as Slots, Slot};
use crate::prim::{Arc, UnsafeCell};
use crate::sched::run::jobs::record::Job;
use std::ptr::NonNull;

/// A stand-in for a record: an address, and a cell that belongs to its owner or its taker.
#[repr(align(8))]
struct Named {
    cell: UnsafeCell<()>,
}

/// `p/jobs.rs`, and records that never run, told apart by their numbers. Only the model's owner calls the owner's functions.
#[derive(Clone)]
pub struct Jobs(Arc<Shared>);

struct Shared {
    slots: Slots<Active>,
    records: Vec<Named>,
}

// SAFETY: each of the model's threads calls only the functions that it may, and loom checks the order of their accesses to the
// cells.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A slot, for the forker that has put its record in there.
pub struct Place(NonNull<Slot<Active>>);

impl Jobs {
    /// Slots with room for two jobs, and `count` records.
    pub fn new(count: usize) -> Self {
        let slots = Slots::new();
        assert!(slots.open(), "new: the first job");
        let records = (0..count).map(|_| Named { cell: UnsafeCell::new(()) }).collect();
        Jobs(Arc::new(Shared { slots, records }))
    }
    fn name(&self, number: usize) -> NonNull<Job<Active>> {
        NonNull::from(&self.0.records[number]).cast()
    }
    /// An exclusive access to a record: loom fails the execution if two of them are not ordered.
    fn touch(&self, number: usize) {
        self.0.records[number].cell.with_mut(|_| ());
    }
    /// By the owner: writes the record, and puts it in, without a fence.
    pub fn put_in(&self, number: usize) -> Place {
        self.touch(number);
        let slot =
            self.0.slots.put_in(Entry::Job(self.name(number)), 1, || ()).expect("put_in: there is room");
        Place(NonNull::from(slot))
    }
    /// By the forker of the record. Returns `true` if the record is the forker's again.
    pub fn withdraw(&self, place: &Place, number: usize) -> bool {
        // SAFETY: a part of `self`.
        let withdrawn = unsafe { place.0.as_ref() }.withdraw(self.name(number));
        if withdrawn {
            self.touch(number);
        }
        withdrawn
    }
    /// By any thread. Returns the number of the oldest, which is the caller's.
    pub fn take_oldest(&self) -> Option<usize> {
        let Entry::Job(job) = self.0.slots.take_oldest()? else { panic!("take_oldest: a goroutine") };
        let number = (0..self.0.records.len()).find(|&number| self.name(number) == job);
        let number = number.expect("take_oldest: one of these");
        self.touch(number);
        Some(number)
    }
    /// By any thread.
    pub fn is_empty(&self) -> bool {
        self.0.slots.is_empty()
    }
}
