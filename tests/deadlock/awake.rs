//! Programs in which all goroutines sleep for longer than the monitor looks, and something wakes one after that.

use crate::Test;
use crate::asleep::runtime;
use crate::parent::{LONG, lives, lives_and_says, lives_under, stays};
use common::futures::Signal;
use common::seccomp::refuse;
use gmp::chan::{Receiver, Sender, bounded};
use gmp::context::Context;
use gmp::go;
use gmp::net::TcpListener;
use gmp::process::Command;
use gmp::signal::{self, SIGALRM};
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Each fails by a report.
pub const TESTS: &[Test] = &[
    ("a_thread_that_is_about_to_send_is_waited_for", || lives("thread_sends")),
    ("a_sleeper_is_waited_for", || lives("sleeper")),
    ("a_callback_is_waited_for", || lives("callback")),
    ("a_context_is_waited_for", || lives("context")),
    ("a_ticker_is_waited_for", || lives("ticker")),
    ("a_callback_of_no_runtime_is_waited_for", || lives("timer_threads_callback")),
    ("a_blocking_call_is_waited_for", || lives("blocking")),
    ("an_unmarked_blocking_call_is_waited_for", || lives("unmarked")),
    ("another_runtime_is_waited_for", || lives("other_runtime")),
    ("another_runtimes_blocking_call_is_waited_for", || lives("other_blocking")),
    ("another_runtimes_timer_is_waited_for", || lives("other_timer")),
    ("a_runtime_inside_another_is_waited_for", || lives("nested_sleeper")),
    ("a_listener_is_waited_for", || stays("listener")),
    ("a_future_is_waited_for", || {
        lives("future");
        lives_under("future", "deadlock=always");
    }),
    ("a_socket_is_waited_for", || lives("socket")),
    ("a_task_at_a_descriptor_is_waited_for", || {
        lives("task_at_socket");
        lives_under("task_at_socket", "deadlock=always");
    }),
    ("a_receiver_of_signals_is_waited_for", || {
        lives("signal");
        lives_under("signal", "deadlock=always");
    }),
    ("a_child_process_is_waited_for", || {
        lives("child_process");
        lives_under("child_process", "deadlock=always");
    }),
    ("a_child_process_without_a_descriptor_is_waited_for", || {
        let told = "a child has no descriptor that reports its end";
        lives_and_says("child_without_pidfd", "", told);
        lives_and_says("child_without_pidfd", "deadlock=always", told);
    }),
    ("a_thread_that_waits_for_a_channel_counts", || stays("thread_receives")),
    ("a_runtime_that_nobody_runs_is_not_judged", || lives_under("nobody_runs", "deadlock=always")),
    ("a_run_that_has_ended_does_not_count", || lives_under("run_has_ended", "deadlock=always")),
    // Fails where the looks at several runtimes, threads and timers do not see one moment.
    ("those_who_wake_each_other_are_never_asleep", || lives_under("storm", "deadlock=always")),
];

/// Runs a main that receives once; `make` makes what it needs before.
fn run_receiving<T>(make: impl FnOnce(Sender<()>) -> T + Send) {
    let (sender, receiver) = bounded(1);
    // SAFETY: nothing here is bound to a thread.
    unsafe {
        gmp::run(move || {
            let _kept = make(sender);
            receiver.recv().unwrap();
        });
    }
}

/// Starts another process, which connects to this port, and sends when the monitors no longer look. A thread would be a foreign
/// one.
fn sends_late_to(port: u16) -> std::process::Child {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 1.4; echo x >&3");
    std::process::Command::new("bash").args(["-c", &script]).spawn().unwrap()
}

/// A waker that sends.
struct Sends(Sender<()>);

impl Wake for Sends {
    fn wake(self: Arc<Self>) {
        // The receiver may have gone.
        let _nobody = self.0.send(());
    }
}

