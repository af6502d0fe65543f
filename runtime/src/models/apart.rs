//! A woken M that waits for its waker's CPU: the thread has all its CPUs again before the M runs a goroutine.

use super::caught;
use super::cover::{Handle, cpus, forbid_the_sent, give_cpus};
use crate::model::{Model, Mutant, done, runtime};

/// A goroutine blocks beside another, so that its call goes to the M that stands by on its note; each thread has CPUs 0 and 1.
/// The owner of the P, which runs on CPU 0, forbids the thread that CPU while the M comes. Fails by a thread that lacks the CPU
/// when it makes the call.
#[test]
fn an_m_that_has_come_has_all_its_cpus() {
    Model::new().preemptions(2).check("forbid_vs_come", || {
        let runtime = runtime(1, 3);
        let handle = Handle::of(&runtime);
        let blocks = runtime.go(move || {
            // Three Ms: one has the P, one is in the poller, and one on its note.
            give_cpus(&[0, 1]);
            drop(crate::go(|| ()));
            crate::blocking(|| give_cpus(&[0, 1]));
            drop(crate::go(|| ()));
            crate::blocking(|| {
                handle.await_poller();
                give_cpus(&[0, 1]);
            });
            handle.await_m_on_note();
            // The third one came too late for its call, and stands by.
            drop(crate::go(|| ()));
            crate::blocking(|| give_cpus(&[0, 1]));
            handle.await_m_on_note();
            loom::explore();
            drop(crate::go(forbid_the_sent));
            crate::blocking(|| assert_eq!(cpus(), "0-1"));
            done();
        });
        blocks.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ForbidsAnMThatCame, "an_m_that_has_come_has_all_its_cpus"),
            (Mutant::WokenStaysForbidden, "an_m_that_has_come_has_all_its_cpus"),
        ],
    );
}
