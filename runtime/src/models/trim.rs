//! The trim of stacks: the monitor empties the stack caches of idle Ps, which Ms take, use and give up meanwhile.
//!
//! A stack cache is a cell of its P, so loom fails a model in which two threads reach for it and nothing orders them.

use super::caught;
use super::cover::Handle;
use crate::go;
use crate::model::{Model, Mutant, at_rest, done};
use std::sync::Arc;

/// A P is idle, taken, used for a goroutine that begins and ends, and idle again. Fails when the monitor reaches for a cache
/// that an M has, or for one that an M has given up while nothing orders the monitor after that.
#[test]
fn a_stack_cache_is_emptied_while_its_p_comes_and_goes() {
    Model::new().check("trim_vs_goroutine", || {
        let runtime = Arc::new(at_rest::<1>());
        let handle = Handle::of(&runtime);
        let monitor = loom::thread::spawn(move || handle.empty_idle_stack_caches());
        runtime.go(|| drop(go(|| ()))).join().unwrap();
        done();
        monitor.join().unwrap();
    });
}

/// As `a_stack_cache_is_emptied_while_its_p_comes_and_goes`, while one of two Ps retires, and comes back.
#[test]
fn a_stack_cache_is_emptied_while_its_p_retires() {
    Model::new().preemptions(1).check("trim_vs_shrink", || {
        let runtime = Arc::new(at_rest::<2>());
        let handle = Handle::of(&runtime);
        let monitor = loom::thread::spawn(move || handle.empty_idle_stack_caches());
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
        &[
            (Mutant::TrimEmptiesBusyCaches, "a_stack_cache_is_emptied_while_its_p_comes_and_goes"),
            (Mutant::TrimEmptiesBusyCaches, "a_stack_cache_is_emptied_while_its_p_retires"),
        ],
    );
}
