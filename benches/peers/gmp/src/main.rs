//! The workloads on gmp.

mod scale;
mod shapes;
mod storm;
mod tails;

use gmp::chan::{Receiver, Sender, bounded};
use gmp::net::{TcpListener, UdpSocket, UnixListener};
use gmp::sync::{Event, Mutex, WaitGroup};
use gmp::{block_on, go, yield_now};
use peer_common::{Args, CUTOFF, Found, Signal};
use std::future::ready;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn main() {
    let args = Args::from_env();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { gmp::Runtime::builder().procs(args.procs).build() }.expect("a runtime");
    rt.run(|| run(&args)).print();
    // What was left running is not the measurement's.
    std::process::exit(0);
}

fn run(args: &Args) -> Found {
    let n = |default| args.n(default);
    match args.workload.as_str() {
        "spawn_join" => peer_common::timed(n(1_000_000), spawn_join),
        "yield_2" => peer_common::timed(n(4_000_000), |n| yields(2, n)),
        "yield_1000" => peer_common::timed(n(4_000_000), |n| yields(1000, n)),
        "ping_pong" => peer_common::timed(n(1_000_000), ping_pong),
        "block_on_ready" => peer_common::timed(n(50_000_000), block_on_ready),
        "self_wake" => peer_common::timed(n(20_000_000), |n| block_on(peer_common::wake_itself(n))),
        "waker_ping_pong" => peer_common::timed(n(2_000_000), waker_ping_pong),
        "event_ping_pong" => peer_common::timed(n(2_000_000), event_ping_pong),
        "buffered_1x1" => peer_common::timed(n(8_000_000), |n| buffered(1, n)),
        "buffered_4x4" => peer_common::timed(n(4_000_000), |n| buffered(4, n)),
        "select" => peer_common::timed(n(1_000_000), select),
        "fan_in" => peer_common::timed(n(1_000_000), fan_in),
        "mutex_1" => peer_common::timed(n(20_000_000), |n| mutex(1, n)),
        "mutex_8" => peer_common::timed(n(8_000_000), |n| mutex(8, n)),
        "skynet" => skynet(n(1_000_000)),
        "timer_stop" => peer_common::timed(n(2_000_000), timer_stop),
        "oversleep" => oversleep(n(2_000)),
        "parked" => parked(n(1_000_000)),
        "hog" => hog(n(20), args.procs),
        "blocking" => blocking(|| std::thread::sleep(Duration::from_millis(1))),
        "blocking_marked" => blocking(|| gmp::blocking(|| std::thread::sleep(Duration::from_millis(1)))),
        "cached_files" => cached_files(n(4_000_000)),
        "storm" => storm::storm(n(3000)),
        "merge_sort" => peer_common::timed_sort(n(1_000_000), sort),
        "echo" => echo::<4096>(),
        "small_echo" => echo::<64>(),
        "unix_echo" => unix_echo(),
        "udp_echo" => udp_echo(),
        _ => shapes::run(args)
            .or_else(|| scale::run(args))
            .or_else(|| tails::run(args))
            .unwrap_or_else(|| args.unknown()),
    }
}

/// Each a goroutine.
fn cached_files(n: u64) -> Found {
    use gmp::fs::{File, unix::FileExt};
    peer_common::many_descriptors();
    let files: Vec<_> = peer_common::cached_files().into_iter().map(File::from).map(Arc::new).collect();
    peer_common::timed_with_cpu(n, |n| {
        let reads = n / files.len() as u64;
        let read = |file: &Arc<File>| {
            let file = Arc::clone(file);
            go(move || {
                peer_common::read_pages(reads, |page, at| {
                    assert_eq!(file.read_at(page, at).unwrap(), page.len())
                });
            })
        };
        let handles: Vec<_> = files.iter().map(read).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    })
}

fn spawn_join(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    let each = |i| {
        go(move || {
            SUM.fetch_add(i, Relaxed);
        })
    };
    let handles: Vec<_> = (0..n).map(each).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}

