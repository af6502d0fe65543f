//! Connecting to several addresses: when each is tried, which wins, and that the attempts at the others leave nothing.

use common::child;
use common::crew::{CREWS, everyone, on_thread};
use common::loopback::{Hole, asking, listen, refusing};
use common::random::Random;
use common::{everywhere, runtime, until, watched};
use gmp::context::{Context, ContextError};
use gmp::net::{DialConfig, TcpStream};
use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const STAGGER: Duration = Duration::from_millis(250);
/// The time that a shared machine may add, in the best of several tries.
const MARGIN: Duration = Duration::from_millis(50);

/// Connects, and returns the peer's address, and how long the connect took.
fn timed(addrs: &[SocketAddr]) -> (io::Result<SocketAddr>, Duration) {
    let begin = Instant::now();
    let result = TcpStream::connect(addrs).map(|stream| stream.peer_addr().unwrap());
    (result, begin.elapsed())
}

/// Asserts that each crew connects to `addrs`, and reaches `winner` after `wanted`, and that no attempt at `holes` is left.
/// Prints the best time.
#[track_caller]
fn takes(wanted: Duration, addrs: &[SocketAddr], winner: SocketAddr, holes: &[&Hole]) {
    let times = RefCell::new(Vec::new());
    everyone(|crew| {
        let addrs = addrs.to_vec();
        let (reached, time) = crew.run(move || timed(&addrs));
        assert_eq!(reached.unwrap(), winner);
        assert!(time >= wanted, "{time:?}");
        assert!(holes.iter().all(|hole| hole.asking() == 0), "a loser is left");
        times.borrow_mut().push(time);
    });
    let times = times.into_inner();
    assert_eq!(times.len(), CREWS);
    let best = times.iter().min().unwrap();
    println!("{wanted:?} wanted, {best:?} taken");
    assert!(*best < wanted + MARGIN, "{times:?}");
}

/// Fails by a wrong time when the second attempt waits for the end of the first, or does not wait at all.
#[test]
fn an_attempt_without_an_answer_delays_the_next_by_the_stagger() {
    let (hole, (_listener, good)) = (Hole::new(), listen());
    takes(STAGGER, &[hole.addr, good], good, &[&hole]);
}

/// An address that does not answer costs one stagger; an address that refuses costs none. Fails by a wrong time.
#[test]
fn each_hole_costs_a_stagger_and_a_refusal_nothing() {
    let (one, other, (_listener, good)) = (Hole::new(), Hole::new(), listen());
    takes(2 * STAGGER, &[one.addr, refusing(), other.addr, refusing(), good], good, &[&one, &other]);
}

/// Fails when the dial waits for a stagger although no address is being asked.
#[test]
fn the_next_one_begins_at_once_after_a_refusal() {
    let (_listener, good) = listen();
    takes(Duration::ZERO, &[refusing(), refusing(), good, refusing()], good, &[]);
}

/// A dial takes a limited number of addresses out of the caller's iterator at once. Fails by a hang, or by an error, when the
/// addresses behind these are not tried, or only when the last attempt before them has ended.
#[test]
fn an_address_behind_thousands_is_tried() {
    let (hole, (_listener, good)) = (Hole::new(), listen());
    let mut addrs: Vec<_> = (1..4096).map(|_| refusing()).collect();
    addrs.extend([hole.addr, good]);
    watched(1, || {
        let thread = {
            let addrs = addrs.clone();
            on_thread(move || timed(&addrs).0)
        };
        let rt = runtime(1);
        for reached in [rt.run(move || timed(&addrs).0), thread.join()] {
            assert_eq!(reached.unwrap(), good);
        }
    });
}

/// Fails when the attempt that connects does not win, or an attempt outlives the call.
#[test]
fn an_early_attempt_may_win_while_later_ones_are_under_way() {
    let wins = |run: &dyn Fn(Vec<SocketAddr>) -> common::crew::Member<'static, io::Result<SocketAddr>>| {
        let (one, other) = (Hole::new(), Hole::new());
        let dial = run(vec![one.addr, other.addr]);
        until(|| one.asking() == 1 && other.asking() == 1);
        drop(one.listener.accept().unwrap());
        assert_eq!(dial.join().unwrap(), one.addr);
        assert_eq!((one.asking(), other.asking()), (0, 0));
    };
    watched(0, || wins(&|addrs| on_thread(move || timed(&addrs).0)));
    watched(1, || wins(&|addrs| on_thread(move || runtime(1).run(|| timed(&addrs).0))));
}