/// Polls like a small executor that keeps its tasks in a channel.
fn polled<T>(mut poll: impl FnMut(&mut task::Context<'_>) -> Poll<T>) -> T {
    let (wakes, woken) = bounded(1);
    let waker = Waker::from(Arc::new(Sends(wakes)));
    loop {
        match poll(&mut task::Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => woken.recv().unwrap(),
        }
    }
}

/// Makes the kernel send `SIGALRM`.
fn alarm_in(time: Duration) {
    let at = libc::timeval { tv_sec: time.as_secs() as _, tv_usec: time.subsec_micros() as _ };
    let once = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: at };
    // SAFETY: the call reads the struct that we pass.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, std::ptr::null_mut()) }, 0);
}

/// Main waits for a goroutine, which waits for a process that sleeps.
fn child_process() {
    run_receiving(|sender| {
        drop(go(move || {
            let seconds = LONG.as_secs_f64().to_string();
            assert!(Command::new("sleep").arg(seconds).status().unwrap().success());
            sender.send(()).unwrap();
        }));
    });
}

pub const CHILDREN: &[(&str, fn())] = &[
    ("thread_sends", || {
        run_receiving(|sender| {
            drop(thread::spawn(move || {
                thread::sleep(LONG);
                sender.send(()).unwrap();
            }));
        });
    }),
    ("sleeper", || {
        run_receiving(|sender| {
            drop(go(move || {
                gmp::time::sleep(LONG);
                sender.send(()).unwrap();
            }));
        });
    }),
    ("callback", || {
        run_receiving(|sender| gmp::time::after_func(LONG, move || sender.send(()).unwrap()));
    }),
    ("context", || {
        run_receiving(|sender| {
            drop(go(move || {
                let (context, _cancel) = Context::background().with_timeout(LONG);
                let _closed = context.done().recv();
                sender.send(()).unwrap();
            }));
        });
    }),
    ("ticker", || {
        run_receiving(|sender| {
            drop(go(move || {
                gmp::chan::tick(LONG).recv().unwrap();
                sender.send(()).unwrap();
            }));
        });
    }),
    ("timer_threads_callback", || {
        let (sender, receiver) = bounded(1);
        let _timer = gmp::time::after_func(LONG, move || sender.send(()).unwrap());
        // SAFETY: nothing here is bound to a thread.
        unsafe { gmp::run(move || receiver.recv().unwrap()) }
    }),
    ("future", || {
        run_receiving(|sender| {
            let signal = Arc::new(Signal::default());
            let theirs = Arc::clone(&signal);
            drop(go(move || {
                gmp::block_on(signal.take());
                sender.send(()).unwrap();
            }));
            drop(thread::spawn(move || {
                thread::sleep(LONG);
                theirs.give();
            }));
        });
    }),
    ("signal", || {
        run_receiving(|sender| {
            drop(go(move || {
                let signals = signal::notify(&[SIGALRM]).unwrap();
                alarm_in(LONG);
                assert_eq!(signals.recv(), Ok(SIGALRM));
                sender.send(()).unwrap();
            }));
        });
    }),
    ("child_process", child_process),
    ("child_without_pidfd", || {
        refuse(&[libc::SYS_pidfd_open], libc::ENOSYS);
        child_process();
    }),
    ("blocking", || {
        run_receiving(|sender| {
            drop(go(move || {
                gmp::blocking(|| thread::sleep(LONG));
                sender.send(()).unwrap();
            }));
        });
    }),
    ("unmarked", || {
        run_receiving(|sender| {
            drop(go(move || {
                thread::sleep(LONG);
                sender.send(()).unwrap();
            }));
        });
    }),
    ("other_runtime", || {
        with_another(|sender| {
            let until = Instant::now() + LONG;
            while Instant::now() < until {
                gmp::yield_now();
            }
            sender.send(()).unwrap();
        });
    }),
    ("other_blocking", || {
        with_another(|sender| {
            gmp::blocking(|| thread::sleep(LONG));
            sender.send(()).unwrap();
        });
    }),
    ("other_timer", || {
        with_another(|sender| {
            gmp::time::sleep(LONG);
            sender.send(()).unwrap();
        });
    }),
    ("nested_sleeper", || {
        run_receiving(|sender| {
            drop(go(move || {
                let inner = runtime();
                inner.run(|| gmp::time::sleep(LONG));
                sender.send(()).unwrap();
            }));
        });
    }),
    ("listener", || {
        run_receiving(|sender| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            drop(go(move || {
                let _nobody = listener.accept();
                sender.send(()).unwrap();
            }));
        });
    }),
    ("socket", || {
        run_receiving(|sender| {
            drop(go(move || {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let mut shell = sends_late_to(listener.local_addr().unwrap().port());
                let (mut stream, _) = listener.accept().unwrap();
                std::io::Read::read_exact(&mut stream, &mut [0]).unwrap();
                shell.wait().unwrap();
                sender.send(()).unwrap();
            }));
        });
    }),
    ("task_at_socket", || {
        run_receiving(|sender| {
            drop(go(move || {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let mut shell = sends_late_to(listener.local_addr().unwrap().port());
                let (stream, _) = polled(|cx| listener.poll_accept(cx)).unwrap();
                assert_eq!(polled(|cx| stream.poll_read(cx, &mut [0])).unwrap(), 1);
                shell.wait().unwrap();
                sender.send(()).unwrap();
            }));
        });
    }),
    ("thread_receives", || {
        run_receiving(|sender| {
            let (kept, receiver) = bounded::<()>(0);
            drop(thread::spawn(move || {
                let _nobody = receiver.recv();
            }));
            (sender, kept)
        });
    }),
    ("nobody_runs", || {
        let runtime = runtime();
        drop(runtime.go(|| gmp::sync::Event::new().wait()));
        thread::sleep(LONG);
        std::process::exit(0);
    }),
    ("run_has_ended", || {
        let runtime = runtime();
        runtime.run(|| drop(go(|| gmp::sync::Event::new().wait())));
        drop(runtime.go(|| gmp::sync::Event::new().wait()));
        thread::sleep(LONG);
        std::process::exit(0);
    }),
    ("storm", storm),
];

