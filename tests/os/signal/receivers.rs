//! The signals that receivers get.

use super::{LIMIT, alone, limit, raise, serves};
use common::crew::everyone;
use common::{child, until};
use gmp::chan::{self, RecvTimeoutError, TryRecvError};
use gmp::signal::{self, SIGCHLD, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signal};
use gmp::{select, time};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::thread;
use std::time::{Duration, Instant};

/// Fails when a receiver misses its signal, or gets another receiver's.
#[test]
fn each_receiver_hears_what_it_asked_for() {
    alone("each_receiver_hears_what_it_asked_for", || {
        everyone(|crew| {
            let all = signal::notify(&[SIGUSR1, SIGUSR2, SIGTERM]).unwrap();
            let one = signal::notify(&[SIGUSR2, SIGUSR2]).unwrap();
            let waits = [
                crew.go(move || (all.recv_deadline(limit()), all)),
                crew.go(move || (one.recv_deadline(limit()), one)),
            ];
            waits.iter().for_each(|wait| wait.until_it_waits());
            raise(SIGUSR2);
            let [all, one] = waits.map(|wait| wait.join());
            assert_eq!((all.0, one.0), (Ok(SIGUSR2), Ok(SIGUSR2)));
            let (all, one) = (all.1, one.1);
            raise(SIGTERM);
            crew.run(move || {
                assert_eq!(all.recv_timeout(LIMIT), Ok(SIGTERM));
                assert_eq!(all.try_recv(), Err(TryRecvError::Empty));
                assert_eq!(one.try_recv(), Err(TryRecvError::Empty));
                assert_eq!(one.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
            });
        });
    });
}

/// Fails when a receiver keeps a signal twice, or keeps none.
#[test]
fn signals_of_a_kind_are_one_while_they_wait() {
    alone("signals_of_a_kind_are_one_while_they_wait", || {
        everyone(|crew| {
            crew.run(|| {
                let signals = signal::notify(&[SIGUSR1, SIGUSR2]).unwrap();
                let others = signal::notify(&[SIGUSR1, SIGUSR2]).unwrap();
                for _ in 0..5 {
                    raise(SIGUSR1);
                    assert_eq!(others.recv_deadline(limit()), Ok(SIGUSR1));
                }
                raise(SIGUSR2);
                assert_eq!(others.recv_deadline(limit()), Ok(SIGUSR2));
                let both = [signals.recv_deadline(limit()).unwrap(), signals.recv_deadline(limit()).unwrap()];
                assert_eq!(both, [SIGUSR1, SIGUSR2]);
                assert_eq!(signals.try_iter().count(), 0);
            });
        });
    });
}

#[test]
fn a_receiver_is_an_arm_of_a_select_and_an_iterator() {
    alone("a_receiver_is_an_arm_of_a_select_and_an_iterator", || {
        everyone(|crew| {
            crew.run(|| {
                let signals = signal::notify(&[SIGUSR1]).unwrap();
                raise(SIGUSR1);
                let got = select! {
                    recv(signals.receiver()) -> signal => signal,
                    recv(chan::after(LIMIT)) -> _ => panic!("too late"),
                };
                assert_eq!(got, Ok(SIGUSR1));
                raise(SIGUSR1);
                assert_eq!((&signals).into_iter().next(), Some(SIGUSR1));
                let clone = signals.receiver().clone();
                drop(signals);
                assert_eq!(clone.recv_deadline(limit()), Err(RecvTimeoutError::Disconnected));
            });
        });
    });
}

/// Fails when a call is not refused, or when it has done a part of its work.
#[test]
fn what_is_not_for_programs_is_refused() {
    alone("what_is_not_for_programs_is_refused", || {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        let kept_by_the_c_library = 32;
        for number in [9, libc::SIGSTOP, 0, -1, 65, 1000, i32::MAX, i32::MIN, kept_by_the_c_library]
            .into_iter()
            .chain(faults)
        {
            let list = [SIGUSR1, Signal::from(number)];
            let refused = [signal::notify(&list).map(drop), signal::ignore(&list), signal::reset(&list)];
            for refused in refused {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{number}: {refused}");
            }
            assert_eq!(super::handler(SIGUSR1), libc::SIG_DFL, "{number}");
        }
        assert_eq!(signal::notify(&[]).unwrap_err().to_string(), "notify: no signal is named");
        let text = |list: &[Signal]| signal::ignore(list).unwrap_err().to_string();
        assert_eq!(text(&[SIGKILL]), "ignore: SIGKILL can't be caught or ignored");
        assert_eq!(text(&[99.into()]), "ignore: there is no signal 99");
        assert_eq!(text(&[11.into()]), "ignore: SIGSEGV reports a fault of the program itself");
        signal::ignore(&[]).unwrap();
        signal::reset(&[]).unwrap();
        assert!(!serves());
    });
}

#[test]
fn every_other_signal_can_be_heard() {
    alone("every_other_signal_can_be_heard", || {
        let heard = |&number: &i32| signal::notify(&[number.into()]).is_ok();
        let numbers = Vec::from_iter((1..=64).filter(heard));
        let refused = [4, 7, 8, 9, 11, 19, 32, 33];
        assert_eq!(numbers, Vec::from_iter((1..=64).filter(|number| !refused.contains(number))));
        for number in numbers {
            let signals = signal::notify(&[number.into()]).unwrap();
            raise(number.into());
            assert_eq!(signals.recv_deadline(limit()), Ok(number.into()));
        }
        assert!(
            Signal::from(libc::SIGRTMIN() + 2).to_string() == "SIGRTMIN+2"
                && SIGCHLD.to_string() == "SIGCHLD"
        );
    });
}

/// Fails when there is a thread for each receiver, when the thread stays, or when it is not started again.
#[test]
fn one_thread_serves_all_receivers_and_goes_with_the_last() {
    alone("one_thread_serves_all_receivers_and_goes_with_the_last", || {
        let many = || super::threads().iter().filter(|name| name.trim() == "gmp-signals").count();
        for _ in 0..3 {
            let all = [(); 20].map(|()| signal::notify(&[SIGUSR1]).unwrap());
            until(|| many() == 1);
            raise(SIGUSR1);
            assert!(all.iter().all(|signals| signals.recv_deadline(limit()) == Ok(SIGUSR1)));
            assert_eq!(many(), 1);
            drop(all);
            until(|| many() == 0);
        }
    });
}

/// Fails when a receiver polls for signals.
#[test]
fn an_idle_receiver_takes_no_cpu() {
    alone("an_idle_receiver_takes_no_cpu", || {
        let rt = common::runtime(2);
        let signals = signal::notify(&[SIGUSR1]).unwrap();
        let waits = rt.go(move || signals.recv());
        until(serves);
        let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let server = tasks
            .into_iter()
            .find(|task| fs::read_to_string(task.join("comm")).unwrap().trim() == "gmp-signals");
        let status = server.unwrap().join("status");
        let switches = || {
            let text = fs::read_to_string(&status).unwrap();
            text.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>()
        };
        let asleep = || fs::read_to_string(&status).unwrap().contains("State:\tS");
        until(asleep);
        let before = switches();
        time::sleep(Duration::from_secs(1));
        assert_eq!(switches(), before);
        raise(SIGUSR1);
        assert_eq!(waits.join().unwrap(), Ok(SIGUSR1));
    });
}

/// Returns `true` if each thread of this process blocks these signals.
fn all_threads_block(signals: &[Signal]) -> bool {
    let bits = signals.iter().fold(0, |bits, signal| bits | 1_u64 << (signal.as_raw() - 1));
    fs::read_dir("/proc/self/task").unwrap().all(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & bits == bits
    })
}

