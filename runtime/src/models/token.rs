//! `park` and `unpark`: a token that is given before the wait, or beside its beginning or end, is taken once.

use super::caught;
use crate::context::Context;
use crate::host::{Active, Clock};
use crate::model::{Flag, Model, Mutant, at_rest, done};
use crate::sync::Token;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than any wait of a model.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// A goroutine gives a plain thread its token. Fails by deadlock when a token that was given before the wait is lost; by the
/// assertion when the owner does not see what the giver wrote before.
#[test]
fn a_token_given_while_the_owner_begins_to_wait_is_not_lost() {
    Model::new().check("token", || {
        let runtime = at_rest::<1>();
        let (set, main) = (Arc::new(AtomicBool::new(false)), crate::unparker());
        let sets = Arc::clone(&set);
        let other = runtime.go(move || {
            sets.store(true, Relaxed);
            main.unpark();
        });
        // This wait takes one token, which no other goroutine gives.
        crate::park();
        assert!(set.load(Relaxed), "the token came without what was written before it");
        other.join().unwrap();
        done();
    });
}

/// A goroutine waits with a limit for the token that a thread gives. Fails by deadlock when the token is lost with a wait that
/// did not take it, or by the assertion when the token is there once more after a wait took it.
#[test]
fn a_wait_that_times_out_leaves_the_token() {
    Model::new().check("token_limit", || {
        let runtime = at_rest::<1>();
        let token = Arc::new(Token::new());
        let (gives, takes) = (Arc::clone(&token), Arc::clone(&token));
        let owner = runtime.go(move || {
            let giver = thread::spawn(move || gives.unpark());
            let limit = Active::after(AT_ONCE);
            if !Arc::clone(&takes).park(Some(limit)) {
                takes.park(None);
            }
            giver
        });
        owner.join().unwrap().join().unwrap();
        assert!(!token.park(Some(Active::now())), "the token is there twice");
        done();
    });
}

/// A goroutine is interrupted as its token comes. Fails by deadlock when the token is lost with the interrupt.
#[test]
fn a_wait_that_is_interrupted_leaves_the_token() {
    Model::new().check("token_interrupt", || {
        let runtime = at_rest::<1>();
        let (context, cancel) = Context::background().with_cancel();
        let main = crate::unparker();
        let owner = runtime.go(move || {
            let own = crate::unparker();
            let giver = thread::spawn(move || own.unpark());
            if context.run(crate::park).is_err() {
                crate::park();
            }
            main.unpark();
            giver
        });
        cancel.cancel();
        crate::park();
        owner.join().unwrap().join().unwrap();
        done();
    });
}

/// A goroutine gives a token, and the next one when the first was taken. Fails by the assertion when one token ends both waits.
#[test]
fn a_token_ends_one_wait() {
    Model::new().check("token_once", || {
        let runtime = at_rest::<1>();
        let (taken, set, main) = (Flag::default(), Arc::new(AtomicBool::new(false)), crate::unparker());
        let (takes, sets) = (taken.clone(), Arc::clone(&set));
        let other = runtime.go(move || {
            main.unpark();
            takes.wait_on_thread();
            sets.store(true, Relaxed);
            main.unpark();
        });
        crate::park();
        taken.raise();
        crate::park();
        assert!(set.load(Relaxed), "the first token came twice");
        other.join().unwrap();
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TokenNotKept, "a_token_given_while_the_owner_begins_to_wait_is_not_lost"),
            (Mutant::TokenGoesWithTheWait, "a_wait_that_times_out_leaves_the_token"),
            (Mutant::TokenGoesWithTheWait, "a_wait_that_is_interrupted_leaves_the_token"),
            (Mutant::TokenGivenTwice, "a_token_ends_one_wait"),
        ],
    );
}
