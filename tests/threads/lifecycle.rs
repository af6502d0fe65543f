//! A runtime's beginning and end: the threads and descriptors that it takes and gives back, and how long the end takes.

use common::bolt::bolted;
use common::child;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::net::{TcpListener, TcpStream};
use gmp::time::sleep;
use gmp::{JoinHandle, Runtime, go, yield_now};
use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The longest that a shutdown that waits for no goroutine may take, on a shared machine.
const PROMPT: Duration = Duration::from_secs(10);

/// Counts its drops.
#[derive(Debug)]
struct Probe(Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Returns the names of the process's threads.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    // A thread that has ended in the meantime does not count.
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.ok()?)).map(|name| name.trim_end().to_owned()).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Waits until `count` returns `expected`: a thread that was joined stays in /proc for some 100 µs.
fn comes_to(expected: usize, what: &str, count: impl Fn() -> usize) {
    let start = Instant::now();
    while count() != expected {
        assert!(start.elapsed() < PROMPT, "{} {what} instead of {expected}", count());
        thread::yield_now();
    }
}

/// Starts a goroutine that parks for good where it can't be unwound, and waits until it has begun.
fn parked(rt: &Runtime) -> JoinHandle<()> {
    let began = Arc::new(AtomicBool::new(false));
    let parks = rt.go({
        let began = Arc::clone(&began);
        move || {
            began.store(true, SeqCst);
            bolted(|| sleep(HOUR));
        }
    });
    until(|| began.load(SeqCst));
    parks
}

/// Runs goroutines that wait for each other, for a time and for sockets, and end.
fn some_work() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = go(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap()
    });
    let sleepers: Vec<_> = (0..20).map(|n| go(move || sleep(Duration::from_micros(n * 50)))).collect();
    drop(TcpStream::connect(addr).unwrap());
    assert_eq!(server.join().unwrap(), 0);
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}

/// Fails by one more thread or descriptor than before.
#[test]
fn runtimes_leave_no_thread_and_no_descriptor_behind() {
    if !child::is_child() {
        child::passes("runtimes_leave_no_thread_and_no_descriptor_behind", &[]);
        return;
    }
    runtime(2).run(some_work);
    let before = (threads().len(), descriptors());
    let nothing_more = || {
        comes_to(before.0, "threads", || threads().len());
        comes_to(before.1, "descriptors", descriptors);
    };
    for procs in PROCS {
        watched(procs, || {
            for round in 0..50 {
                let rt = runtime(procs);
                match round % 3 {
                    0 => {}
                    1 => rt.run(some_work),
                    // One parked goroutine is left.
                    _ => drop(parked(&rt)),
                }
                match round % 2 {
                    0 => drop(rt),
                    _ => drop(rt.shutdown_timeout(PROMPT)),
                }
            }
        });
    }
    comes_to(before.0, "threads", || threads().len());
    comes_to(before.1, "descriptors", descriptors);
    thread::scope(|s| {
        for n in 0..8 {
            s.spawn(move || {
                for _ in 0..5 {
                    runtime(PROCS[n % 4]).run(some_work);
                }
            });
        }
    });
    let many: Vec<_> = (0..50).map(|n| runtime(1 + n % 3)).collect();
    for rt in &many {
        rt.run(|| go(some_work).join().unwrap());
    }
    assert!(descriptors() >= before.1 + 100);
    drop(many);
    nothing_more();
}

/// Fails by needless wake-ups of an M that looks for work again and again, or that wakes another M.
#[test]
fn a_runtime_without_work_sleeps() {
    if !child::is_child() {
        child::passes("a_runtime_without_work_sleeps", &[]);
        return;
    }
    let asleep = || {
        // Ms that are on their way to sleep get there.
        until(|| {
            let before = switches();
            thread::sleep(Duration::from_millis(20));
            switches() - before <= 2
        });
        let before = switches();
        thread::sleep(Duration::from_millis(150));
        let more = switches() - before;
        assert!(more < 10, "{more} times a thread went to sleep again");
    };
    everywhere(|rt| {
        rt.run(some_work);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        drop(rt.go(move || listener.accept().map(drop)));
        asleep();
        // The same with a timer that is far away.
        drop(parked(&rt));
        asleep();
    });
}

