//! The trim of stacks: the monitor empties the hands of idle Ps, which others take, use and give up meanwhile.
//!
//! Hands are a cell of their P, so loom fails a model in which two reach for them and nothing orders that.

use super::caught;
use super::cover::Handle;
use crate::go;
use crate::model::{Model, Mutant, at_rest, done};
use std::sync::Arc;

/// A P is idle, taken, used for a goroutine that begins and ends, and idle again. Fails when the monitor reaches for hands
/// that an M has, or had and gave up unseen.
#[test]
fn the_hands_of_a_p_are_emptied_while_it_comes_and_goes() {
    Model::new().check("trim_vs_goroutine", || {
        let runtime = Arc::new(at_rest::<1>());
        let handle = Handle::of(&runtime);
        let monitor = loom::thread::spawn(move || handle.empty_idle_hands());
        runtime.go(|| drop(go(|| ()))).join().unwrap();
        done();
        monitor.join().unwrap();
    });
}

/// The same while one of two Ps retires, and comes back.
#[test]
fn the_hands_of_a_p_are_emptied_while_it_retires() {
    Model::new().preemptions(1).check("trim_vs_shrink", || {
        let runtime = Arc::new(at_rest::<2>());
        let handle = Handle::of(&runtime);
        let monitor = loom::thread::spawn(move || handle.empty_idle_hands());
        runtime.set_procs(1);
        runtime.go(|| crate::set_procs(2)).join().unwrap();
        done();
        monitor.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[(Mutant::TrimEmptiesBusyHands, "the_hands_of_a_p_are_emptied_while_it_comes_and_goes")],
    );
}
