//! The note: a sleep ends by the one wake, whenever that comes.

use super::caught;
use super::cover::Note;
use crate::model::{Model, Mutant};
use loom::cell::UnsafeCell;
use std::sync::Arc;

struct Shared {
    note: Note,
    /// Written before each wake, read after each sleep.
    word: UnsafeCell<u32>,
}

// SAFETY: the note orders the accesses to `word`; loom checks that it does.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Fails by deadlock when a wake is lost, by a causality violation when the sleeper may not see what came before.
#[test]
fn a_sleep_ends_by_its_wake_and_sees_what_came_before() {
    Model::new().unbounded().check("note", || {
        let shared = Arc::new(Shared { note: Note::new(), word: UnsafeCell::new(0) });
        let waker = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                // SAFETY: before the wake.
                shared.word.with_mut(|word| unsafe { *word = 1 });
                shared.note.wake();
            }
        });
        shared.note.sleep();
        // SAFETY: after the wake.
        assert_eq!(shared.word.with(|word| unsafe { *word }), 1);
        waker.join().unwrap();
        // The second use.
        shared.note.clear();
        shared.note.wake();
        shared.note.sleep();
    });
}

#[test]
fn mutants() {
    let model = "a_sleep_ends_by_its_wake_and_sees_what_came_before";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::NoteWakeRelaxed, model),
            (Mutant::NoteWakeBeforeStore, model),
            (Mutant::NoteSleepRelaxed, model),
        ],
    );
}