/// Fails by an error that does not say what was tried, or by a hang.
#[test]
fn when_all_fail_the_error_names_each() {
    everyone(|crew| {
        let addrs = [refusing(), refusing(), refusing()];
        let refused = crew.run(move || timed(&addrs).0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let text = refused.to_string();
        assert!(addrs.iter().all(|addr| text.contains(&format!("{addr}: Connection refused"))), "{text}");
        let source = std::error::Error::source(refused.get_ref().unwrap()).expect("the last one's");
        let source: &io::Error = source.downcast_ref().unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::ECONNREFUSED));
        // With one address the error is the kernel's.
        let refused = crew.run(move || timed(&addrs[..1]).0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
        let nobody = crew.run(|| timed(&[]).0).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::InvalidInput);
    });
}

/// Fails when the error keeps each of many refusals, or does not say how many it has left out.
#[test]
fn of_many_refusals_the_first_and_the_last_are_named() {
    const MANY: usize = 3000;
    everyone(|crew| {
        let [first, between, last] = [refusing(), refusing(), refusing()];
        let addrs = move |n: usize| match n {
            0 => first,
            n if n == MANY - 1 => last,
            _ => between,
        };
        let addrs: Vec<_> = (0..MANY).map(addrs).collect();
        let text = crew.run(move || timed(&addrs).0).unwrap_err().to_string();
        let named = text.matches(": Connection refused").count();
        assert!(named < 200, "{named}");
        assert!(text.contains(&format!("; {} more failed; ", MANY - named)), "{text}");
        assert!(
            text.starts_with(&format!("connect: every address failed; {first}: Connection refused")),
            "{text}"
        );
        assert!(text.contains(&format!("{last}: Connection refused")), "{text}");
    });
}