fn yields(goroutines: u64, n: u64) {
    let each = |_| go(move || (0..n / goroutines).for_each(|_| yield_now()));
    let handles: Vec<_> = (0..goroutines).map(each).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

fn ping_pong(n: u64) {
    let ((ping, pinged), (pong, ponged)) = (bounded(0), bounded(0));
    let other = go(move || pinged.iter().for_each(|i: u64| pong.send(i + 1).unwrap()));
    for i in 0..n {
        ping.send(i).unwrap();
        assert_eq!(ponged.recv(), Ok(i + 1));
    }
    drop(ping);
    other.join().unwrap();
}

fn block_on_ready(n: u64) {
    (0..n).for_each(|i| assert_eq!(block_on(ready(black_box(i))), i));
}

fn event_ping_pong(n: u64) {
    let events: Arc<[Event; 2]> = Arc::default();
    let theirs = Arc::clone(&events);
    let other = go(move || {
        for _ in 0..n {
            theirs[0].wait();
            theirs[1].notify_one();
        }
    });
    for _ in 0..n {
        events[0].notify_one();
        events[1].wait();
    }
    other.join().unwrap();
}

fn waker_ping_pong(n: u64) {
    let signals: Arc<[Signal; 2]> = Arc::default();
    let theirs = Arc::clone(&signals);
    let other = go(move || {
        for _ in 0..n {
            block_on(theirs[0].take());
            theirs[1].give();
        }
    });
    for _ in 0..n {
        signals[0].give();
        block_on(signals[1].take());
    }
    other.join().unwrap();
}

fn buffered(each: u64, n: u64) {
    let (sender, receiver) = bounded(128);
    let send = |sender: Sender<u64>| move || (0..n / each).for_each(|i| sender.send(i).unwrap());
    let receive = |receiver: Receiver<u64>| move || receiver.iter().sum::<u64>();
    let senders: Vec<_> = (0..each).map(|_| go(send(sender.clone()))).collect();
    let receivers: Vec<_> = (0..each).map(|_| go(receive(receiver.clone()))).collect();
    drop((sender, receiver));
    senders.into_iter().for_each(|handle| handle.join().unwrap());
    let sum: u64 = receivers.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, each * peer_common::sum_below(n / each));
}

fn select(n: u64) {
    let (a, from_a) = bounded(0);
    let (b, from_b) = bounded(0);
    let send = |sender: Sender<u64>| move || (0..n / 2).for_each(|i| sender.send(i).unwrap());
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [go(send(a.clone())), go(send(b.clone()))];
    let mut sum = 0;
    for _ in 0..n / 2 * 2 {
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, 2 * peer_common::sum_below(n / 2));
    senders.into_iter().for_each(|handle| handle.join().unwrap());
}

fn fan_in(n: u64) {
    let (into, from_both) = bounded(128);
    let send = |_| {
        let (sender, receiver) = bounded(0);
        let into = into.clone();
        let forwards = go(move || receiver.iter().for_each(|i: u64| into.send(i).unwrap()));
        [go(move || (0..n / 2).for_each(|i| sender.send(i).unwrap())), forwards]
    };
    let arms: Vec<_> = (0..2).flat_map(send).collect();
    drop(into);
    assert_eq!(from_both.iter().sum::<u64>(), 2 * peer_common::sum_below(n / 2));
    arms.into_iter().for_each(|handle| handle.join().unwrap());
}

fn mutex(goroutines: u64, n: u64) {
    let count = Arc::new(Mutex::new(0));
    let each = |_| {
        let count = Arc::clone(&count);
        go(move || (0..n / goroutines).for_each(|_| *count.lock() += 1))
    };
    let handles: Vec<_> = (0..goroutines).map(each).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(*count.lock(), n / goroutines * goroutines);
}

fn skynet(leaves: u64) -> Found {
    fn node(to: Sender<u64>, first: u64, size: u64) {
        if size == 1 {
            return to.send(first).unwrap();
        }
        let (sender, receiver) = bounded(0);
        for child in 0..10 {
            let sender = sender.clone();
            go(move || node(sender, first + child * (size / 10), size / 10));
        }
        to.send((0..10).map(|_| receiver.recv().unwrap()).sum()).unwrap();
    }
    let run = |leaves: u64| {
        let (sender, receiver) = bounded(0);
        go(move || node(sender, 0, leaves));
        assert_eq!(receiver.recv(), Ok(peer_common::sum_below(leaves)));
    };
    run(leaves / 10);
    let start = Instant::now();
    run(leaves);
    peer_common::per_op(start.elapsed(), leaves)
}

