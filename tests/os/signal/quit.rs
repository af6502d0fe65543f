//! SIGQUIT, which the first runtime catches to answer with a dump, beside `notify`, `ignore` and `reset`, in each order.

use super::{alone, handler, install_over, limit, raise, set};
use common::{child, until, watched};
use gmp::signal::{self, Receiver, SIGQUIT, SIGWINCH};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

/// The end of a process that goes through some steps, and then sends the signal to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// By the dump of the runtime, with Go's status.
    Dump,
    /// By the kernel's default action.
    Killed,
    /// Not by the signal: it is ignored, or a handler of the program has taken it.
    Lives,
}

#[derive(Clone, Copy)]
enum Step {
    Notify,
    /// The signal comes, and all receivers get it.
    Hears,
    Drop,
    Ignore,
    /// The signal comes, and nothing happens.
    Deaf,
    Reset,
    /// The first runtime starts.
    Start,
    /// The runtime ends.
    Stop,
    /// Another library's handler is put over this library's, and passes the signal on.
    Over,
    /// The program itself sets a handler, or ignores the signal.
    Takes,
    Refuses,
}
use Step::*;

/// A name, the steps of the process, the end, and the environment.
type Row = (&'static str, &'static [Step], End, &'static [(&'static str, &'static str)]);

const ROWS: [Row; 20] = [
    ("started", &[Start], End::Dump, &[]),
    ("after", &[Start, Notify, Hears, Drop], End::Dump, &[]),
    ("after, reset", &[Start, Notify, Hears, Reset], End::Dump, &[]),
    ("before, gone", &[Notify, Hears, Drop, Start], End::Dump, &[]),
    ("before", &[Notify, Start, Hears, Drop], End::Dump, &[]),
    ("before, reset", &[Notify, Start, Hears, Reset], End::Dump, &[]),
    ("two, one before", &[Notify, Start, Notify, Hears, Drop, Hears, Drop], End::Dump, &[]),
    ("ignored before", &[Ignore, Start, Deaf, Reset], End::Dump, &[]),
    ("ignored after", &[Start, Ignore, Deaf, Reset], End::Dump, &[]),
    ("ignored and heard", &[Ignore, Notify, Start, Hears, Drop, Deaf, Reset], End::Dump, &[]),
    ("heard and ignored", &[Notify, Ignore, Start, Deaf, Reset], End::Dump, &[]),
    ("still ignored", &[Ignore, Start], End::Lives, &[]),
    ("no runtime any more", &[Notify, Start, Hears, Stop, Hears, Drop], End::Killed, &[]),
    ("over, after", &[Start, Notify, Over, Hears, Drop], End::Dump, &[]),
    ("over, before", &[Notify, Over, Start, Hears, Drop], End::Dump, &[]),
    ("the program's handler", &[Takes, Notify, Start, Hears, Drop], End::Lives, &[]),
    ("the program's, over it", &[Notify, Start, Takes, Drop], End::Lives, &[]),
    ("the program ignores it", &[Refuses, Notify, Start, Hears, Drop], End::Lives, &[]),
    ("off, before", &[Notify, Start, Hears, Drop], End::Killed, &[("GMPDEBUG", "sigquit=off")]),
    ("off, after", &[Start, Notify, Hears, Drop], End::Killed, &[("GMPDEBUG", "sigquit=off")]),
];

extern "C" fn takes(_signal: libc::c_int) {}

fn go_through(steps: &[Step], end: End) {
    let (mut runtime, mut receivers): (_, Vec<Receiver>) = (None, Vec::new());
    for step in steps {
        match step {
            Notify => receivers.push(signal::notify(&[SIGQUIT]).unwrap()),
            Hears => {
                raise(SIGQUIT);
                receivers.iter().for_each(|it| assert_eq!(it.recv_deadline(limit()), Ok(SIGQUIT)));
            }
            Drop => drop(receivers.pop()),
            Ignore => signal::ignore(&[SIGQUIT]).unwrap(),
            Deaf => raise(SIGQUIT),
            Reset => signal::reset(&[SIGQUIT]).unwrap(),
            Start => runtime = Some(common::runtime(2)),
            Stop => drop(runtime.take()),
            Over => install_over(SIGQUIT),
            Takes => drop(set(libc::SIGQUIT, takes as *const () as usize)),
            Refuses => drop(set(libc::SIGQUIT, libc::SIG_IGN)),
        }
    }
    raise(SIGQUIT);
    if end != End::Lives {
        // Another thread dumps, and ends the process meanwhile.
        watched(0, || {
            loop {
                thread::park();
            }
        });
    }
    // When the next signal has come, the first one was handled, and has done nothing.
    let other = signal::notify(&[SIGWINCH]).unwrap();
    raise(SIGWINCH);
    assert_eq!(other.recv_deadline(limit()), Ok(SIGWINCH));
}

/// Fails when the dump is off for good because a receiver, or `ignore`, was there before the first runtime; when the dump comes
/// although a receiver has the signal; or when the dump replaces the action that the program has set.
#[test]
fn the_dump_is_the_default_action_in_each_order() {
    const NAME: &str = "the_dump_is_the_default_action_in_each_order";
    if child::is_child() {
        // No core file.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call reads one rlimit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
        let name = std::env::var("ROW").unwrap();
        let row = ROWS.iter().find(|row| row.0 == name).unwrap();
        return go_through(row.1, row.2);
    }
    let mut wrong = Vec::new();
    for (name, _, expected, env) in ROWS {
        let output = child::run(NAME, &[&[("ROW", name)], env].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let end = match (output.status.code(), output.status.signal()) {
            (Some(2), None) if said.contains("SIGQUIT: quit\n\n") => Some(End::Dump),
            (None, Some(libc::SIGQUIT)) => Some(End::Killed),
            (Some(0), None) => Some(End::Lives),
            _ => None,
        };
        if end != Some(expected) {
            wrong.push(format!("{name}: {end:?} for {expected:?}: {}, {said}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The first runtime starts while receivers come and go. Fails when a receiver gets no signals, or when the dump is off.
#[test]
fn the_first_runtime_starts_while_receivers_come_and_go() {
    const NAME: &str = "the_first_runtime_starts_while_receivers_come_and_go";
    if !child::is_child() {
        (0..20).for_each(|_| drop(child::passes(NAME, &[])));
        return;
    }
    alone(NAME, || {
        let over = AtomicBool::new(false);
        let runtime = thread::scope(|s| {
            let come_and_go = s.spawn(|| {
                let mut rounds = 0;
                while !over.load(SeqCst) || rounds < 10 {
                    let signals = signal::notify(&[SIGQUIT]).unwrap();
                    raise(SIGQUIT);
                    assert_eq!(signals.recv_deadline(limit()), Ok(SIGQUIT));
                    rounds += 1;
                }
            });
            until(|| handler(SIGQUIT) != libc::SIG_DFL);
            let runtime = common::runtime(2);
            over.store(true, SeqCst);
            come_and_go.join().unwrap();
            runtime
        });
        let dumps = handler(SIGQUIT);
        assert_ne!(dumps, libc::SIG_DFL);
        let signals = signal::notify(&[SIGQUIT]).unwrap();
        assert_ne!(handler(SIGQUIT), dumps);
        drop((signals, runtime));
        assert_eq!(handler(SIGQUIT), dumps);
    });
}
