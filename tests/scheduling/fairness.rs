//! Every runnable goroutine runs: none waits behind goroutines that wake each other or yield.

use crate::measure::{alone, percentile, spin_for};
use common::cpu::process_time;
use common::descriptors::allow_descriptors;
use common::{effort, runtime, until, watched};
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::Event;
use gmp::time::sleep;
use gmp::{Runtime, go, go_fair, yield_now};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Counts of turns, and whether the goroutines that count are to stop.
#[derive(Default)]
struct Turns {
    stop: AtomicBool,
    counts: Mutex<Vec<(&'static str, Arc<AtomicUsize>)>>,
}

impl Turns {
    /// Makes a new count. Returns a function that counts one more turn, and says whether to go on.
    fn counter(self: &Arc<Self>, of: &'static str) -> impl Fn() -> bool + Send + 'static {
        let (this, count) = (Arc::clone(self), Arc::new(AtomicUsize::new(0)));
        self.counts.lock().unwrap().push((of, Arc::clone(&count)));
        move || {
            count.fetch_add(1, SeqCst);
            !this.stop.load(SeqCst)
        }
    }
}

/// Starts two goroutines, each of which readies the other and waits, until they are told to stop.
fn ping_pong(rt: &Runtime, turns: &Arc<Turns>) {
    let events = Arc::new([Event::new(), Event::new()]);
    for me in [0, 1] {
        let (events, next) = (Arc::clone(&events), turns.counter("ping-pong"));
        drop(rt.go(move || {
            // The first goroutine begins.
            if me == 1 {
                events[me].wait();
            }
            while next() {
                events[1 - me].notify_one();
                events[me].wait();
            }
            // The other goroutine may wait for the last time.
            events[1 - me].notify_one();
        }));
    }
}

/// Starts two goroutines that compute for a time, and wake each other. Returns the count of their turns.
fn pair_that_computes(rt: &Runtime, turns: &Arc<Turns>, each: Duration) -> Arc<AtomicUsize> {
    let events = Arc::new([Event::new(), Event::new()]);
    let computed = Arc::new(AtomicUsize::new(0));
    for me in [0, 1] {
        let (events, next, computed) = (Arc::clone(&events), turns.counter("pair"), Arc::clone(&computed));
        drop(rt.go(move || {
            // The first goroutine begins.
            if me == 1 {
                events[me].wait();
            }
            while next() {
                spin_for(each);
                computed.fetch_add(1, SeqCst);
                events[1 - me].notify_one();
                events[me].wait();
            }
            events[1 - me].notify_one();
        }));
    }
    computed
}

/// Returns how many turns of such a pair come between two turns of a goroutine that yields, beside the goroutines that `beside`
/// starts.
fn turns_beside_one_that_yields(each: Duration, beside: impl FnOnce(&Runtime, &Arc<Turns>)) -> Vec<usize> {
    const TURNS: usize = 20;
    let (rt, turns) = (runtime(1), Arc::new(Turns::default()));
    beside(&rt, &turns);
    let computed = pair_that_computes(&rt, &turns, each);
    let gaps = rt.go(move || {
        let mut gaps = Vec::new();
        for _ in 0..TURNS {
            let before = computed.load(SeqCst);
            yield_now();
            gaps.push(computed.load(SeqCst) - before);
        }
        gaps
    });
    let gaps = gaps.join().unwrap();
    end_pair(&rt, &turns, &gaps);
    gaps
}

fn end_pair(rt: &Runtime, turns: &Turns, gaps: &[usize]) {
    turns.stop.store(true, SeqCst);
    let (usual, most) = (percentile(gaps, 50), percentile(gaps, 90));
    println!("turns of the pair between two of the other: p50 {usual}, p90 {most}");
    until(|| rt.num_goroutines() == 0);
}

/// The pair computes for a millisecond at a time. Fails when, in the median, more than four turns of the pair come between two
/// turns of a goroutine that yields. The test counts turns, not time.
#[test]
fn a_pair_that_computes_leaves_turns_to_others() {
    let _alone = alone();
    watched(1, || {
        let gaps = turns_beside_one_that_yields(MS, |_, _| ());
        assert!(percentile(&gaps, 50) <= 4, "{gaps:?}");
    });
}

/// As `a_pair_that_computes_leaves_turns_to_others`, with shorter turns, beside goroutines that stand in the global queue one
/// after the other: a visit takes one of them every half a millisecond. Fails when that begins the pair's slice anew.
#[test]
fn a_pair_that_computes_leaves_turns_to_others_beside_visits() {
    const PART: Duration = Duration::from_micros(300);
    fn chain(next: impl Fn() -> bool + Send + 'static) {
        drop(go_fair(move || {
            spin_for(PART);
            if next() {
                chain(next);
            }
        }));
    }
    let _alone = alone();
    watched(1, || {
        let gaps = turns_beside_one_that_yields(PART, |rt, turns| {
            let next = turns.counter("global queue");
            drop(rt.go(move || chain(next)));
        });
        assert!(percentile(&gaps, 50) <= 4, "{gaps:?}");
    });
}

/// The pair has its P for itself, and a plain thread wakes a goroutine now and then, which asks a partner six times. Fails
/// when, in the median, more than two turns of the pair come before the last answer: an empty ring makes the pair's slice no
/// longer, and the goroutine and its partner have a slice of their own.
#[test]
fn a_pair_that_computes_alone_leaves_turns_to_arrivals() {
    const TURNS: usize = 20;
    const TRIPS: usize = 6;
    let _alone = alone();
    watched(1, || {
        let (rt, turns) = (runtime(1), Arc::new(Turns::default()));
        let computed = pair_that_computes(&rt, &turns, MS);
        let (call, (answer, answers)) = (Arc::new(Event::new()), std::sync::mpsc::channel());
        let (called, counted) = (Arc::clone(&call), Arc::clone(&computed));
        let (ask, reply) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let (asked, replies) = (Arc::clone(&ask), Arc::clone(&reply));
        drop(rt.go(move || {
            for _ in 0..TURNS * TRIPS {
                asked.wait();
                replies.notify_one();
            }
        }));
        drop(rt.go(move || {
            for _ in 0..TURNS {
                called.wait();
                for _ in 0..TRIPS {
                    ask.notify_one();
                    reply.wait();
                }
                answer.send(counted.load(SeqCst)).unwrap();
            }
        }));
        let gap = |_| {
            let last = computed.load(SeqCst);
            // By then the pair is in a slice that was not begun by the goroutine.
            until(|| computed.load(SeqCst) > last + 4);
            let before = computed.load(SeqCst);
            call.notify_one();
            answers.recv().unwrap() - before
        };
        let gaps = Vec::from_iter((0..TURNS).map(gap));
        end_pair(&rt, &turns, &gaps);
        assert!(percentile(&gaps, 50) <= 2, "{gaps:?}");
    });
}

/// Fails by a count of turns near zero after a second of CPU time a P, or by submissions that start only after the end, because
/// goroutines that wake each other hand their P to and fro, and no other goroutine gets it.
#[test]
fn pairs_that_wake_each_other_starve_nobody() {
    const YIELDING: usize = 26;
    let _alone = alone();
    for (procs, pairs) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        watched(procs, || {
            let (rt, turns) = (runtime(procs), Arc::new(Turns::default()));
            (0..pairs).for_each(|_| ping_pong(&rt, &turns));
            for _ in 0..YIELDING {
                let next = turns.counter("yield");
                drop(rt.go(move || {
                    while next() {
                        yield_now();
                    }
                }));
            }
            let next = turns.counter("sleep");
            drop(rt.go(move || {
                while next() {
                    sleep(MS);
                }
            }));
            let (submitted, begun) = (turns.counter("submission"), process_time());
            let counts = || -> Vec<_> {
                turns.counts.lock().unwrap().iter().map(|(of, count)| (*of, count.load(SeqCst))).collect()
            };
            let least = |of: &str, counts: &[(&str, usize)]| {
                counts.iter().filter(|(what, _)| *what == of).map(|(_, count)| *count).min()
            };
            let bounds = [("ping-pong", 100), ("yield", 100), ("sleep", 20), ("submission", 20)];
            let enough = || bounds.iter().all(|(of, bound)| least(of, &counts()) >= Some(*bound));
            // Of CPU time for each P: long enough to see who starves, and the most.
            let [long, most] = [200, 1000].map(|ms| procs as u32 * ms * MS);
            thread::scope(|s| {
                s.spawn(|| {
                    while submitted() {
                        rt.go(|| ()).join().unwrap();
                        thread::sleep(MS);
                    }
                });
                let ran = || process_time() - begun;
                while ran() < long || !enough() && ran() < most {
                    thread::sleep(MS);
                }
                turns.stop.store(true, SeqCst);
            });
            println!("procs = {procs}, {pairs} pairs, {:?}: {:?}", process_time() - begun, counts());
            assert!(enough(), "procs = {procs}, {pairs} pairs: {:?}", counts());
            until(|| rt.num_goroutines() == 0);
        });
    }
}

/// Fails when one count runs away, because a yield continues with the caller, or puts the caller at the head of the queue.
#[test]
fn goroutines_that_yield_take_turns() {
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        rt.run(|| {
            let taking_turns = [0, 1].map(|me| {
                let counts = Arc::clone(&counts);
                go(move || {
                    // Goes on when both have begun.
                    counts[me].fetch_add(1, SeqCst);
                    until(|| counts[1 - me].load(SeqCst) > 0);
                    for _ in 0..1000 {
                        let [mine, other] = [me, 1 - me].map(|one| counts[one].load(SeqCst));
                        assert!(other >= 1000 || mine.abs_diff(other) <= 10, "{mine} and {other}");
                        counts[me].fetch_add(1, SeqCst);
                        yield_now();
                    }
                })
            });
            taking_turns.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// More goroutines than the queue of a P holds are ready all the time. Fails when goroutines that come back from the global
/// queue run more rarely than others.
#[test]
fn a_thousand_that_yield_have_equal_turns() {
    let each = 200 * effort() as usize;
    watched(1, || {
        let (rt, turns) = (runtime(1), Arc::new(AtomicUsize::new(0)));
        let all = rt.run(move || {
            let yielding = |_| {
                let turns = Arc::clone(&turns);
                go(move || {
                    let mut own = 0_usize;
                    while turns.fetch_add(1, SeqCst) < each * 1000 {
                        own += 1;
                        yield_now();
                    }
                    own
                })
            };
            let all: Vec<_> = (0..1000).map(yielding).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        println!("{least} to {most} turns");
        assert!(each / 2 < *least && *most < each * 2, "{least} to {most} turns");
    });
}

/// Two goroutines keep `ALIVE` others alive, and yield when there are as many: the ring of a P, which holds a quarter of them,
/// is never empty.
#[derive(Default)]
struct Storm {
    over: AtomicBool,
    live: AtomicUsize,
    /// How many of the others have run.
    ran: AtomicUsize,
}

impl Storm {
    const ALIVE: usize = 1000;

    fn rage(rt: &Runtime) -> Arc<Self> {
        let this = Arc::new(Storm::default());
        for _ in 0..2 {
            let storm = Arc::clone(&this);
            drop(rt.go(move || {
                while !storm.over.load(SeqCst) {
                    if storm.live.load(SeqCst) >= Self::ALIVE {
                        yield_now();
                        continue;
                    }
                    storm.live.fetch_add(1, SeqCst);
                    let of = Arc::clone(&storm);
                    drop(go(move || {
                        of.ran.fetch_add(1, SeqCst);
                        of.live.fetch_sub(1, SeqCst);
                    }));
                }
            }));
        }
        until(|| this.ran() > 10 * Self::ALIVE);
        this
    }

    fn ran(&self) -> usize {
        self.ran.load(SeqCst)
    }
}

/// Returns how many of a storm's goroutines run while another goroutine waits, by what that goroutine waits for.
fn waits_in_a_storm(procs: usize) -> Vec<(&'static str, Vec<usize>)> {
    const TIMES: usize = 50;
    let rt = runtime(procs);
    let storm = Storm::rage(&rt);
    // A thread that begins a wait reads the count after the beginning: the kernel may preempt the thread in between, and that
    // time is not the runtime's.
    let submit = |_| {
        let seen = Arc::clone(&storm);
        let submitted = rt.go(move || seen.ran());
        let before = storm.ran();
        submitted.join().unwrap().saturating_sub(before)
    };
    let submissions = (0..TIMES).map(submit).collect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut near = listener.accept().unwrap().0;
    let (heard, hears) = std::sync::mpsc::channel();
    let seen = Arc::clone(&storm);
    let reader = rt.go(move || {
        while far.read(&mut [0]).unwrap() == 1 {
            heard.send(seen.ran()).unwrap();
        }
    });
    let message = |_| {
        near.write_all(&[1]).unwrap();
        let before = storm.ran();
        hears.recv().unwrap().saturating_sub(before)
    };
    let messages = (0..TIMES).map(message).collect();
    near.shutdown(std::net::Shutdown::Both).unwrap();
    reader.join().unwrap();
    let inside = Arc::clone(&storm);
    let [yields, joins] = rt.run(move || {
        let during = |it: &dyn Fn()| {
            let once = |_| {
                let before = inside.ran();
                it();
                inside.ran() - before
            };
            (0..TIMES).map(once).collect::<Vec<_>>()
        };
        [during(&|| yield_now()), during(&|| go(|| ()).join().unwrap())]
    });
    storm.over.store(true, SeqCst);
    until(|| rt.num_goroutines() == 0);
    vec![("submission", submissions), ("message", messages), ("yield", yields), ("join", joins)]
}

/// Fails by tens of thousands when goroutines that come through the global queue or the poller, or that an overflow has sent
/// there, are overtaken again and again by new ones. The test counts goroutines, not time. With two Ps the goroutines of the
/// other P count, too, while the kernel keeps a thread from its core.
#[test]
fn nobody_starves_in_a_storm_of_spawns() {
    let _alone = alone();
    for procs in [1, 2] {
        let waits = watched(procs, || waits_in_a_storm(procs));
        for (of, waits) in waits {
            let (usual, most) = (percentile(&waits, 50), percentile(&waits, 90));
            println!("procs = {procs}, {of}: p50 {usual}, p90 {most}, worst {}", percentile(&waits, 100));
            assert!(usual <= 3 * Storm::ALIVE, "procs = {procs}, {of}: p50 {usual}, p90 {most}");
            assert!(procs > 1 || most <= 6 * Storm::ALIVE, "{of}: p50 {usual}, p90 {most}");
        }
    }
}

/// Sends a byte on each connection, and again after each answer, until there are `answers` answers. Returns for each answer how
/// many others came during the wait for it.
fn keep_busy(connections: &[std::net::TcpStream], answers: usize) -> Vec<usize> {
    // SAFETY: it takes a number.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0, "epoll_create1: {}", std::io::Error::last_os_error());
    for (at, mut stream) in connections.iter().enumerate() {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: at as u64 };
        // SAFETY: both descriptors are open, the event is ours.
        let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &mut event) };
        assert_eq!(added, 0, "epoll_ctl: {}", std::io::Error::last_os_error());
        stream.write_all(&[0]).unwrap();
    }
    let (mut asked, mut waits) = (vec![0; connections.len()], Vec::new());
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    while waits.len() < answers {
        // SAFETY: room for so many events.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) };
        assert!(ready > 0, "epoll_wait: {}", std::io::Error::last_os_error());
        for event in &events[..ready as usize] {
            let at = event.u64 as usize;
            let mut stream = &connections[at];
            stream.read_exact(&mut [0]).unwrap();
            waits.push(waits.len() - asked[at]);
            asked[at] = waits.len();
            stream.write_all(&[0]).unwrap();
        }
    }
    // SAFETY: ours, and not used any more.
    unsafe { libc::close(epoll) };
    waits
}

/// Fails when connections that ask last are answered next, because goroutines from the poller go before goroutines that have
/// waited longer in the global queue. The queue of a P holds a quarter of the connections.
#[test]
fn connections_are_served_in_turn() {
    const CONNECTIONS: usize = 1000;
    let _alone = alone();
    allow_descriptors(2 * CONNECTIONS as u64 + 100);
    watched(1, || {
        let rt = runtime(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |_| {
            let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = listener.accept().unwrap().0;
            near.set_nodelay(true).and(far.set_nodelay(true)).unwrap();
            drop(rt.go(move || {
                let mut byte = [0; 16];
                // The connection ends in the middle of an answer.
                while matches!(far.read(&mut byte), Ok(1)) && far.write_all(&byte[..1]).is_ok() {}
            }));
            near
        };
        let connections: Vec<_> = (0..CONNECTIONS).map(connect).collect();
        let waits = keep_busy(&connections, CONNECTIONS * 20 * effort() as usize);
        // Leaves out the first rounds, in which some connections had not asked yet.
        let waits = &waits[2 * CONNECTIONS..];
        let [least, usual, most] = [10, 50, 90].map(|percent| percentile(waits, percent));
        println!("answers for others meanwhile: p10 {least}, median {usual}, p90 {most}");
        assert!(
            CONNECTIONS * 3 / 4 < least && most < CONNECTIONS * 5 / 4,
            "answers for others meanwhile: p10 {least}, p90 {most}"
        );
        drop(connections);
        until(|| rt.num_goroutines() == 0);
    });
}
