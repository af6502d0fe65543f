//! Mailboxes: a goroutine that is mailed to a P is run, by that P's owner or another M, whichever M gives up or blocks
//! and whichever P retires meanwhile.

use super::caught;
use super::cover::{Handle, p_number};
use super::procs::{First, one_on, one_p};
use super::submit_vs_idle::yield_before_a_goroutine_that_stays;
use crate::model::{Flag, Model, Mutant, at_rest, done, pass, refuse_threads, runtime, together};
use crate::{blocking, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Mails a goroutine to one of two Ps, and keeps its own P until that goroutine has run, while the other M gives up.
fn mail_and_stay(to: impl Fn(u32) -> u32 + Send + 'static) {
    let runtime = runtime(2, 2);
    let handle = Handle::of(&runtime);
    let ran = Flag::default();
    let raises = ran.clone();
    let mailed = handle.make(move || raises.raise());
    let [spawner, _] = together(
        &runtime,
        [
            Box::new(move || {
                drop(handle.mail(to(p_number()), mailed));
                ran.wait_on_thread();
                done();
            }),
            Box::new(|| ()),
        ],
    );
    spawner.join().unwrap();
}

/// The mail is for the P whose M makes its last look. Fails by deadlock when that M does not count the mail, or is not woken
/// for it.
#[test]
fn a_goroutine_mailed_to_a_p_whose_m_gives_up_is_run() {
    Model::new().check("mail_vs_last_look", || mail_and_stay(|own| 1 - own));
}

/// The mail is for the P that is kept. Fails by a search without end when the other M sees the mail, and leaves it there.
#[test]
fn a_goroutine_mailed_to_a_p_that_is_kept_is_run_by_another_m() {
    Model::new().check("mail_vs_kept_p", || mail_and_stay(|own| own));
}

/// Two goroutines are mailed to an idle P, and need an M each; the M that has mailed them has nothing else to do. Fails when
/// the owner and the thief take the same goroutine, or when one of the two is left.
#[test]
fn what_an_owner_and_a_thief_find_in_a_mailbox_is_run_by_both() {
    Model::new().preemptions(1).check("mail_vs_thief", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let handle = Handle::of(&runtime);
        let flag = Flag::default();
        let waits = flag.clone();
        let first = handle.make(move || {
            waits.wait_on_thread();
            done();
        });
        let second = handle.make(move || flag.raise());
        let spawner = runtime.go(move || {
            let other = 1 - p_number();
            loom::explore();
            [handle.mail(other, first), handle.mail(other, second)]
        });
        spawner.join().unwrap().into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A goroutine is mailed to a P that then goes out of use, and the spawner's M makes a visit; the P's M gives up. Fails by
/// deadlock when the mail stays where no owner comes any more.
#[test]
fn mail_for_a_p_that_retires_is_run() {
    Model::new().preemptions_by_default(1).check("mail_vs_retire", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raises = ran.clone();
        let mailed = handle.make(move || raises.raise());
        let spawner = move || {
            drop(handle.mail(1, mailed));
            one_p();
            handle.have_a_visit_come();
            yield_now();
            ran.wait_on_thread();
            done();
        };
        let bodies: [crate::model::Body; 2] = [Box::new(|| ()), Box::new(spawner)];
        let both = one_on(1, &runtime, (First::Elsewhere, || ()), bodies);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Mails a goroutine to the other of two Ps, and stays ready until a visit has made that goroutine run. If a thread was
/// refused, the pause after that is over before each step.
fn mail_and_yield(handle: &Handle) {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    pass(Duration::from_secs(1));
    drop(handle.mail(1 - p_number(), handle.make(move || ran.store(true, Relaxed))));
    for _ in 0..3 {
        pass(Duration::from_secs(1));
        handle.have_a_visit_come();
        yield_now();
    }
    assert!(seen.load(Relaxed), "the mail stays where no M comes");
    done();
}

/// The P of an M that is blocked is idle, and at the limit of threads no M comes for it. A goroutine that is always ready mails
/// another one to that P. Fails by an assertion when the mail stays there.
#[test]
fn mail_for_a_p_that_has_no_m_is_run() {
    Model::new().check("mail_at_limit", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let assured = Flag::default();
        let raises = assured.clone();
        let blocks = move || blocking(|| assured.wait_on_thread());
        let mails = move || {
            while handle.count_ps()[1] == 0 {
                loom::thread::yield_now();
            }
            mail_and_yield(&handle);
            raises.raise();
        };
        let both = together(&runtime, [Box::new(blocks), Box::new(mails)]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// As `mail_for_a_p_that_has_no_m_is_run`, but the kernel refuses the thread.
#[test]
fn mail_for_a_p_whose_thread_is_refused_is_run() {
    Model::new().check("mail_vs_refused_thread", || {
        let runtime = runtime(2, 2);
        refuse_threads();
        let handle = Handle::of(&runtime);
        let mails = move || {
            loom::explore();
            mail_and_yield(&handle);
        };
        runtime.go(mails).join().unwrap();
    });
}

/// A goroutine whose hint names the P of an M that gives up becomes ready on the other P, whose goroutine keeps its P until the
/// first has run. Fails by deadlock when that M does not count the mailbox, or is not woken for it.
#[test]
fn a_goroutine_hinted_to_a_p_whose_m_gives_up_is_run() {
    Model::new().check("hint_vs_last_look", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raises = ran.clone();
        let hinted = handle.make(move || raises.raise());
        let [spawner, _] = together(
            &runtime,
            [
                Box::new(move || {
                    handle.hint(1 - p_number(), &hinted);
                    drop(handle.inject([hinted]));
                    ran.wait_on_thread();
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        spawner.join().unwrap();
    });
}

/// A goroutine whose hint names the other P yields; the goroutine that runs in its place keeps the M until the first has run
/// on. Fails by deadlock when the other M, which has looked at the mailboxes before the yield and at the ring after it, is not
/// woken.
#[test]
fn a_goroutine_that_yields_to_its_hint_is_run_there() {
    Model::new().check("hint_gosched", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        yield_before_a_goroutine_that_stays(&runtime, move |stays| {
            handle.hint_own(1 - p_number());
            // No M is woken: as if the other M had been woken for this goroutine, and had looked a moment too early.
            handle.queue_in_silence([handle.make(stays)]);
        });
    });
}

/// The end of the runtime finds a goroutine that has not begun, whose hint names a P. Fails when the goroutine stays in a
/// mailbox: then its closure is not dropped.
#[test]
fn a_hinted_goroutine_is_told_of_the_end() {
    Model::new().preemptions(1).check("hint_vs_end", || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let (begins, ends) = (Flag::default(), Flag::default());
        let _keeps = runtime.go({
            let (begins, ends) = (begins.clone(), ends.clone());
            move || {
                begins.raise();
                ends.wait_on_thread();
            }
        });
        begins.wait_on_thread();
        let kept = Arc::new(());
        let keeps = Arc::clone(&kept);
        let hinted = handle.make(move || drop(keeps));
        handle.hint(0, &hinted);
        let [hinted] = handle.inject([hinted]);
        let joins = loom::thread::spawn(move || {
            assert!(hinted.join().is_err_and(|error| error.is_shutdown()));
            ends.raise();
        });
        loom::explore();
        runtime.shutdown(std::time::Duration::ZERO);
        joins.join().unwrap();
        assert_eq!(Arc::strong_count(&kept), 1, "the closure is dropped");
    });
}

#[test]
fn mutants() {
    const GIVES_UP: &str = "a_goroutine_mailed_to_a_p_whose_m_gives_up_is_run";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SentWakesNobody, GIVES_UP),
            (Mutant::MailUncounted, GIVES_UP),
            (Mutant::MailNeverStolen, "a_goroutine_mailed_to_a_p_that_is_kept_is_run_by_another_m"),
            (Mutant::MailNeverStolen, "what_an_owner_and_a_thief_find_in_a_mailbox_is_run_by_both"),
            (Mutant::MailStaysAtTheLimit, "mail_for_a_p_that_has_no_m_is_run"),
            (Mutant::MailStaysWithoutAThread, "mail_for_a_p_whose_thread_is_refused_is_run"),
            (Mutant::ShrinkKeepsTheMail, "mail_for_a_p_that_retires_is_run"),
            (Mutant::InjectWakesNobody, "a_goroutine_hinted_to_a_p_whose_m_gives_up_is_run"),
            (Mutant::MailUncounted, "a_goroutine_hinted_to_a_p_whose_m_gives_up_is_run"),
            (Mutant::ClassYieldsInSilence, "a_goroutine_that_yields_to_its_hint_is_run_there"),
            (Mutant::HintsOutliveTheirPs, "a_hinted_goroutine_is_told_of_the_end"),
        ],
    );
}