/// Returns how often a thread of the process has gone to sleep.
fn switches() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the struct, which consists of plain numbers.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nvcsw
    }
}

/// Fails by one more descriptor when the runtime that could not start keeps its poller.
#[test]
fn a_runtime_that_can_not_start_is_an_error_and_leaves_nothing() {
    if !child::is_child() {
        child::passes("a_runtime_that_can_not_start_is_an_error_and_leaves_nothing", &[]);
        return;
    }
    let before = (threads().len(), descriptors());
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: a valid struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for room in [0, 1, 2] {
        let mut full: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        full.truncate(full.len() - room);
        // SAFETY: no goroutine runs.
        let refused = unsafe { Runtime::builder().procs(2).build() }.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(["epoll", "the eventfd", "the spare eventfd"][room]), "{text}");
    }
    comes_to(before.0, "threads", || threads().len());
    comes_to(before.1, "descriptors", descriptors);
}

#[test]
fn shutdown_tells_whether_all_had_ended() {
    everywhere(|rt| {
        let procs = rt.procs();
        rt.run(some_work);
        assert!(rt.shutdown_timeout(PROMPT));
        assert!(runtime(procs).shutdown_timeout(PROMPT), "one that never ran anything");

        let rt = runtime(procs);
        drop(parked(&rt));
        let start = Instant::now();
        assert!(!rt.shutdown_timeout(HOUR), "a goroutine is parked");
        assert!(start.elapsed() < PROMPT, "nobody waits for a goroutine that is parked");
    });
}

/// Fails by a hang, or when the thread that still runs counts as gone.
#[test]
fn shutdown_waits_for_a_goroutine_that_runs_only_so_long() {
    everywhere(|rt| {
        let (spinner, stop) = spins(&rt);
        let start = Instant::now();
        let report = rt.shutdown(Duration::from_millis(50));
        assert!((Duration::from_millis(50)..PROMPT).contains(&start.elapsed()));
        assert_eq!((report.goroutines_left(), report.is_clean()), (1, false));
        // On a busy machine a thread that has nothing to do may be late as well.
        assert!(report.threads_left() >= 1);
        stop.store(true, SeqCst);
        assert!(spinner.join().unwrap_err().is_shutdown());
    });
}

/// Keeps the caller's P, as code that computes does.
fn until_spinning(reached: impl Fn() -> bool) {
    while !reached() {
        std::hint::spin_loop();
    }
}

