//! The note: one wake ends a sleep, whenever the wake comes.

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
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

/// Makes a thread sleep by `sleep`, and another wake it, twice.
fn sleeps(name: &str, sleep: fn(&Note)) {
    Model::new().unbounded().check(name, move || {
        let shared = Arc::new(Shared { note: Note::new(), word: UnsafeCell::new(0) });
        let waker = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                // SAFETY: written before the wake.
                shared.word.with_mut(|word| unsafe { *word = 1 });
                shared.note.wake();
            }
        });
        sleep(&shared.note);
        // SAFETY: read after the wake.
        assert_eq!(shared.word.with(|word| unsafe { *word }), 1);
        waker.join().unwrap();
        // The second use.
        shared.note.clear();
        shared.note.wake();
        sleep(&shared.note);
    });
}

/// Fails by deadlock when a wake is lost, by a causality violation when the sleeper does not see what came before the
/// wake.
#[test]
fn a_sleep_ends_by_its_wake_and_sees_what_came_before() {
    sleeps("note", Note::sleep);
}

/// As `a_sleep_ends_by_its_wake_and_sees_what_came_before`, for a sleep with a limit that is never reached.
#[test]
fn a_sleep_with_a_limit_ends_by_its_wake_and_sees_what_came_before() {
    sleeps("note_until", |note| assert!(note.sleep_until(u64::MAX), "nobody woke it"));
}

#[test]
fn mutants() {
    let model = "a_sleep_ends_by_its_wake_and_sees_what_came_before";
    let limited = "a_sleep_with_a_limit_ends_by_its_wake_and_sees_what_came_before";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::NoteWakeRelaxed, model),
            (Mutant::NoteWakeBeforeStore, model),
            (Mutant::NoteSleepRelaxed, model),
            (Mutant::NoteSleepUntilRelaxed, limited),
        ],
    );
}
