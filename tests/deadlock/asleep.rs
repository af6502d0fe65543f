//! Programs in which no goroutine will ever run again.

use crate::Test;
use crate::parent::{LONG, dies, dies_late, dies_under, dies_waiting};
use gmp::chan::{bounded, never};
use gmp::context::Context;
use gmp::process::Command;
use gmp::signal::{self, SIGHUP};
use gmp::sync::{Condvar, Event, Mutex, RwLock, Semaphore, WaitGroup};
use gmp::{Runtime, go, goexit, select};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const ALL: &str = "fatal error: all goroutines are asleep - deadlock!\n\n";

/// Fails when a goroutine that waits for another one is taken for one that something outside might wake.
pub const TESTS: &[Test] = &[
    ("crossed_locks_are_reported", || {
        dies_waiting(
            "crossed_locks",
            &[ALL, "goroutine 1 'main' [join, ", "[sync.Mutex.Lock, ", "3 goroutines, 0"],
        );
    }),
    ("a_ring_of_joins_is_reported", || dies_waiting("ring_of_joins", &[ALL, "[join, ", "[chan receive, "])),
    ("a_mutex_locked_twice_is_reported", || {
        dies_waiting(
            "locked_twice",
            &[ALL, "1 goroutine, not running", "goroutine 1 'main' [sync.Mutex.Lock, "],
        );
    }),
    ("a_channel_nobody_sends_to_is_reported", || {
        dies_waiting("nobody_sends", &[ALL, "'main' [chan receive, "])
    }),
    ("a_channel_nobody_receives_from_is_reported", || {
        dies_waiting("nobody_receives", &[ALL, "'main' [chan send, "])
    }),
    ("a_wait_group_nobody_counts_down_is_reported", || {
        dies_waiting("wait_group", &[ALL, "[sync.WaitGroup.Wait, "])
    }),
    ("a_select_is_reported", || dies_waiting("selects", &[ALL, "'main' [select, "])),
    ("every_other_wait_is_reported", || {
        let reasons = ["[sync.Cond.Wait, ", "[sync.RWMutex.Lock, ", "[semacquire, ", "[event, ", "(never), "];
        dies_waiting("others", &reasons);
    }),
    // Fails when a cancel, which does not end the wait for a scope, counts as what will wake the goroutine.
    ("a_scope_under_a_context_that_has_ended_is_reported", || {
        dies_waiting("cancelled_scope", &[ALL, "2 goroutines, 0", "[event, "]);
    }),
    ("a_thousand_are_reported_each", || dies("thousand", &[ALL, "1001 goroutines, 0 of them running\n"])),
    ("a_goroutine_that_has_worked_before_is_reported", || dies("worked_before", &[ALL, "[chan receive, "])),
    ("a_timer_that_was_stopped_does_not_count", || dies("stopped_timer", &[ALL, "[chan receive, "])),
    ("a_socket_that_nobody_waits_for_does_not_count", || dies("idle_socket", &[ALL, "[chan receive, "])),
    ("two_runtimes_are_judged_together", || {
        dies(
            "two_runtimes",
            &[ALL, "runtime 1 of 2: ", "runtime 2 of 2: ", "[chan receive, ", "[chan send, "],
        );
    }),
    ("a_runtime_inside_another_is_judged", || {
        dies("nested", &[ALL, "runtime 2 of 2: 1 goroutine", "'main' [join, ", "'main' [event, "]);
    }),
    // Fails when a thread that is not gone from /proc yet ends the search.
    ("a_thread_that_has_just_ended_does_not_count", || dies("just_ended", &[ALL, "[chan receive, "])),
    ("a_thread_that_ends_soon_is_waited_for", || dies("ends_soon", &[ALL, "[chan receive, "])),
    ("the_thread_of_callbacks_does_not_count", || dies("callback_was", &[ALL, "[chan receive, "])),
    ("a_receiver_of_signals_that_is_gone_does_not_count", || {
        dies("signals_were", &[ALL, "[chan receive, "]);
        dies_under("signals_were", "deadlock=always", &[ALL, "[chan receive, "]);
    }),
    // Fails when no thread looks once more after the last receiver has gone.
    ("a_receiver_of_signals_that_goes_late_does_not_count", || {
        dies_late("signals_go_late", &[ALL, "[chan receive, "])
    }),
    ("a_child_process_that_has_ended_does_not_count", || {
        dies("child_was", &[ALL, "[chan receive, "]);
        dies_under("child_was", "deadlock=always", &[ALL, "[chan receive, "]);
    }),
    ("main_that_exits_leaves_nobody", || {
        dies("exits_alone", &["fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n\n"]);
    }),
    // Fails when the thread, which is no M any more, is taken for a foreign one.
    ("a_locked_main_that_exits_leaves_nobody", || {
        dies("exits_locked", &["fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n\n"]);
    }),
    // Fails when a goroutine counts as a sign of life only if an M has found it in a look for work.
    ("a_bound_one_that_falls_asleep_after_a_blocking_call_is_reported", || {
        for child in ["locked_blocks", "bound_blocks", "bound_ends"] {
            dies_late(child, &[ALL, "[chan receive, "]);
        }
    }),
    ("main_that_exits_leaves_others_asleep", || dies("exits", &[ALL, "1 goroutine, not running", "[chan "])),
    // Fails when the monitor, which has looked while the thread was blocked, sleeps on: no M looks for work when the thread
    // comes back.
    ("a_locked_goroutine_that_comes_back_late_is_reported", || {
        dies("locked_and_late", &[ALL, "'main' [chan receive, "]);
        dies("on_main_and_late", &[ALL, "'main' [chan receive, "]);
    }),
    ("other_threads_count_unless_they_are_ignored", || {
        dies_under("ignored_thread", "deadlock=always", &[ALL, "'main' [chan receive, "]);
    }),
];

