//! Ten thousand signals are sent to receivers that come and go, beside one that stays.

use super::{alone, handler, limit, raise, serves};
use common::random::Random;
use common::{PROCS, runtime, until, watched};
use gmp::chan::{self, Sender};
use gmp::context::{Context, with_signals};
use gmp::signal::{self, SIGHUP, SIGINT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH, Signal};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

/// Each of these is sent alone: the next of its kind is sent when it was received.
const ALONE: [Signal; 3] = [SIGUSR1, SIGTERM, SIGINT];
const EACH_ALONE: usize = 700;
/// These are sent as fast as possible, by threads and by other processes.
const CROWDED: [Signal; 2] = [SIGUSR2, SIGURG];
const EACH_CROWDED: usize = 1800;
const EACH_OF_A_PROCESS: usize = 400;
/// No receiver for this signal stays, and its default action does nothing.
const DROPPED: Signal = SIGWINCH;
/// The last signal.
const END: Signal = SIGHUP;

/// Makes the receiver that stays, and returns the function that counts how often it receives each signal. The function reports
/// each of `ALONE` when it is received.
fn hears(tell: BTreeMap<Signal, Sender<()>>) -> impl FnOnce() -> BTreeMap<Signal, usize> {
    let signals = signal::notify(&[&ALONE[..], &CROWDED, &[END]].concat()).unwrap();
    move || {
        let mut heard = BTreeMap::new();
        loop {
            let signal = signals.recv_deadline(limit()).unwrap();
            *heard.entry(signal).or_insert(0) += 1;
            match tell.get(&signal) {
                Some(tell) => tell.send(()).unwrap(),
                None if signal == END => return heard,
                None => {}
            }
        }
    }
}

/// Makes receivers, and contexts, of some of the signals; they live for a moment or until a signal comes. Returns the number of
/// rounds.
fn comes_and_goes(number: usize, over: &AtomicBool) -> usize {
    let (mut random, mut rounds) = (Random::new(number), 0);
    while !over.load(SeqCst) {
        let all = [&ALONE[..], &CROWDED, &[DROPPED]].concat();
        let some = Vec::from_iter(all.into_iter().filter(|_| random.below(2) == 0));
        if some.is_empty() {
            continue;
        }
        match random.below(4) {
            0 => drop(signal::notify(&some).unwrap()),
            1 => {
                let signals = signal::notify(&some).unwrap();
                let got = signals.recv_timeout(std::time::Duration::from_micros(random.below(500)));
                assert!(got.is_err() || some.contains(&got.unwrap()));
            }
            2 => {
                let signals = signal::notify(&some).unwrap();
                assert!(signals.try_iter().all(|signal| some.contains(&signal)));
            }
            _ => {
                let (context, cancel) = with_signals(&Context::background(), &some).unwrap();
                cancel.cancel();
                assert!(context.err().is_some());
            }
        }
        rounds += 1;
    }
    rounds
}

/// Fails when a signal that is sent alone is lost or received twice; when more signals of a kind are received than were sent;
/// when a signal behind a crowd is lost; when an action is not restored; or by a hang.
#[test]
fn none_that_stands_alone_is_lost_beside_receivers_that_come_and_go() {
    alone("none_that_stands_alone_is_lost_beside_receivers_that_come_and_go", || {
        for procs in PROCS {
            watched(procs, || {
                let rt = runtime(procs);
                let (tell, told): (BTreeMap<_, _>, Vec<_>) = ALONE
                    .into_iter()
                    .map(|kind| {
                        let (tell, told) = chan::unbounded();
                        ((kind, tell), (kind, told))
                    })
                    .unzip();
                let stays = rt.go(hears(tell));
                let over = Arc::new(AtomicBool::new(false));
                let come_and_go = [1, 2].map(|number| {
                    let (over, seen) = (Arc::clone(&over), Arc::clone(&over));
                    let thread = thread::spawn(move || comes_and_goes(number, &over));
                    (rt.go(move || comes_and_goes(number + 2, &seen)), thread)
                });
                let alone = told.into_iter().map(|(kind, told)| {
                    thread::spawn(move || {
                        for _ in 0..EACH_ALONE {
                            raise(kind);
                            assert_eq!(told.recv_deadline(limit()), Ok(()), "{kind}");
                        }
                        assert!(told.is_empty(), "{kind}");
                    })
                });
                let crowds = [CROWDED[0], CROWDED[1], DROPPED, CROWDED[0], CROWDED[1]]
                    .map(|kind| thread::spawn(move || (0..EACH_CROWDED).for_each(|_| raise(kind))));
                let mut processes = CROWDED.map(|kind| {
                    let (name, us) = (&kind.to_string()[3..], std::process::id());
                    let script = format!(
                        "i=0; while [ $i -lt {EACH_OF_A_PROCESS} ]; do kill -{name} {us}; i=$((i+1)); done"
                    );
                    Command::new("sh").args(["-c", &script]).spawn().unwrap()
                });
                alone.chain(crowds).collect::<Vec<_>>().into_iter().for_each(|sends| sends.join().unwrap());
                assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
                // One more signal of each kind, behind all others.
                let last = signal::notify(&CROWDED).unwrap();
                CROWDED.iter().for_each(|&kind| raise(kind));
                let mut lasts = CROWDED.map(|_| last.recv_deadline(limit()).unwrap());
                lasts.sort();
                let mut sent = CROWDED;
                sent.sort();
                assert_eq!(lasts, sent);
                over.store(true, SeqCst);
                for (goroutine, thread) in come_and_go {
                    assert!(goroutine.join().unwrap() > 0 && thread.join().unwrap() > 0);
                }
                raise(END);
                let heard = stays.join().unwrap();
                println!("at {procs}: {heard:?}");
                assert!(ALONE.iter().all(|kind| heard[kind] == EACH_ALONE), "{heard:?}");
                let most = 2 * EACH_CROWDED + EACH_OF_A_PROCESS + 1;
                assert!(CROWDED.iter().all(|kind| (1..=most).contains(&heard[kind])), "{heard:?}");
                drop(last);
                let all = [&ALONE[..], &CROWDED, &[DROPPED, END]].concat();
                assert!(all.into_iter().all(|kind| handler(kind) == libc::SIG_DFL));
                until(|| !serves());
            });
        }
    });
}
