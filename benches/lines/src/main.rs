//! What `check` traces: `gmp-lines WORKLOAD PS N` has a worker on each P, which does N operations.
//!
//! In a workload on own data, no worker knows of what another works on: a cache line that two of them write is the scheduler's.
//! In the others, all workers use one object. A worker keeps its P from the first meeting to the last: each P has something to
//! run, so that no thief takes from another, and a worker's M is the same at its first operation and at its last.
//!
//! A worker stores the number of an operation into its own line of [`MARKS`] before the operation begins, and [`DONE`] after
//! the last one: by these stores, the reader of the trace knows which thread is at which operation of which worker.

use gmp::chan::{Receiver, Sender, bounded};
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::{Event, Mutex};
use gmp::{JoinHandle, go, yield_now};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// A line of its own, and the one beside it: processors fetch lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

static MARKS: [Line; 64] = [const { Line(AtomicU64::new(0)) }; 64];
const DONE: u64 = u64::MAX;

/// At most so many operations come before those which are traced: pools are filled, and stacks touched.
const WARM: u64 = 300;

/// What all workers of a shared workload use.
/// In lines of its own, so that the count and the mutex share one wherever the allocator has room.
#[repr(align(128))]
struct Shared {
    count: Mutex<u64>,
    sender: Sender<u64>,
    receiver: Receiver<u64>,
}

/// Makes what a worker does, after the workers have met on their Ps. What the closure takes is 0, 1, 2 ..
type Make = fn(&'static Shared) -> Box<dyn FnMut(u64)>;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, workload, ps, n] = &args[..] else { panic!("gmp-lines WORKLOAD PS N") };
    let (ps, n): (usize, u64) =
        (ps.parse().expect("a number of Ps"), n.parse().expect("a number of operations"));
    let make: Make = match workload.as_str() {
        "yield" => |_| yields(),
        "spawn_join" => |_| Box::new(|i| assert_eq!(go(move || i).join().unwrap(), i)),
        "spawn_100" => {
            |_| Box::new(|i| join((0..100).map(|j| go(move || assert!(i + j < u64::MAX))).collect()))
        }
        "fork_join" => |_| Box::new(|i| assert_eq!(gmp::join(move || i, || 1), (i, 1))),
        "park_ready" => |_| park_ready(),
        "ping_pong" => |_| ping_pong(),
        "buffered" => |_| buffered(),
        "select" => |_| select(),
        "new_channel" => |_| Box::new(|i| pass(&bounded(1), i)),
        "mutex" => |_| mutex(),
        "timer_stop" => {
            |_| Box::new(|_| assert!(gmp::time::after_func(Duration::from_secs(3600), || ()).stop()))
        }
        "sleep" => |_| sleep(),
        "socket" => |_| socket(),
        "echo" => |_| echo(),
        "shared_mutex" => |shared| Box::new(|_| *shared.count.lock() += 1),
        "shared_channel" => |shared| {
            Box::new(|i| {
                shared.sender.try_send(i).unwrap();
                shared.receiver.try_recv().unwrap();
            })
        },
        _ => panic!("there is no workload {workload:?}"),
    };
    let (sender, receiver) = bounded(1024);
    let shared: &'static Shared = Box::leak(Box::new(Shared { count: Mutex::new(0), sender, receiver }));
    tell_addresses();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(ps).build() }.expect("a runtime");
    runtime.run(|| join((0..ps).map(|worker| go(move || work(worker, ps, n, make, shared))).collect()));
}

/// Where the marks are, how far apart, and where the program begins in memory.
fn tell_addresses() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the maps of the process");
    let program = std::env::current_exe().expect("the program's path");
    let name = program.file_name().and_then(|name| name.to_str()).expect("the program's name");
    let base = maps.lines().find(|line| line.ends_with(name)).and_then(|line| line.split('-').next());
    println!(
        "{:x} {} {}",
        (&raw const MARKS).addr(),
        size_of::<Line>(),
        base.expect("the program is mapped")
    );
}