/// Starts a goroutine that spins without a park until the flag is set, and waits until it has begun.
fn spins(rt: &Runtime) -> (JoinHandle<()>, Arc<AtomicBool>) {
    let [began, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let spinner = rt.go({
        let (began, stop) = (Arc::clone(&began), Arc::clone(&stop));
        move || {
            began.store(true, SeqCst);
            until_spinning(|| stop.load(SeqCst));
        }
    });
    until(|| began.load(SeqCst));
    (spinner, stop)
}

/// Fails by a hang, or when the ender gives up although the goroutine comes back in time.
#[test]
fn shutdown_waits_for_a_goroutine_that_comes_back() {
    everywhere(|rt| {
        let began = Arc::new(AtomicBool::new(false));
        let busy = rt.go({
            let began = Arc::clone(&began);
            move || {
                began.store(true, SeqCst);
                let start = Instant::now();
                until_spinning(|| start.elapsed() > Duration::from_millis(20));
                6
            }
        });
        until(|| began.load(SeqCst));
        assert!(rt.shutdown_timeout(PROMPT));
        assert_eq!(busy.join().unwrap(), 6);
    });
}

/// Fails when a destructor runs on a stack that is only suspended, or by a wrong count.
#[test]
fn goroutines_that_can_not_be_unwound_are_left_and_counted_and_nothing_of_them_is_dropped() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let parked = Arc::new(AtomicUsize::new(0));
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let addr = listener.local_addr().unwrap();
        let silent = rt.run(|| TcpStream::connect(addr).unwrap());
        let (mut accepted, _) = listener.accept().unwrap();
        let probe = || (Probe(Arc::clone(&drops)), Arc::clone(&parked));
        let announce = |(probe, parked): (Probe, Arc<AtomicUsize>)| {
            parked.fetch_add(1, SeqCst);
            probe
        };
        let sleeper = rt.go({
            let probe = probe();
            move || {
                let _probe = announce(probe);
                bolted(|| sleep(HOUR));
            }
        });
        for reader in 0..3 {
            let (probe, listener) = (probe(), Arc::clone(&listener));
            drop(rt.go(move || {
                let _probe = announce(probe);
                if reader > 0 {
                    // Both goroutines are in one wait queue.
                    bolted(|| drop(listener.accept()));
                } else {
                    yield_now();
                }
            }));
        }
        let reading = rt.go({
            let probe = probe();
            move || {
                let _probe = announce(probe);
                let mut silent = silent;
                bolted(|| silent.read(&mut [0; 8]).map(drop))
            }
        });
        let joining = rt.go({
            let probe = probe();
            move || {
                let _probe = announce(probe);
                bolted(|| sleeper.join())
            }
        });
        until(|| parked.load(SeqCst) == 6 && rt.num_goroutines() == 5);
        rt.run(|| (0..20).for_each(|_| yield_now()));
        let report = rt.shutdown(PROMPT);
        assert_eq!((report.goroutines_left(), report.threads_left()), (5, 0));
        // The sixth goroutine has ended.
        assert_eq!(drops.load(SeqCst), 1);
        assert!(reading.join().unwrap_err().is_shutdown());
        assert!(joining.join().unwrap_err().is_shutdown());
        assert_eq!(drops.load(SeqCst), 1);
        // The stack that was left owns the descriptor, so the peer sees no end of the stream.
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd { fd: accepted.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
        accepted.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    });
}

/// Fails by a leak or a hang when goroutines in the queue are forgotten with it.
#[test]
fn a_goroutine_that_never_started_is_dropped_with_its_closure() {
    const TEST: &str = "a_goroutine_that_never_started_is_dropped_with_its_closure";
    if !child::is_child() {
        // With hand-off, on a slow machine, the goroutines that spin would lose their Ps, and the others would start.
        child::passes(TEST, &[("GMPDEBUG", "handoff=0")]);
        return;
    }
    everywhere(|rt| {
        let procs = rt.procs();
        let drops = Arc::new(AtomicUsize::new(0));
        let began = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let late = Arc::new(AtomicUsize::new(0));
        for _ in 0..procs {
            let (began, stop, late) = (Arc::clone(&began), Arc::clone(&stop), Arc::clone(&late));
            let drops = Arc::clone(&drops);
            drop(rt.go(move || {
                began.fetch_add(1, SeqCst);
                until_spinning(|| stop.load(SeqCst));
                // The runtime has begun to end: no new goroutine starts.
                let probe = Probe(drops);
                let refused = go(move || drop(probe));
                assert!(refused.is_finished());
                assert!(refused.join().unwrap_err().is_shutdown());
                late.fetch_add(1, SeqCst);
            }));
        }
        until(|| began.load(SeqCst) == procs);
        let started = Arc::new(AtomicUsize::new(0));
        let make = || (Probe(Arc::clone(&drops)), Arc::clone(&started));
        // A small closure lies in its goroutine, a large one in a box of its own.
        let small = |(probe, started): (Probe, Arc<AtomicUsize>)| {
            rt.go(move || {
                started.fetch_add(1, SeqCst);
                drop(probe);
            })
        };
        let large = |(probe, started): (Probe, Arc<AtomicUsize>)| {
            let filler = [0_u64; 20];
            rt.go(move || {
                started.fetch_add(1, SeqCst);
                drop((probe, filler));
            })
        };
        let never: Vec<_> = (0..5).flat_map(|_| [small(make()), large(make())]).collect();
        let report = rt.shutdown(Duration::from_millis(20));
        assert_eq!(report.goroutines_left(), procs);
        assert!(report.threads_left() >= procs);
        assert_eq!((drops.load(SeqCst), started.load(SeqCst)), (10, 0));
        for never in never {
            assert!(never.is_finished());
            assert!(never.join().unwrap_err().is_shutdown());
        }
        stop.store(true, SeqCst);
        until(|| late.load(SeqCst) == procs);
        assert_eq!(drops.load(SeqCst), 10 + procs);
    });
}

