//! A dump asks threads where they are: the asker reads only whole answers, and a late answer does no harm.

#[path = "../host/native/sample/ask.rs"]
mod shipped;

use super::caught;
use crate::model::{Model, Mutant};
use shipped::Slot;
use std::sync::Arc;

/// The handler on thread `number`, which answers with that number.
fn handler(slot: &Arc<Slot<u32>>, number: u32) -> loom::thread::JoinHandle<bool> {
    let slot = Arc::clone(slot);
    loom::thread::spawn(move || slot.answer(number, |answer| *answer = number))
}

/// Returns the number in the answer, if there is one.
fn take(slot: &Slot<u32>) -> Option<u32> {
    slot.take(|answer| *answer)
}

fn ask(slot: &Slot<u32>, number: u32) -> bool {
    slot.ask(number, |answer| *answer = 0)
}

/// The asker reads the answer, or withdraws the question, and asks another thread. Fails by a causality violation when
/// the asker reads what a handler writes, or a handler writes what the asker reads or another handler writes; by an
/// assertion when an answer is another thread's, or is read twice.
#[test]
fn a_slot_is_one_threads_at_a_time() {
    Model::new().unbounded().check("ask_one_then_another", || {
        let slot = Arc::new(Slot::new(0));
        assert!(ask(&slot, 1));
        let [first, second] = [1, 2].map(|number| handler(&slot, number));
        let heard = take(&slot);
        assert!(heard.is_none_or(|whose| whose == 1), "{heard:?}");
        if heard.is_none() {
            slot.withdraw();
        }
        let asked = ask(&slot, 2);
        let [first, second] = [first, second].map(|handler| handler.join().unwrap());
        assert!(heard.is_none() || first, "nobody has answered that");
        assert!(asked || first && !second, "the slot is free, or the second one is not asked");
        // The answer that is in the slot at the end.
        let late = if !asked { Some(1) } else { second.then_some(2) };
        assert_eq!(take(&slot), late);
        assert_eq!(take(&slot), None);
        slot.withdraw();
        assert!(ask(&slot, 3), "the slot stays out of use");
    });
}

/// Fails by an assertion when a thread answers although it was not asked, or its question was withdrawn.
#[test]
fn only_an_asked_thread_answers() {
    Model::new().unbounded().check("ask_nobody", || {
        let slot = Arc::new(Slot::new(0));
        let early = handler(&slot, 1);
        assert!(ask(&slot, 2));
        assert!(!early.join().unwrap());
        slot.withdraw();
        assert!(!handler(&slot, 2).join().unwrap());
        assert_eq!(take(&slot), None);
    });
}

#[test]
fn mutants() {
    let model = "a_slot_is_one_threads_at_a_time";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::AskRelaxed, model),
            (Mutant::AskLooksRelaxed, model),
            (Mutant::AnswerRelaxed, model),
            (Mutant::AnswerLooksRelaxed, model),
            (Mutant::WithdrawStores, model),
        ],
    );
}
