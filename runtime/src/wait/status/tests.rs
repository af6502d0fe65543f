//! The transitions of a status word, one by one.

use super::*;

fn running() -> StatusWord {
    let word = StatusWord::new(Status::Idle);
    word.spawn();
    assert_eq!(word.run(), Run::Go);
    word
}

fn waiting() -> (StatusWord, WaitNumber) {
    let word = running();
    let number = word.begin_wait();
    word.park(number);
    (word, number)
}

/// Fails if two claims of one wait both win, or a claim under an old number wins.
#[test]
fn a_wait_is_claimed_once_and_only_under_its_own_number() {
    let (word, first) = waiting();
    assert!(word.claim(first));
    assert!(!word.claim(first));
    assert_eq!(word.ready(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(first), Why::Readied);
    let second = word.begin_wait();
    word.park(second);
    assert!(!word.claim(first));
    assert!(word.claim(second));
}

#[test]
fn a_commit_that_refuses_resumes_the_owner() {
    let (word, number) = waiting();
    assert_eq!(word.cancel_park(number), CancelPark::Resume);
    assert_eq!(word.why(number), Why::Refused);
    word.close_wait(number);
    assert!(!word.claim(number), "the wait is over");
    assert_ne!(word.begin_wait(), number);
}

/// Fails if a G that is held when its commit is refused is lost.
#[test]
fn a_refused_commit_that_meets_a_hold_leaves_the_owner_to_the_holder() {
    let (word, number) = waiting();
    assert_eq!(word.hold(), Some(Status::Waiting));
    assert_eq!(word.cancel_park(number), CancelPark::Gone);
    assert_eq!(word.unhold(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Refused);
}

/// Fails if a held G is queued twice or never.
#[test]
fn the_end_of_a_hold_queues_a_g_that_was_readied_meanwhile() {
    let (word, number) = waiting();
    assert_eq!(word.hold(), Some(Status::Waiting));
    assert!(word.claim(number));
    assert_eq!(word.ready(), Then::Leave);
    assert_eq!(word.load(Acquire).status(), Status::Waiting);
    assert_eq!(word.unhold(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Readied);
}

#[test]
fn a_held_runnable_g_is_left_by_the_m_that_takes_it() {
    let word = StatusWord::new(Status::Idle);
    word.spawn();
    assert_eq!(word.hold(), Some(Status::Runnable));
    assert_eq!(word.run(), Run::Held);
    assert_eq!(word.unhold(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.hold(), None, "a running G is not held");
}

#[test]
fn a_hold_that_nothing_met_leaves_no_trace() {
    let (word, number) = waiting();
    assert_eq!(word.hold(), Some(Status::Waiting));
    assert_eq!(word.unhold(), Then::Leave);
    assert!(word.claim(number));
    assert_eq!(word.ready(), Then::Queue);
}

/// Fails if a nudge ends a wait, or is lost on an owner that is about to sleep on.
#[test]
fn a_nudge_has_the_owner_look_and_leaves_its_wait_open() {
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert_eq!(word.nudge(number), Then::Leave, "it is queued already");
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Nudged);
    assert_eq!(word.nudge(number), Then::Leave);
    assert_eq!(word.park_again(number), Again::Awake);
    assert_eq!(word.why(number), Why::Nudged);
    assert_eq!(word.park_again(number), Again::Asleep);
    assert!(word.claim(number), "the wait was open all the time");
    assert_eq!(word.nudge(number), Then::Leave, "it is claimed");
    assert_eq!(word.ready(), Then::Queue);
}

/// Fails if a ready is lost because the owner is awake and looks.
#[test]
fn a_ready_while_the_owner_looks_keeps_it_awake() {
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.claim(number));
    assert_eq!(word.ready(), Then::Leave);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.park_again(number), Again::Awake);
    assert_eq!(word.why(number), Why::Readied);
}

/// Fails if the owner claims what a counterpart has claimed, or a counterpart claims after the owner.
#[test]
fn an_owner_that_looks_may_end_its_wait_itself() {
    let (word, number) = waiting();
    assert_eq!(word.make_known(number, true), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Nudged);
    assert!(word.claim(number));
    word.close_wait(number);
    assert!(!word.claim(number));
    assert_eq!(word.nudge(number), Then::Leave);
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.claim(number), "a counterpart");
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Nudged);
    assert!(!word.claim(number), "the owner comes second");
    assert_eq!(word.park_again(number), Again::Asleep);
    assert_eq!(word.ready(), Then::Queue);
}