/// Fails by a hang when a joiner that waits as the runtime ends is not told.
#[test]
fn the_joiner_of_a_left_goroutine_hears_of_the_end() {
    everywhere(|rt| {
        let other = runtime(rt.procs());
        let [on_thread, on_goroutine, afterwards] = [(); 3].map(|()| parked(&rt));
        let waiting = Arc::new(AtomicUsize::new(0));
        let joiner = {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || {
                waiting.fetch_add(1, SeqCst);
                on_thread.join()
            })
        };
        let joining = {
            let waiting = Arc::clone(&waiting);
            other.go(move || {
                waiting.fetch_add(1, SeqCst);
                on_goroutine.join()
            })
        };
        until(|| waiting.load(SeqCst) == 2);
        // The goroutine parks before `run` returns; the thread sleeps by then, or finds the end.
        other.run(|| (0..20).for_each(|_| yield_now()));
        assert_eq!(rt.shutdown(PROMPT).goroutines_left(), 3);
        assert!(joiner.join().unwrap().unwrap_err().is_shutdown());
        assert!(joining.join().unwrap().unwrap_err().is_shutdown());
        assert!(afterwards.is_finished());
        assert!(afterwards.join().unwrap_err().is_shutdown());
        assert!(other.shutdown_timeout(PROMPT));
    });
}

#[test]
fn drop_gives_a_goroutine_that_spins_up_within_four_seconds() {
    let rt = runtime(2);
    let (spinner, stop) = spins(&rt);
    let start = Instant::now();
    drop(rt);
    assert!(start.elapsed() < 4 * SECOND, "dropped after {:?}", start.elapsed());
    assert!(spinner.join().unwrap_err().is_shutdown());
    stop.store(true, SeqCst);
}

/// Fails by a deadlock when the goroutine waits for the end of the thread on which it runs.
#[test]
fn a_runtime_dropped_on_its_own_goroutine_does_not_wait() {
    if !child::is_child() {
        child::passes("a_runtime_dropped_on_its_own_goroutine_does_not_wait", &[]);
        return;
    }
    let before = threads().len();
    for procs in PROCS {
        for _ in 0..20 {
            let dropped = Arc::new(AtomicBool::new(false));
            watched(procs, || {
                let rt = Arc::new(runtime(procs));
                drop(rt.go(|| sleep(HOUR)));
                let (own, told) = (Arc::clone(&rt), Arc::clone(&dropped));
                let gate = Arc::new(AtomicBool::new(false));
                let opened = Arc::clone(&gate);
                drop(rt.go(move || {
                    until(|| opened.load(SeqCst));
                    let start = Instant::now();
                    drop(own);
                    assert!(start.elapsed() < SECOND * 2);
                    assert!(go(|| ()).join().unwrap_err().is_shutdown());
                    told.store(true, SeqCst);
                }));
                drop(rt);
                gate.store(true, SeqCst);
                until(|| dropped.load(SeqCst));
            });
        }
    }
    comes_to(before, "threads", || threads().len());
}

/// Fails by one thread too many when two Ms both find that the limit is not yet reached, and each starts a thread.
#[test]
fn max_threads_is_never_exceeded() {
    if !child::is_child() {
        child::passes("max_threads_is_never_exceeded", &[]);
        return;
    }
    for round in 0..600 {
        let most = 1 + round % 4;
        let builder = Runtime::builder().procs(8).max_threads(most).thread_name("limited-");
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        watched(8, || {
            let together = Barrier::new(6);
            thread::scope(|s| {
                for _ in 0..6 {
                    s.spawn(|| {
                        together.wait();
                        for _ in 0..20 {
                            // Each goroutine runs so long that no M is idle when the next one is submitted.
                            drop(rt.go(|| (0..300).for_each(|_| std::hint::spin_loop())));
                        }
                    });
                }
            });
            until(|| rt.num_goroutines() == 0);
        });
        let started = threads().iter().filter(|name| name.starts_with("limited-")).count();
        assert!(started <= most, "{started} threads, at most {most} are allowed");
    }
}

