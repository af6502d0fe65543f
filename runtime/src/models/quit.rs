//! SIGQUIT against runtimes that begin and end: no question is lost, and no handler wakes a monitor that is gone.

use super::caught;
use super::cover::Quit;
use crate::model::{Model, Mutant};
use std::sync::Arc;

/// The oldest runtime ends while the signal comes, and another one takes its place. Fails by a causality violation when the
/// handler wakes a monitor that is gone, or is not whole, by an assertion when the other monitor is not woken.
#[test]
fn a_question_reaches_the_monitor_that_stays() {
    Model::new().unbounded().check("quit_vs_end", || {
        let quit = Arc::new(Quit::new());
        quit.set(0);
        let handler = loom::thread::spawn({
            let quit = Arc::clone(&quit);
            move || quit.ask()
        });
        quit.begins(1);
        quit.set(1);
        quit.gone(0);
        assert!(handler.join().unwrap(), "somebody was there all the time");
        assert!(quit.is_woken(1), "who stays does not know of the question");
        assert!(!quit.ask(), "the second one before the answer is heard");
    });
}

/// Two monitors look while the signal comes once more. Fails by the sum when a question has two answers or none; and by a
/// causality violation when nothing orders an answer after the one before.
#[test]
fn each_question_has_one_answer() {
    Model::new().unbounded().check("quit_vs_two_monitors", || {
        let quit = Arc::new(Quit::new());
        quit.set(0);
        assert!(quit.ask());
        let other = loom::thread::spawn({
            let quit = Arc::clone(&quit);
            move || {
                let heard = quit.ask();
                (u32::from(heard), quit.answer())
            }
        });
        let answers = quit.answer();
        let (heard, others) = other.join().unwrap();
        assert_eq!(answers + others, 1 + heard);
    });
}

#[test]
fn mutants() {
    let model = "a_question_reaches_the_monitor_that_stays";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::QuitAskNoFence, model),
            (Mutant::QuitSetNoFence, model),
            (Mutant::QuitLeaveRelaxed, model),
            (Mutant::QuitAskRelaxed, model),
            (Mutant::QuitSetRelaxed, model),
            (Mutant::QuitWaitsRelaxed, model),
            (Mutant::QuitSetForgets, model),
            (Mutant::QuitTakenByBoth, "each_question_has_one_answer"),
            (Mutant::QuitTakeRelaxed, "each_question_has_one_answer"),
            (Mutant::QuitEndRelaxed, "each_question_has_one_answer"),
        ],
    );
}