fn work(worker: usize, ps: usize, n: u64, make: Make, shared: &'static Shared) {
    static MET: [Line; 3] = [const { Line(AtomicU64::new(0)) }; 3];
    let meet = |meeting: usize| {
        MET[meeting].0.fetch_add(1, SeqCst);
        while MET[meeting].0.load(SeqCst) < ps as u64 {
            // A sleep of the thread: the worker keeps its M and its P.
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    meet(0);
    let mut operation = make(shared);
    let warm = WARM.min(n);
    (0..warm).for_each(&mut operation);
    meet(1);
    for i in warm..warm + n {
        MARKS[worker].0.store(i, Relaxed);
        operation(i);
    }
    MARKS[worker].0.store(DONE, Relaxed);
    meet(2);
    // How a runtime ends depends on where its threads are at that moment.
    std::process::exit(0);
}

fn join(handles: Vec<JoinHandle<()>>) {
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

/// One that yields for ever, so that the P has something to run.
fn go_on() {
    go(|| {
        loop {
            yield_now();
        }
    });
}

/// Two that yield to each other.
fn yields() -> Box<dyn FnMut(u64)> {
    go_on();
    Box::new(|_| yield_now())
}

/// Beside one that yields, whose P looks at the timers meanwhile.
fn sleep() -> Box<dyn FnMut(u64)> {
    go_on();
    Box::new(|_| gmp::time::sleep(Duration::from_micros(1)))
}

/// A round trip: two notifications, two waits.
fn park_ready() -> Box<dyn FnMut(u64)> {
    let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (hears, answers) = (Arc::clone(&ping), Arc::clone(&pong));
    go(move || {
        loop {
            hears.wait();
            answers.notify_one();
        }
    });
    Box::new(move |_| {
        ping.notify_one();
        pong.wait();
    })
}

/// A round trip over two channels without a buffer.
fn ping_pong() -> Box<dyn FnMut(u64)> {
    let ((ping, pinged), (pong, ponged)) = (bounded(0), bounded(0));
    go(move || pinged.iter().for_each(|i: u64| pong.send(i + 1).unwrap()));
    Box::new(move |i| {
        ping.send(i).unwrap();
        assert_eq!(ponged.recv(), Ok(i + 1));
    })
}

/// A number through a channel with room for 128, which another goroutine fills.
fn buffered() -> Box<dyn FnMut(u64)> {
    let (sender, receiver) = bounded(128);
    go(move || (0..u64::MAX).for_each(|i| sender.send(i).unwrap()));
    Box::new(move |i| assert_eq!(receiver.recv(), Ok(i)))
}

/// A number over one of two channels without a buffer, each with a sender of its own.
fn select() -> Box<dyn FnMut(u64)> {
    let ((a, from_a), (b, from_b)) = (bounded(0), bounded(0));
    let send = |sender: Sender<u64>| move || (0..u64::MAX).for_each(|i| sender.send(i).unwrap());
    go(send(a));
    go(send(b));
    Box::new(move |_| {
        let i = gmp::select! {
            recv(from_a) -> i => i,
            recv(from_b) -> i => i,
        };
        assert!(i.is_ok());
    })
}

fn pass((sender, receiver): &(Sender<u64>, Receiver<u64>), i: u64) {
    sender.send(i).unwrap();
    assert_eq!(receiver.recv(), Ok(i));
}

/// Lock, add one, unlock; nobody else wants it.
fn mutex() -> Box<dyn FnMut(u64)> {
    let count = Mutex::new(0);
    Box::new(move |_| *count.lock() += 1)
}

/// The two ends of a TCP connection.
fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accept = go(move || listener.accept().unwrap().0);
    let ends = [TcpStream::connect(address).unwrap(), accept.join().unwrap()];
    ends.iter().for_each(|end| end.set_nodelay(true).unwrap());
    ends
}

/// Sixty-four bytes into a connection, and out of its other end. Nobody waits.
fn socket() -> Box<dyn FnMut(u64)> {
    let [mut one, mut other] = connection();
    Box::new(move |i| {
        let (sent, mut got) = ([i as u8; 64], [0; 64]);
        one.write_all(&sent).unwrap();
        other.read_exact(&mut got).unwrap();
        assert_eq!(sent, got);
    })
}

/// Sixty-four bytes to another goroutine and back: both wait.
fn echo() -> Box<dyn FnMut(u64)> {
    let [mut stream, mut other] = connection();
    go(move || {
        let mut bytes = [0; 64];
        loop {
            other.read_exact(&mut bytes).unwrap();
            other.write_all(&bytes).unwrap();
        }
    });
    Box::new(move |i| {
        let (sent, mut got) = ([i as u8; 64], [0; 64]);
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(sent, got);
    })
}