/// Fails if all threads have std's names, or share one.
#[test]
fn threads_have_the_name_of_their_runtime_and_a_number() {
    if !child::is_child() {
        child::passes("threads_have_the_name_of_their_runtime_and_a_number", &[]);
        return;
    }
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { Runtime::builder().procs(2).thread_name("some-").build() }.unwrap();
    let seen = rt.run(|| {
        // Two goroutines that run at the same time.
        let meet = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::clone(&meet);
        let other = go(move || {
            arrived.fetch_add(1, SeqCst);
            until_spinning(|| arrived.load(SeqCst) == 2);
        });
        meet.fetch_add(1, SeqCst);
        until_spinning(|| meet.load(SeqCst) == 2);
        other.join().unwrap();
        // A new thread has its parent's name for a moment, and the first thread may start late.
        until(|| ["some-0", "some-1"].iter().all(|name| threads().contains(&(*name).to_owned())));
        threads()
    });
    let numbered = seen.iter().filter_map(|name| name.strip_prefix("some-"));
    let numbers = HashSet::<u32>::from_iter(numbered.map(|number| number.parse().expect("a number")));
    assert_eq!(numbers.len(), seen.iter().filter(|name| name.starts_with("some-")).count());
    drop(rt);
    let rt = runtime(1);
    rt.run(|| until(|| threads().contains(&"gmp-0".to_owned())));
}

#[test]
fn the_environment_sets_the_number_of_ps() {
    if !child::is_child() {
        let check = |value, expected| {
            let env = [("GMPMAXPROCS", value), ("EXPECTED", expected)];
            child::passes("the_environment_sets_the_number_of_ps", &env);
        };
        check("3", "3");
        check(" 1 ", "1");
        check("1024", "1024");
        check("0", "GMPMAXPROCS: 0 is not within 1..=1024");
        check("1025", "GMPMAXPROCS: 1025 is not within 1..=1024");
        check("-1", "GMPMAXPROCS: \"-1\" is not a number");
        check("many", "GMPMAXPROCS: \"many\" is not a number");
        return;
    }
    let expected = std::env::var("EXPECTED").unwrap();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    match unsafe { Runtime::builder().build() } {
        Ok(rt) => assert_eq!(rt.run(gmp::procs).to_string(), expected),
        Err(refused) => {
            assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::InvalidInput, expected));
        }
    }
    // The builder's own setting comes first.
    assert_eq!(runtime(2).procs(), 2);
}

#[test]
fn without_a_setting_there_is_a_p_for_each_cpu() {
    if !child::is_child() {
        child::passes("without_a_setting_there_is_a_p_for_each_cpu", &[]);
        return;
    }
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let procs = unsafe { gmp::run(gmp::procs) };
    assert_eq!(procs, thread::available_parallelism().unwrap().get());
}

/// Fails by a hang or a panic when a goroutine that is readied after the end is queued where no M looks.
#[test]
fn what_wakes_a_goroutine_after_the_end_does_no_harm() {
    everywhere(|rt| {
        let other = runtime(2);
        let gate = Arc::new(AtomicBool::new(false));
        let (opened, waiting) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
        let awaited = other.go(move || until(|| opened.load(SeqCst)));
        let announced = Arc::clone(&waiting);
        drop(rt.go(move || {
            announced.fetch_add(1, SeqCst);
            bolted(|| awaited.join()).unwrap();
            announced.fetch_add(1, SeqCst);
        }));
        until(|| waiting.load(SeqCst) == 1);
        rt.run(|| (0..20).for_each(|_| yield_now()));
        assert_eq!(rt.shutdown(PROMPT).goroutines_left(), 1);
        // The joiner of `awaited` is parked on a stack that was left.
        gate.store(true, SeqCst);
        until(|| other.num_goroutines() == 0);
        assert!(other.shutdown_timeout(PROMPT));
        assert_eq!(waiting.load(SeqCst), 1);
    });
}
