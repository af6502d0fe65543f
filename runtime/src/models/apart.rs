//! A woken M that waits for its waker's CPU: the thread has all its CPUs again before the M runs a goroutine.

use super::caught;
use super::cover::{Handle, cpus, forbid_the_sent, give_cpus};
use crate::Runtime;
use crate::model::{Model, Mutant, done, have_cpus, runtime};
use crate::runtime::cpu_sets::CPUS;

/// A goroutine blocks beside another, so that its call goes to the M that stands by on its note; each thread has asked for
/// these CPUs. The owner of the P, which runs on CPU 0, forbids the thread that CPU while the M comes. `then` is the call.
fn forbid_beside_a_call(runtime: &Runtime, asked: Vec<usize>, then: fn()) {
    let handle = Handle::of(runtime);
    let blocks = runtime.go(move || {
        // Three Ms: one has the P, one is in the poller, and one on its note.
        give_cpus(&asked);
        drop(crate::go(|| ()));
        crate::blocking(|| give_cpus(&asked));
        drop(crate::go(|| ()));
        crate::blocking(|| {
            handle.await_poller();
            give_cpus(&asked);
        });
        handle.await_m_on_note();
        // The third one came too late for its call, and stands by.
        drop(crate::go(|| ()));
        crate::blocking(|| give_cpus(&asked));
        handle.await_m_on_note();
        loom::explore();
        drop(crate::go(forbid_the_sent));
        crate::blocking(then);
        done();
    });
    blocks.join().unwrap();
}

/// The threads have fewer CPUs than there are. Fails when the thread lacks one of them as it makes the call, or has more.
#[test]
fn an_m_that_has_come_has_all_its_cpus() {
    Model::new().preemptions(2).check("forbid_vs_come", || {
        forbid_beside_a_call(&runtime(1, 3), vec![0, 1], || assert_eq!(cpus(), "0-1"));
    });
}

/// The threads have all CPUs that there are, and another one comes. Fails when the thread lacks one.
#[test]
fn an_m_that_has_come_has_cpus_that_come_later() {
    Model::new().preemptions(2).check("forbid_vs_plug", || {
        have_cpus(&[0, 1]);
        forbid_beside_a_call(&runtime(1, 3), (0..CPUS).collect(), || {
            assert_eq!(cpus(), "0-1");
            have_cpus(&[0, 1, 2]);
            assert_eq!(cpus(), "0-2");
        });
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ForbidsAnMThatCame, "an_m_that_has_come_has_all_its_cpus"),
            (Mutant::WokenStaysForbidden, "an_m_that_has_come_has_all_its_cpus"),
            (Mutant::WokenLacksWhatComes, "an_m_that_has_come_has_cpus_that_come_later"),
        ],
    );
}
