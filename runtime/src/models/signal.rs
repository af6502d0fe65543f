//! Signals on their way from the handler to the thread that serves receivers: a later wait delivers each signal that comes.

use super::caught;
use crate::model::{Model, Mutant, done};
use crate::os::signal::pending::Pending;
use loom::thread;
use std::sync::Arc;

/// Makes the thread that serves wait until it has been told of `all`.
fn serve(pending: &Pending, all: u64) {
    let mut came = 0;
    while came != all {
        came |= pending.wait();
    }
}

/// Two threads are interrupted by a signal each while the third serves. Fails by deadlock when the serving thread sleeps and a
/// signal has come that no wait has returned.
#[test]
fn a_signal_beside_another_is_delivered() {
    Model::new().unbounded().check("signal", || {
        let pending = Arc::new(Pending::new());
        let handlers = [1, 2].map(|signal| {
            let pending = Arc::clone(&pending);
            thread::spawn(move || pending.raise(signal))
        });
        serve(&pending, 3);
        done();
        handlers.into_iter().for_each(|handler| handler.join().unwrap());
    });
}

/// A signal comes while a listener stirs the thread that serves, and again later. Fails by deadlock when the alarm of the stir
/// takes the signal's alarm with it.
#[test]
fn a_signal_beside_a_stir_is_delivered() {
    Model::new().unbounded().check("signal_stir", || {
        let pending = Arc::new(Pending::new());
        let raises = Arc::clone(&pending);
        let handler = thread::spawn(move || {
            raises.raise(1);
            raises.raise(2);
        });
        pending.stir();
        serve(&pending, 3);
        handler.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SignalAfterAlarm, "a_signal_beside_a_stir_is_delivered"),
            (Mutant::SignalLookBeforeDoze, "a_signal_beside_a_stir_is_delivered"),
            (Mutant::SignalTakenInTwoSteps, "a_signal_beside_another_is_delivered"),
        ],
    );
}