fn timer_stop(n: u64) {
    for _ in 0..n {
        assert!(gmp::time::after_func(Duration::from_secs(3600), || ()).stop());
    }
}

fn oversleep(n: u64) -> Found {
    let sleep = |_| {
        let start = Instant::now();
        gmp::time::sleep(Duration::from_millis(1));
        start.elapsed()
    };
    peer_common::oversleep((0..n).map(sleep).collect())
}

fn parked(n: u64) -> Found {
    let before = peer_common::resident();
    let (sender, receiver) = bounded::<()>(0);
    let arrived = Arc::new(AtomicU64::new(0));
    let clock = peer_common::Clock::new();
    let each = |_| {
        let (receiver, arrived) = (receiver.clone(), Arc::clone(&arrived));
        go(move || {
            arrived.fetch_add(1, Relaxed);
            assert!(receiver.recv().is_err());
        })
    };
    let handles: Vec<_> = (0..n).map(each).collect();
    while arrived.load(SeqCst) < n {
        yield_now();
    }
    let found = clock.per_op(n);
    let bytes = peer_common::resident() - before;
    drop(sender);
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    found.with("bytes", bytes as f64 / n as f64)
}

/// The last hog that begins starts one more goroutine, and spins too.
fn hog(rounds: u64, procs: usize) -> Found {
    let round = |_| {
        let (spinning, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = bounded(1);
        let spin = |_| {
            let (spinning, over, sender) = (Arc::clone(&spinning), Arc::clone(&over), sender.clone());
            go(move || {
                if spinning.fetch_add(1, SeqCst) + 1 == procs {
                    let start = Instant::now();
                    go(move || sender.send(start.elapsed()).unwrap());
                }
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let hogs: Vec<_> = (0..procs).map(spin).collect();
        let waited: Duration = receiver.recv().unwrap();
        over.store(true, SeqCst);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        waited
    };
    peer_common::waits((0..rounds).map(round).collect())
}

fn blocking(sleep: impl Fn() + Copy + Send + Sync + 'static) -> Found {
    let run = |times| {
        let group = WaitGroup::new();
        for _ in 0..100 {
            group.go(move || (0..times).for_each(|_| sleep()));
        }
        group.wait();
    };
    run(2);
    let start = Instant::now();
    run(20);
    Found::new(start.elapsed().as_secs_f64() * 1e3)
}

fn sort(numbers: &mut [u64], space: &mut [u64]) {
    if numbers.len() <= CUTOFF {
        return peer_common::sort_leaf(numbers);
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_space, right_space) = space.split_at_mut(middle);
    gmp::scope(|scope| {
        scope.go(|| sort(left, left_space));
        sort(right, right_space);
    });
    space.copy_from_slice(numbers);
    peer_common::merge(space, middle, numbers);
}

/// With so many bytes for what is read.
fn echo<const ROOM: usize>() -> Found {
    peer_common::many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        go(move || serve::<ROOM>(stream));
    }
}

fn unix_echo() -> Found {
    peer_common::many_descriptors();
    let path = peer_common::socket_path();
    let listener = UnixListener::bind(&path).unwrap();
    println!("{}", path.display());
    loop {
        let (stream, _) = listener.accept().unwrap();
        go(move || serve::<4096>(stream));
    }
}

fn serve<const ROOM: usize>(mut stream: impl Read + Write) {
    let mut buffer = [0; ROOM];
    while let Ok(got @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(black_box(&buffer[..got])).is_err() {
            return;
        }
    }
}

fn udp_echo() -> Found {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    println!("{}", socket.local_addr().unwrap().port());
    let mut buffer = [0; 4096];
    loop {
        let (got, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(black_box(&buffer[..got]), from).unwrap();
    }
}