/// A launcher has left the signals blocked, so all threads of the process block them, except the serving thread. Fails when a
/// signal stays pending.
#[test]
fn a_signal_that_all_threads_block_is_heard() {
    const NAME: &str = "a_signal_that_all_threads_block_is_heard";
    const BOTH: [Signal; 2] = [SIGUSR1, SIGWINCH];
    if !child::is_child() {
        let mut command = child::command(NAME);
        let block = || {
            // SAFETY: the calls fill the set, and the signals exist.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                for signal in BOTH {
                    libc::sigaddset(&raw mut set, signal.as_raw());
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: `block` may be called between fork and exec.
        unsafe { command.pre_exec(block) };
        child::has_passed(NAME, command.output().unwrap());
        return;
    }
    assert!(all_threads_block(&BOTH));
    let both = BOTH.map(|signal| {
        // The thread that serves the first receiver has blocked the second signal until now.
        let signals = signal::notify(&[signal]).unwrap();
        // The signal is sent to the process, and not to this thread, with which it would stay pending.
        raise(signal);
        assert_eq!(signals.recv_deadline(limit()), Ok(signal));
        signals
    });
    drop(both);
}

/// Fails when a receiver hangs, or has lost the signals that came before.
#[test]
fn a_receiver_without_signals_left_is_closed() {
    alone("a_receiver_without_signals_left_is_closed", || {
        everyone(|crew| {
            for take in [signal::reset, signal::ignore] {
                let signals = signal::notify(&[SIGUSR1, SIGINT]).unwrap();
                let other = signal::notify(&[SIGUSR1]).unwrap();
                raise(SIGUSR1);
                assert_eq!(other.recv_deadline(limit()), Ok(SIGUSR1));
                take(&[SIGUSR1]).unwrap();
                assert_eq!(other.recv(), Err(chan::RecvError));
                raise(SIGINT);
                until(|| signals.receiver().len() == 2);
                take(&[SIGINT]).unwrap();
                crew.run(move || {
                    assert_eq!(Vec::from_iter(signals), [SIGUSR1, SIGINT]);
                });
                let signals = signal::notify(&[SIGINT]).unwrap();
                let wait = crew.go(move || signals.recv());
                wait.until_it_waits();
                take(&[SIGINT]).unwrap();
                assert_eq!(wait.join(), Err(chan::RecvError));
                signal::reset(&[SIGUSR1, SIGINT]).unwrap();
                assert_eq!([SIGUSR1, SIGINT].map(super::handler), [libc::SIG_DFL; 2]);
            }
        });
    });
}

/// Fails when a receiver ends with a runtime, or gets no signal without one.
#[test]
fn a_receiver_belongs_to_no_runtime() {
    alone("a_receiver_belongs_to_no_runtime", || {
        let first = common::runtime(1);
        let signals = first.go(|| signal::notify(&[SIGUSR1]).unwrap()).join().unwrap();
        let second = common::runtime(2);
        let mut signals = second.go(move || signals).join().unwrap();
        drop(first);
        for round in 0..4 {
            raise(SIGUSR1);
            let receives = move || {
                assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
                signals
            };
            signals = match round % 2 {
                0 => second.go(receives).join().unwrap(),
                _ => thread::spawn(receives).join().unwrap(),
            };
        }
        drop(second);
        raise(SIGUSR1);
        assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
    });
}

/// Fails when a signal takes long. The machine may be busy, so the fastest of many counts.
#[test]
fn a_signal_comes_soon() {
    alone("a_signal_comes_soon", || {
        let rt = common::runtime(2);
        rt.go(|| {
            let signals = signal::notify(&[SIGUSR1]).unwrap();
            let took = |_| {
                let begun = Instant::now();
                raise(SIGUSR1);
                assert_eq!(signals.recv_deadline(limit()), Ok(SIGUSR1));
                begun.elapsed()
            };
            let best = (0..200).map(took).min().unwrap();
            assert!(best < Duration::from_millis(1), "{best:?}");
        })
        .join()
        .unwrap();
    });
}

/// Fails when a kind of signal is lost, or is received more often than it was sent, or by a hang.
#[test]
fn a_storm_of_signals_loses_no_kind() {
    const ROUNDS: usize = 10;
    const EACH: usize = 250;
    const KINDS: [Signal; 4] = [SIGUSR1, SIGUSR2, SIGTERM, SIGINT];
    alone("a_storm_of_signals_loses_no_kind", || {
        everyone(|crew| {
            // A receiver gets the signals that are served together in the order of their numbers. SIGWINCH has the highest
            // number, so it comes last.
            let kinds = [&KINDS[..], &[SIGWINCH]].concat();
            let mut receivers = [(); 2].map(|()| signal::notify(&kinds).unwrap());
            for _ in 0..ROUNDS {
                let hear = receivers.map(|signals| {
                    crew.go(move || {
                        let hear = || signals.recv_deadline(limit()).unwrap();
                        let heard =
                            Vec::from_iter(std::iter::repeat_with(hear).take_while(|&it| it != SIGWINCH));
                        (heard, signals)
                    })
                });
                let sent = KINDS.map(|kind| {
                    thread::spawn(move || {
                        // SAFETY: no pointers. The handler has returned when the call returns.
                        (0..EACH).for_each(|_| assert_eq!(unsafe { libc::raise(kind.as_raw()) }, 0));
                    })
                });
                sent.into_iter().for_each(|sender| sender.join().unwrap());
                raise(SIGWINCH);
                receivers = hear.map(|member| {
                    let (heard, signals) = member.join();
                    for kind in KINDS {
                        let count = heard.iter().filter(|&&it| it == kind).count();
                        assert!((1..=EACH).contains(&count), "{kind}: {count}");
                    }
                    assert_eq!(signals.try_recv(), Err(TryRecvError::Empty));
                    signals
                });
            }
        });
    });
}
