//! A woken M that waits for its waker's CPU: the thread has all its CPUs again before the M runs a goroutine.

use super::caught;
use super::cover::{Handle, cpus, forbid_the_sent, give_cpus};
use crate::Runtime;
use crate::model::{Model, Mutant, done, have_cpus, runtime};
use crate::runtime::cpu_sets::CPUS;

/// A goroutine blocks beside another one, so that the M that stands by on its note makes its call, which is `then`. Each thread
/// has asked for the CPUs `asked`. The owner of the P, which runs on CPU 0, forbids this CPU to that M's thread while the M
/// comes.
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
        // The third M came too late for its call, and stands by.
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

/// The threads have fewer CPUs than there are. Fails when the thread that makes the call lacks one of its CPUs, or has another
/// one.
#[test]
fn an_m_that_has_come_has_all_its_cpus() {
    Model::new().preemptions(2).check("forbid_vs_come", || {
        forbid_beside_a_call(&runtime(1, 3), vec![0, 1], || assert_eq!(cpus(), "0-1"));
    });
}

/// The threads have all CPUs that there are, and another CPU comes. Fails when the thread that makes the call lacks a CPU.
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
