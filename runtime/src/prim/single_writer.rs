//! Words that one thread at a time writes, and other threads `peek`, as a trace does. The accesses are Relaxed and
//! order nothing, except for `set_after`. std's atomics in both builds: loom need not weigh these words, except where a
//! model asks for that.
//!
//! `own` is for the writer alone: a plain load, which the compiler may merge with others, as with a `Cell`. If another thread
//! stored at the same time, that load would be a data race, which neither loom nor a test sees. `peek`, and the `get` of a
//! number, are for any thread.

use super::hooks::*;
use super::{Acquire, Relaxed, Release};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};

/// A pointer. A reader other than the writer only compares the pointer, or knows that its target stays alive.
#[derive(Debug)]
pub(crate) struct SingleWriter<T>(AtomicPtr<T>, #[cfg(gmp_loom)] Shown<T>);

/// The word that `peek_after` reads in a model that asks for this: there loom explores which value the reader sees.
#[cfg(gmp_loom)]
type Shown<T> = Option<loom::sync::atomic::AtomicPtr<T>>;

impl<T> SingleWriter<T> {
    pub(crate) fn new(value: Option<NonNull<T>>) -> Self {
        let value = value.map_or(ptr::null_mut(), NonNull::as_ptr);
        SingleWriter(
            AtomicPtr::new(value),
            #[cfg(gmp_loom)]
            super::model::weighs_single_writers().then(|| loom::sync::atomic::AtomicPtr::new(value)),
        )
    }
    /// Called by the writer.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<NonNull<T>> {
        // SAFETY: by the type's contract the caller is the one writer, so no thread writes at the same time; reads by others
        // don't matter.
        NonNull::new(unsafe { *self.0.as_ptr() })
    }
    /// Called by any thread.
    pub(crate) fn peek(&self) -> Option<NonNull<T>> {
        NonNull::new(self.0.load(Relaxed))
    }
    #[inline(always)]
    pub(crate) fn set(&self, value: Option<NonNull<T>>) {
        self.0.store(value.map_or(ptr::null_mut(), NonNull::as_ptr), Relaxed);
    }
    /// Called by any thread, which then sees what the writer did before `set_after`.
    pub(crate) fn peek_after(&self) -> Option<NonNull<T>> {
        // Acquire: partner `set_after`.
        let acquire = Acquire.unless(PeekAfterRelaxed);
        #[cfg(gmp_loom)]
        if let Some(shown) = &self.1 {
            return NonNull::new(shown.load(acquire));
        }
        NonNull::new(self.0.load(acquire))
    }
    /// `set`, for readers that `peek_after`.
    #[inline(always)]
    pub(crate) fn set_after(&self, value: Option<NonNull<T>>) {
        let value = value.map_or(ptr::null_mut(), NonNull::as_ptr);
        // Release: the writer's work so far is over for `peek_after`, its partner.
        let release = Release.unless(SetAfterRelaxed);
        self.0.store(value, release);
        #[cfg(gmp_loom)]
        if let Some(shown) = &self.1 {
            shown.store(value, release);
        }
    }
}

/// A number. Several threads at a time may write it if it does not matter whose store is the last, as with the coarse time.
#[derive(Debug)]
pub(crate) struct SingleWriterWord(AtomicU64);

impl SingleWriterWord {
    pub(crate) fn new(value: u64) -> Self {
        SingleWriterWord(AtomicU64::new(value))
    }
    /// Called by any thread.
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// A small number.
#[derive(Debug)]
pub(crate) struct SingleWriterByte(AtomicU8);

impl SingleWriterByte {
    pub(crate) fn new(value: u8) -> Self {
        SingleWriterByte(AtomicU8::new(value))
    }
    /// Called by any thread.
    #[inline(always)]
    pub(crate) fn get(&self) -> u8 {
        self.0.load(Relaxed)
    }
    #[inline(always)]
    pub(crate) fn set(&self, value: u8) {
        self.0.store(value, Relaxed);
    }
}

/// Yes or no.
#[derive(Debug)]
pub(crate) struct SingleWriterFlag(AtomicBool);

impl SingleWriterFlag {
    pub(crate) fn new(value: bool) -> Self {
        SingleWriterFlag(AtomicBool::new(value))
    }
    /// Called by the writer.
    #[inline(always)]
    pub(crate) fn own(&self) -> bool {
        // SAFETY: by the type's contract the caller is the one writer, so no thread writes at the same time.
        unsafe { *self.0.as_ptr() }
    }
    /// Called by any thread.
    #[inline(always)]
    pub(crate) fn peek(&self) -> bool {
        self.0.load(Relaxed)
    }
    #[inline(always)]
    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Relaxed);
    }
    /// Called by the writer.
    #[inline(always)]
    pub(crate) fn replace(&self, value: bool) -> bool {
        let old = self.own();
        self.set(value);
        old
    }
}