/// Fails by a hang when a refusal that comes late, after all have been asked, is not seen.
#[test]
fn refusals_that_come_late_are_counted() {
    let (one, other) = (Hole::new(), Hole::new());
    let addrs = [one.addr, other.addr];
    watched(2, || {
        let dial = on_thread(move || runtime(2).run(|| timed(&addrs).0));
        until(|| one.asking() == 1 && other.asking() == 1);
        // The kernel refuses an attempt that asks again.
        drop((one, other));
        let refused = dial.join().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

/// Fails when the dial does not end at its deadline, by an error that does not say what was tried; or by a hang when
/// an attempt is left.
#[test]
fn a_deadline_holds_for_all_addresses_together() {
    let (one, other, (_listener, good)) = (Hole::new(), Hole::new(), listen());
    everyone(|crew| {
        let addrs = [one.addr, refusing(), other.addr, good];
        // A time that is not zero is long enough to begin the first attempt, also on a busy machine.
        for limit in [Duration::ZERO, STAGGER - MARGIN, STAGGER + MARGIN] {
            let (begin, ended) = crew.run(move || {
                let begin = Instant::now();
                (begin, TcpStream::connect_deadline(&addrs[..], begin + limit).unwrap_err())
            });
            assert_eq!(ended.kind(), ErrorKind::TimedOut);
            assert!(begin.elapsed() >= limit);
            // A child that another test starts has a copy of an attempt's descriptor until the child runs its program.
            until(|| (one.asking(), other.asking()) == (0, 0));
            let text = ended.to_string();
            assert!(addrs.iter().all(|addr| text.contains(&addr.to_string())), "{text}");
            assert!(text.contains(&format!("{good}: not tried")), "{text}");
            if !limit.is_zero() {
                assert!(text.contains(&format!("{}: no answer", one.addr)), "{text}");
            }
        }
        let alone = one.addr;
        let ended = crew.run(move || {
            TcpStream::connect_deadline(alone, Instant::now() + Duration::from_millis(2)).unwrap_err()
        });
        assert_eq!(ended.kind(), ErrorKind::TimedOut);
        // A dial that connects before its deadline.
        let late = Instant::now() + Duration::from_secs(3600);
        assert_eq!(
            crew.run(move || TcpStream::connect_deadline(good, late).unwrap().peer_addr().unwrap()),
            good
        );
    });
}

/// Fails when a dial continues, or an attempt is left.
#[test]
fn a_context_ends_it() {
    let (one, other) = (Hole::new(), Hole::new());
    let addrs = [one.addr, other.addr];
    let error_in = |ended: &io::Error| *ended.get_ref().unwrap().downcast_ref::<ContextError>().unwrap();
    everyone(|crew| {
        let (context, cancel) = Context::background().with_cancel();
        let dial = crew.go(move || context.run(|| TcpStream::connect(&addrs[..]).unwrap_err()).unwrap());
        until(|| one.asking() == 1);
        cancel.cancel();
        assert_eq!(error_in(&dial.join()), ContextError::Canceled);
        assert_eq!((one.asking(), other.asking()), (0, 0));

        let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
        let dial = crew.go(move || context.run(|| TcpStream::connect(&addrs[..]).unwrap_err()).unwrap());
        let ended = dial.join();
        assert_eq!((ended.kind(), error_in(&ended)), (ErrorKind::TimedOut, ContextError::DeadlineExceeded));
        assert_eq!((one.asking(), other.asking()), (0, 0));
    });
}

/// Fails when the end of the runtime takes all of its time, or leaves a goroutine or an attempt.
#[test]
fn the_end_of_the_runtime_ends_it() {
    const LIMIT: Duration = Duration::from_secs(30);
    everywhere(|rt| {
        let (one, other) = (Hole::new(), Hole::new());
        let addrs = [one.addr, other.addr];
        let dials: Vec<_> =
            (0..10).map(|_| rt.go(move || TcpStream::connect(&addrs[..]).map(drop))).collect();
        until(|| one.asking() == 10 && other.asking() == 10);
        let begin = Instant::now();
        let report = rt.shutdown(LIMIT);
        assert!(report.goroutines_left() == 0 && begin.elapsed() < LIMIT / 2, "{:?}", begin.elapsed());
        assert!(dials.into_iter().all(|dial| dial.join().is_err_and(|error| error.is_shutdown())));
        assert_eq!((one.asking(), other.asking()), (0, 0));
    });
}

/// Returns how many sockets and pollers the process has, and how many entries its pollers have. The runtime opens only files
/// for itself while it runs.
fn descriptors() -> (usize, usize) {
    let (mut open, mut watched) = (0, 0);
    for fd in fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap()) {
        // The descriptor of the folder itself is closed by now.
        let Ok(link) = fs::read_link(fd.path()) else { continue };
        let link = link.to_string_lossy();
        open += usize::from(link.starts_with("socket:") || link.starts_with("anon_inode:"));
        let info = format!("/proc/self/fdinfo/{}", fd.file_name().display());
        let info = fs::read_to_string(info).unwrap_or_default();
        watched += info.lines().filter(|line| line.starts_with("tfd:")).count();
    }
    (open, watched)
}

/// Fails when a dial, however it ended, leaves a descriptor, or an entry of a poller.
#[test]
fn dials_that_end_at_random_leave_nothing() {
    if !child::is_child() {
        child::passes("dials_that_end_at_random_leave_nothing", &[]);
        return;
    }
    let (one, other, bad) = (Hole::new(), Hole::new(), refusing());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let good = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for procs in [0, 1, 4] {
        let rt = (procs > 0).then(|| runtime(procs));
        let choices = [
            vec![good, one.addr],
            vec![bad, good],
            vec![one.addr, good],
            vec![one.addr, bad, other.addr, good],
            vec![one.addr, other.addr],
            vec![bad, bad],
        ];
        let dial = move |seed: usize| {
            let mut random = Random::new(seed);
            let end = Instant::now() + Duration::from_millis(1500);
            let mut reached = 0;
            while Instant::now() < end {
                let addrs = random.pick(&choices);
                let limit = random.micros(300_000);
                let (context, cancel) = Context::background().with_timeout(limit);
                if random.one_in(4) {
                    cancel.cancel();
                }
                let connected = match random.below(3) {
                    0 => TcpStream::connect_deadline(&addrs[..], Instant::now() + limit),
                    _ => context.run(|| TcpStream::connect(&addrs[..])).expect("nothing is unwound"),
                };
                reached += usize::from(connected.is_ok());
            }
            reached
        };
        let run = |count: usize| -> usize {
            match &rt {
                Some(rt) => {
                    let dials: Vec<_> = (0..count)
                        .map(|n| {
                            let dial = dial.clone();
                            rt.go(move || dial(n))
                        })
                        .collect();
                    dials.into_iter().map(|dial| dial.join().unwrap()).sum()
                }
                None => {
                    let dials: Vec<_> = (0..count)
                        .map(|n| {
                            let dial = dial.clone();
                            std::thread::spawn(move || dial(n))
                        })
                        .collect();
                    dials.into_iter().map(|dial| dial.join().unwrap()).sum()
                }
            }
        };
        run(1);
        let before = descriptors();
        let reached = run(40);
        println!("procs {procs}: {reached} connected");
        assert!(reached > 0);
        // The listener's thread may still have a descriptor.
        watched(procs, || until(|| descriptors() == before));
        assert_eq!((asking(one.addr), asking(other.addr)), (0, 0));
    }
}

/// Fails by a hang, by CPU time, or by an error that does not name the shortage.
#[test]
fn a_full_descriptor_table_makes_it_slower_or_an_error() {
    if !child::is_child() {
        child::passes("a_full_descriptor_table_makes_it_slower_or_an_error", &[]);
        return;
    }
    let (hole, (_listener, good)) = (Hole::new(), listen());
    let (to_hole, to_good) = ([hole.addr, good], [refusing(), good]);
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: a valid struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let soon = |addrs: &[SocketAddr]| {
        TcpStream::connect_deadline(addrs, Instant::now() + STAGGER + 4 * MARGIN).map(drop)
    };
    // Several tries: a thread of the runtime that opens a file for a moment, or that starts, changes how many are left.
    let expect = |left: usize, addrs: &[SocketAddr], expected: &dyn Fn(&io::Result<()>) -> bool| {
        let mut others = Vec::new();
        for _ in 0..5 {
            let mut full: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
            full.truncate(full.len() - left);
            let came = soon(addrs);
            if expected(&came) {
                return;
            }
            others.push(came);
        }
        panic!("with {left} descriptors: {others:?}");
    };
    let refused = |came: &io::Result<()>| {
        let refused = came.as_ref().err().map(ToString::to_string).unwrap_or_default();
        refused.matches("Too many open files").count() == 2
    };
    let late = |came: &io::Result<()>| {
        let Err(late) = came else { return false };
        let ends = format!("; {}: no answer; {good}: not tried", hole.addr);
        late.kind() == ErrorKind::TimedOut && late.to_string().ends_with(&ends)
    };
    let all = |wait_fds: usize| {
        expect(0, &to_good, &refused);
        // One attempt at a time.
        expect(1, &to_good, &io::Result::is_ok);
        expect(1, &to_hole, &late);
        // The first attempt, and the set, but no second attempt.
        expect(2, &to_hole, &late);
        expect(3 + wait_fds, &to_hole, &io::Result::is_ok);
    };
    // A plain thread needs a descriptor for its wake fd, too.
    watched(0, || all(1));
    let rt = runtime(1);
    watched(1, || rt.run(|| all(0)));
    // The next attempt begins when there is room again.
    let mut full: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    full.truncate(full.len() - 2);
    watched(1, || {
        let dial = on_thread(move || timed(&to_hole).0);
        // Waits for longer than the stagger, so that the second attempt is refused a descriptor, and is tried again.
        let begin = Instant::now();
        until(|| begin.elapsed() > STAGGER + MARGIN);
        drop(full);
        assert_eq!(dial.join().unwrap(), good);
    });
}

/// Fails when the listener sees a connection of a dial whose deadline had passed before the call.
#[test]
fn a_deadline_that_has_passed_makes_no_attempt() {
    let (listener, good) = listen();
    everyone(|crew| {
        for addrs in [vec![good], vec![good, good]] {
            let past = Instant::now();
            let (config, same) = (DialConfig::new().deadline(past), addrs.clone());
            for refused in [
                crew.run(move || TcpStream::connect_deadline(&addrs[..], past).unwrap_err()),
                crew.run(move || config.connect(&same[..]).unwrap_err()),
            ] {
                assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
            }
        }
    });
    // If an attempt had connected, the connection would be in the queue.
    let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 0) }, 0);
}

