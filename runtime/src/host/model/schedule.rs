//! The events of the execution that loom runs now, for the report of a failed one. All threads of a model share one
//! OS thread, so the list is a thread-local of std's.

use super::ModelHost;
use crate::m::M;
use std::cell::RefCell;
use std::fmt::Write;

#[derive(Default)]
struct Log {
    execution: usize,
    events: String,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

/// Called between two models: forgets the events, and returns how many executions there were.
pub(super) fn reset() -> usize {
    LOG.take().execution
}

pub(super) fn begin() {
    LOG.with_borrow_mut(|log| {
        log.execution += 1;
        log.events.clear();
    });
}

pub(super) fn add(what: std::fmt::Arguments<'_>) {
    let m = M::<ModelHost>::current();
    LOG.with_borrow_mut(|log| {
        let _infallible = match m {
            Some(m) => writeln!(log.events, "  M{}: {what}", m.id),
            None => writeln!(log.events, "  {:?}: {what}", loom::thread::current().id()),
        };
    });
}

pub(super) fn print() {
    let log = LOG.take();
    if !log.events.is_empty() {
        eprintln!("the schedule of execution {}:\n{}", log.execution, log.events);
    }
}

/// Adds an event to the schedule that is printed when this execution fails.
pub fn note(what: &str) {
    add(format_args!("{what}"));
}