/// Main receives what a goroutine of another runtime sends.
fn with_another(work: fn(Sender<()>)) {
    let (first, second) = (runtime(), runtime());
    let (sender, receiver) = bounded(1);
    drop(second.go(move || work(sender)));
    first.run(move || receiver.recv().unwrap());
}

/// Tokens go between two runtimes whose goroutines now and then let everything fall asleep for a moment, in all the ways in
/// which something can be under way that no queue shows.
fn storm() {
    let (first, second) = (runtime(), runtime());
    let ((there, theirs), (back, ours)) = (bounded::<u64>(0), bounded::<u64>(0));
    drop(second.go(move || echo(&theirs, &back)));
    let until = Instant::now() + Duration::from_secs(3);
    let mut rounds = 0_u64;
    while Instant::now() < until {
        let (there, ours) = (there.clone(), ours.clone());
        // Callers of `run` come and go.
        rounds = first.run(move || {
            for step in 0..20 {
                there.send(rounds + step).unwrap();
                assert_eq!(ours.recv().unwrap(), rounds + step);
                pause(rounds + step);
            }
            rounds + 20
        });
    }
}

fn echo(theirs: &Receiver<u64>, back: &Sender<u64>) {
    while let Ok(token) = theirs.recv() {
        pause(token / 2);
        if back.send(token).is_err() {
            return;
        }
    }
}

/// Pauses in such a way that looks 1 ms and 10 ms after the last goroutine fell asleep come at every point.
fn pause(token: u64) {
    let dur = Duration::from_micros(token * 37 % 1500);
    match token % 5 {
        0 => gmp::time::sleep(dur),
        1 => gmp::blocking(|| thread::sleep(dur)),
        2 => {
            let (sender, receiver) = bounded(0);
            let _timer = gmp::time::after_func(dur, move || sender.send(()).unwrap());
            receiver.recv().unwrap();
        }
        3 => {
            let (context, _cancel) = Context::background().with_timeout(dur);
            let _closed = context.done().recv();
        }
        _ => {}
    }
}