/// Runs `main` as a program does.
fn run(main: fn()) {
    // SAFETY: nothing here is bound to a thread.
    unsafe { gmp::run(main) }
}

/// Runs `main` bound to the process's first thread.
fn run_locked(main: fn()) {
    // SAFETY: as in `run`.
    unsafe { Runtime::builder().build().expect("a runtime starts").run_locked(main) }
}

fn receive_for_ever() {
    let (_sender, receiver) = bounded::<()>(0);
    let _nobody = receiver.recv();
}

pub const CHILDREN: &[(&str, fn())] = &[
    ("returns", || run(|| ())),
    ("cancelled_scope", || {
        run(|| {
            let (context, cancel) = Context::background().with_cancel();
            drop(go(move || cancel.cancel()));
            let _never = context.run(|| gmp::scope(|scope| drop(scope.go(|| Event::new().wait()))));
        });
    }),
    ("crossed_locks", || {
        run(|| {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let (first, second) = (Event::new(), Event::new());
            let events = Arc::new((first, second));
            let (theirs, told) = (Arc::clone(&locks), Arc::clone(&events));
            let one = go(move || {
                let _held = theirs.0.lock();
                told.0.notify_one();
                told.1.wait();
                drop(theirs.1.lock());
            });
            let two = go(move || {
                let _held = locks.1.lock();
                events.1.notify_one();
                events.0.wait();
                drop(locks.0.lock());
            });
            drop((one.join(), two.join()));
        });
    }),
    ("ring_of_joins", || {
        run(|| {
            // Each goroutine is sent the handle of its neighbour.
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..3).map(|_| bounded::<gmp::JoinHandle<()>>(1)).unzip();
            let ring: Vec<_> = receivers
                .into_iter()
                .map(|receiver| {
                    go(move || {
                        let next = receiver.recv().unwrap();
                        drop(next.join());
                    })
                })
                .collect();
            for (handle, sender) in ring.into_iter().zip(senders.iter().cycle().skip(1)) {
                sender.send(handle).unwrap();
            }
            receive_for_ever();
        });
    }),
    ("locked_twice", || {
        run(|| {
            let lock = Mutex::new(());
            let _held = lock.lock();
            drop(lock.lock());
        });
    }),
    ("nobody_sends", || run(receive_for_ever)),
    ("nobody_receives", || {
        run(|| {
            let (sender, _receiver) = bounded(0);
            let _nobody = sender.send(());
        });
    }),
    ("wait_group", || {
        run(|| {
            let group = WaitGroup::new();
            group.add(1);
            group.wait();
        });
    }),
    ("selects", || {
        run(|| {
            let (_sender, receiver) = bounded::<()>(0);
            let (sender, _receiver) = bounded::<()>(0);
            select! {
                recv(receiver) -> _ => (),
                send(sender, ()) -> _ => (),
            }
        });
    }),
    ("others", || {
        run(|| {
            let _sleepers = [
                go(|| {
                    let lock = Mutex::new(());
                    Condvar::new().wait(&mut lock.lock());
                }),
                go(|| {
                    let lock = RwLock::new(());
                    let _held = lock.read();
                    drop(lock.write());
                }),
                go(|| {
                    let semaphore = Semaphore::new(1);
                    semaphore.acquire(1);
                    semaphore.acquire(1);
                }),
                go(|| Event::new().wait()),
            ];
            let _nobody = never::<()>().recv();
        });
    }),
    ("thousand", || {
        run(|| {
            (0..1000).for_each(|_| drop(go(receive_for_ever)));
            receive_for_ever();
        });
    }),
    ("worked_before", || {
        run(|| {
            let (sender, receiver) = bounded(0);
            let worker = go(move || (0..1000).for_each(|n| sender.send(n).unwrap()));
            assert_eq!(receiver.iter().take(1000).sum::<i32>(), 499_500);
            worker.join().unwrap();
            gmp::blocking(|| thread::sleep(Duration::from_millis(20)));
            gmp::time::sleep(Duration::from_millis(100));
            receive_for_ever();
        });
    }),
    ("stopped_timer", || {
        run(|| {
            let timer = gmp::time::after_func(Duration::from_secs(3600), || ());
            assert!(timer.stop());
            receive_for_ever();
        });
    }),
    ("idle_socket", || {
        run(|| {
            let listener = gmp::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_deadline(Some(std::time::Instant::now() + Duration::from_millis(10))).unwrap();
            // After this the poller watches the listener.
            assert!(listener.accept().is_err());
            receive_for_ever();
        });
    }),
    ("two_runtimes", || {
        let (first, second) = (runtime(), runtime());
        let (_sender, receiver) = bounded::<()>(0);
        drop(second.go(|| {
            let (sender, _receiver) = bounded(0);
            let _nobody = sender.send(());
        }));
        first.run(|| receiver.recv().unwrap());
    }),
    ("nested", || {
        run(|| {
            let inner = runtime();
            inner.run(|| Event::new().wait());
        });
    }),
    ("just_ended", || {
        run(|| {
            (0..20).for_each(|_| thread::spawn(|| ()).join().unwrap());
            drop(thread::spawn(|| ()));
            receive_for_ever();
        });
    }),
    ("ends_soon", || {
        run(|| {
            drop(thread::spawn(|| thread::sleep(Duration::from_millis(200))));
            receive_for_ever();
        });
    }),
    ("callback_was", || {
        let (sender, receiver) = bounded(1);
        let _timer = gmp::time::after_func(Duration::from_millis(1), move || sender.send(()).unwrap());
        run_with(receiver);
    }),
    ("signals_were", || {
        run(|| {
            drop(signal::notify(&[SIGHUP]).unwrap());
            receive_for_ever();
        });
    }),
    ("signals_go_late", || {
        let signals = signal::notify(&[SIGHUP]).unwrap();
        drop(thread::spawn(move || {
            thread::sleep(LONG);
            drop(signals);
        }));
        run(receive_for_ever);
    }),
    ("child_was", || {
        run(|| {
            assert!(Command::new("true").status().unwrap().success());
            drop(Command::new("true").spawn().unwrap());
            receive_for_ever();
        });
    }),
    ("exits_alone", || {
        run(|| {
            drop(go(|| gmp::time::sleep(Duration::from_millis(100))));
            goexit()
        });
    }),
    ("exits_locked", || run_locked(|| goexit())),
    ("locked_blocks", || {
        run_locked(|| {
            thread::sleep(LONG);
            receive_for_ever();
        });
    }),
    ("bound_blocks", || {
        run(|| {
            gmp::lock_os_thread();
            gmp::blocking(|| thread::sleep(LONG));
            receive_for_ever();
        });
    }),
    ("bound_ends", || {
        run(|| {
            drop(go(|| {
                gmp::lock_os_thread();
                thread::sleep(LONG);
            }));
            receive_for_ever();
        });
    }),
    ("exits", || {
        run(|| {
            drop(go(receive_for_ever));
            goexit()
        });
    }),
    ("locked_and_late", || {
        run(|| {
            gmp::lock_os_thread();
            block_and_receive_for_ever();
        });
    }),
    ("on_main_and_late", || {
        // SAFETY: nothing here is bound to a thread.
        unsafe { runtime().run_locked(block_and_receive_for_ever) }
    }),
    ("ignored_thread", || {
        let _thread = thread::spawn(thread::park);
        run(receive_for_ever);
    }),
];

/// The deadlock watch is over when the thread comes back.
fn block_and_receive_for_ever() {
    gmp::blocking(|| thread::sleep(Duration::from_millis(1500)));
    receive_for_ever();
}

/// Main receives what the callback sends, and then nothing more.
fn run_with(receiver: gmp::chan::Receiver<()>) {
    // SAFETY: nothing here is bound to a thread.
    unsafe {
        gmp::run(move || {
            receiver.recv().unwrap();
            receive_for_ever();
        });
    }
}

/// Builds a runtime with the number of Ps that the environment asks for.
pub fn runtime() -> Runtime {
    // SAFETY: nothing here is bound to a thread.
    unsafe { Runtime::builder().build() }.expect("a runtime starts")
}
