//! The class of a goroutine, which is set beside all other changes of the goroutine's life: no party undoes what another one
//! has written there.

use super::caught;
use super::join::told_by_the_end;
use crate::Priority;
use crate::model::{Model, Mutant, done, runtime, together_with_us};

/// Fails by deadlock when the setter undoes the end, so that the joiner never hears of it; by an assertion when the class is
/// set after the end was seen.
#[test]
fn a_class_that_is_set_beside_the_end_leaves_the_end() {
    Model::new().check("class_vs_end", || {
        let runtime = runtime(1, 1);
        let [ends] = together_with_us(&runtime, [Box::new(|| ())]);
        let had_ended = ends.is_finished();
        let was_set = ends.set_priority(Priority::High);
        assert!(!(had_ended && was_set), "a class was given to a goroutine that has ended");
        let has_ended = ends.is_finished();
        let was_set = ends.set_priority(Priority::Low);
        assert!(!(has_ended && was_set), "a class was given to a goroutine that has ended");
        ends.join().unwrap();
        done();
    });
}

/// As `a_class_that_is_set_beside_the_end_leaves_the_end`, but the handle is dropped at once, and another goroutine gets the G.
/// Fails by a causality violation, or when that other goroutine begins with the class.
#[test]
fn a_class_that_is_set_beside_the_end_is_not_the_next_goroutines() {
    Model::new().preemptions(2).check("class_vs_reuse", || {
        let runtime = runtime(1, 1);
        let [ends] = together_with_us(&runtime, [Box::new(|| ())]);
        let _maybe = ends.set_priority(Priority::Low);
        drop(ends);
        let next = runtime.go(|| {
            assert_eq!(crate::priority(), Priority::Normal);
            done();
        });
        next.join().unwrap();
    });
}

/// The end of the runtime leaves a goroutine behind while its class is set. Fails by deadlock when the setter undoes that end.
#[test]
fn a_class_that_is_set_beside_the_end_of_the_runtime_leaves_that_end() {
    Model::new().check("class_vs_left", || {
        told_by_the_end(|first| {
            let _maybe = first.set_priority(Priority::High);
        });
    });
}

#[test]
fn mutants() {
    const END: &str = "a_class_that_is_set_beside_the_end_leaves_the_end";
    caught::assert_caught(module_path!(), &[(Mutant::ClassByStore, END), (Mutant::ClassAfterTheEnd, END)]);
}