/// Fails when all addresses are asked at once, by the number of attempts under way that the error tells.
#[test]
fn no_more_than_eight_are_asked_at_once() {
    let hole = Hole::new();
    let asks = {
        let addrs = vec![hole.addr; 40];
        move || {
            let config = DialConfig::new().stagger(Duration::ZERO).timeout(Duration::from_millis(800));
            config.connect(&addrs[..]).unwrap_err().to_string()
        }
    };
    let tells = |text: String| {
        assert_eq!(
            (text.matches(": no answer").count(), text.matches(": not tried").count()),
            (8, 32),
            "{text}"
        );
        until(|| hole.asking() == 0);
    };
    watched(0, || tells(on_thread(asks.clone()).join()));
    watched(1, || tells(runtime(1).run(asks)));
}

/// Fails by a hang of two minutes when the address that answers is never asked, or when an attempt makes way too early.
#[test]
fn the_oldest_makes_way_after_two_seconds() {
    let (hole, (_listener, good)) = (Hole::new(), listen());
    let mut addrs = vec![hole.addr; 9];
    addrs.push(good);
    let dials = move || {
        let begin = Instant::now();
        let stream = DialConfig::new().stagger(Duration::ZERO).connect(&addrs[..]).unwrap();
        (stream.peer_addr().unwrap(), begin.elapsed())
    };
    watched(1, || {
        let (thread, rt) = (on_thread(dials.clone()), runtime(1));
        for (reached, time) in [rt.run(dials), thread.join()] {
            assert_eq!(reached, good);
            println!("{time:?} taken");
            assert!(time >= Duration::from_secs(2), "{time:?}");
        }
    });
    // A child of another test, between fork and exec, may have the sockets for a moment.
    until(|| hole.asking() == 0);
}