/// Fails if a nudge that comes while the commit hook runs wakes the owner too early, or never.
#[test]
fn a_nudge_during_the_commit_hook_waits_for_its_end() {
    let (word, number) = waiting();
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.make_known(number, false), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Nudged);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.park_again(number), Again::Awake);
    let (word, number) = waiting();
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.cancel_park(number), CancelPark::Resume);
    assert_eq!(word.why(number), Why::Refused);
    assert_eq!(word.nudge_any(), Then::Leave, "it goes on anyway");
}

/// Fails if a nudge is lost on an owner that was woken by another nudge while the commit hook still runs.
#[test]
fn a_nudge_finds_an_owner_that_looks_before_its_hook_is_over() {
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Nudged);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.park_again(number), Again::Awake);
    assert_eq!(word.why(number), Why::Nudged);
    assert_eq!(word.park_again(number), Again::Asleep);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.make_known(number, false), Then::Queue);
}

/// Fails if a nudge reaches an owner that begins to wait and still has to look, or an owner whose wait is over.
#[test]
fn a_nudge_leaves_a_word_alone_that_its_owner_may_store() {
    let word = running();
    assert_eq!(word.nudge_any(), Then::Leave);
    let number = word.begin_wait();
    let before = word.load(Acquire);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.load(Acquire), before);
    word.park(number);
    assert!(word.claim(number));
    let before = word.load(Acquire);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.load(Acquire), before);
}

/// Fails if an owner never sleeps after the hook refused, when the timer has claimed the wait and not yet readied the owner.
#[test]
fn a_refused_owner_sleeps_until_the_faster_waker_readies_it() {
    let (word, number) = waiting();
    assert_eq!(word.cancel_park(number), CancelPark::Resume);
    assert_eq!(word.why(number), Why::Refused);
    assert!(word.claim(number), "the timer");
    assert_eq!(word.park_again(number), Again::Asleep);
    assert_eq!(word.ready(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    assert_eq!(word.why(number), Why::Readied);
}

/// Fails if the next goroutine in a recycled G can be claimed through a record of the last one.
#[test]
fn a_recycled_word_does_not_answer_to_old_numbers() {
    let (word, old) = waiting();
    assert!(word.claim(old));
    assert_eq!(word.ready(), Then::Queue);
    assert_eq!(word.run(), Run::Go);
    word.finish();
    word.spawn();
    assert_eq!(word.run(), Run::Go);
    assert!(!word.claim(old));
    let fresh = word.begin_wait();
    word.park(fresh);
    assert!(!word.claim(old));
    assert!(word.claim(fresh));
}

/// Fails if the end of a runtime leaves the wait of a queued goroutine open, or leaves the goroutine to a waker although none
/// has claimed the wait, or the one that did has readied the goroutine.
#[test]
fn the_end_seizes_a_queued_goroutine() {
    let word = StatusWord::new(Status::Idle);
    word.spawn();
    assert!(word.seize_queued(), "it never ran");
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.seize_queued());
    assert!(!word.claim(number));
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.claim(number));
    assert_eq!(word.ready(), Then::Leave);
    assert!(word.seize_queued(), "the waker is through");
    let (word, _) = waiting();
    let Doing::Sleeps(found) = word.doing() else { panic!("it is parked") };
    assert_eq!(word.claim_for_end(&found), Then::Queue);
    assert!(word.seize_queued(), "the ender readies no goroutine");
    let (word, number) = waiting();
    assert_eq!(word.hold(), Some(Status::Waiting));
    assert_eq!(word.nudge(number), Then::Leave);
    assert!(word.seize());
    assert_eq!(word.unhold(), Then::Queue);
    assert!(!word.seize_queued(), "seized while a dump held it");
}

/// Fails if the end seizes a queued goroutine beside a waker that has claimed its wait, or if that waker does not queue it
/// again.
#[test]
fn the_end_leaves_a_queued_goroutine_to_the_waker_that_has_claimed_it() {
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.claim(number));
    assert!(!word.seize_queued());
    assert!(!word.seize(), "it is claimed");
    assert_eq!(word.nudge(number), Then::Leave);
    assert_eq!(word.nudge_any(), Then::Leave);
    assert_eq!(word.ready(), Then::Queue);
    assert!(word.seize_queued());
}

/// As `the_end_leaves_a_queued_goroutine_to_the_waker_that_has_claimed_it`, while a dump holds the goroutine.
#[test]
fn a_held_goroutine_that_the_end_leaves_to_its_waker_is_queued_by_the_holder() {
    let (word, number) = waiting();
    assert_eq!(word.nudge(number), Then::Queue);
    assert!(word.claim(number));
    assert_eq!(word.hold(), Some(Status::Runnable));
    assert!(!word.seize_queued());
    assert_eq!(word.ready(), Then::Leave);
    assert_eq!(word.unhold(), Then::Queue);
    assert!(word.seize_queued());
}