/// Fails by an error when the second address counts as refused because the first attempt has the port.
#[test]
fn one_attempt_at_a_time_has_a_port_of_the_callers_own() {
    type Run<'a> =
        &'a dyn Fn(DialConfig, [SocketAddr; 2]) -> common::crew::Member<'static, io::Result<TcpStream>>;
    let dials = |last: u8, run: Run<'_>| {
        let (hole, (_listener, good)) = (Hole::new(), listen());
        // The port stays free: nothing else uses that address.
        let own = SocketAddr::from(([127, 0, 0, last], 0));
        let own = std::net::TcpListener::bind(own).unwrap().local_addr().unwrap();
        let begin = Instant::now();
        let dial = run(DialConfig::new().local_addr(own).stagger(Duration::ZERO), [hole.addr, good]);
        // Waits until the second attempt was begun, too. After the drop, an attempt that asks the first address again is
        // refused.
        until(|| hole.asking() == 1 && begin.elapsed() > 2 * MARGIN);
        drop(hole);
        let stream = dial.join().unwrap();
        assert_eq!((stream.local_addr().unwrap(), stream.peer_addr().unwrap()), (own, good));

        // The error is that the address is in use if no attempt of the call has it.
        let refused = run(DialConfig::new().local_addr(own), [good, good]).join().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
    };
    watched(0, || dials(77, &|config, addrs| on_thread(move || config.connect(&addrs[..]))));
    watched(1, || {
        dials(78, &|config, addrs| on_thread(move || runtime(1).run(|| config.connect(&addrs[..]))))
    });
}
