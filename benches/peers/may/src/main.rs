//! The workloads on may.

mod shapes;

use may::coroutine::{self, yield_now};
use may::net::{TcpListener, UdpSocket};
use may::os::unix::net::UnixListener;
use may::sync::{Mutex, mpmc, mpsc};
use peer_common::{Args, CUTOFF, Found};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn main() {
    let args = Args::from_env();
    // It makes as many coroutines when it begins, and keeps them for reuse; the default is a thousand. As many as are alive at
    // a time, but where the memory of each is asked for, which must not have been taken before.
    let kept = if args.workload == "small_echo" { 1 } else { 11_000 };
    may::config().set_workers(args.procs).set_pool_capacity(kept);
    if args.workload == "hog" {
        hog(args.procs).print();
    } else {
        go(move || run(&args)).join().unwrap().print();
    }
    std::process::exit(0);
}

fn go<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> coroutine::JoinHandle<T> {
    // SAFETY: nothing here keeps a thread-local, and 32 KiB of stack are enough.
    unsafe { coroutine::spawn(f) }
}

fn run(args: &Args) -> Found {
    let n = |default| args.n(default);
    match args.workload.as_str() {
        "spawn_join" => peer_common::timed(n(100_000), spawn_join),
        "yield_2" => peer_common::timed(n(4_000_000), |n| yields(2, n)),
        "yield_1000" => peer_common::timed(n(4_000_000), |n| yields(1000, n)),
        "ping_pong" => peer_common::timed(n(1_000_000), ping_pong),
        "buffered_1x1" => peer_common::timed(n(4_000_000), buffered_1x1),
        "buffered_4x4" => peer_common::timed(n(2_000_000), buffered_4x4),
        "select" => peer_common::timed(n(5_000), select),
        "fan_in" => peer_common::timed(n(1_000_000), fan_in),
        "mutex_1" => peer_common::timed(n(10_000_000), |n| mutex(1, n)),
        "mutex_8" => peer_common::timed(n(4_000_000), |n| mutex(8, n)),
        "skynet" => skynet(n(10_000)),
        "oversleep" => oversleep(n(2_000)),
        "blocking" => blocking(),
        "merge_sort" => peer_common::timed_sort(n(1_000_000), sort),
        "echo" => echo::<4096>(),
        "small_echo" => echo::<64>(),
        "unix_echo" => unix_echo(),
        "udp_echo" => udp_echo(),
        _ => shapes::run(args).unwrap_or_else(|| args.unknown()),
    }
}

/// In portions: it has no room for a million at a time.
fn spawn_join(n: u64) {
    const PORTION: u64 = 10_000;
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    for first in (0..n).step_by(PORTION as usize) {
        let each = |i| {
            go(move || {
                SUM.fetch_add(i, Relaxed);
            })
        };
        let handles: Vec<_> = (first..n.min(first + PORTION)).map(each).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}

fn yields(coroutines: u64, n: u64) {
    let each = |_| go(move || (0..n / coroutines).for_each(|_| yield_now()));
    let handles: Vec<_> = (0..coroutines).map(each).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

fn ping_pong(n: u64) {
    let ((ping, pinged), (pong, ponged)) = (mpsc::channel::<u64>(), mpsc::channel());
    let other = go(move || pinged.iter().for_each(|i| pong.send(i + 1).unwrap()));
    for i in 0..n {
        ping.send(i).unwrap();
        assert_eq!(ponged.recv(), Ok(i + 1));
    }
    drop(ping);
    other.join().unwrap();
}

/// Its channels have no bound.
fn buffered_1x1(n: u64) {
    let (sender, receiver) = mpsc::channel();
    let sending = go(move || (0..n).for_each(|i| sender.send(i).unwrap()));
    let receiving = go(move || receiver.iter().sum::<u64>());
    sending.join().unwrap();
    assert_eq!(receiving.join().unwrap(), peer_common::sum_below(n));
}

fn buffered_4x4(n: u64) {
    let (sender, receiver) = mpmc::channel();
    let send = |_| {
        let sender = sender.clone();
        go(move || (0..n / 4).for_each(|i| sender.send(i).unwrap()))
    };
    let receive = |_| {
        let receiver = receiver.clone();
        go(move || (0..n / 4).map(|_| receiver.recv().unwrap()).sum::<u64>())
    };
    let senders: Vec<_> = (0..4).map(send).collect();
    let receivers: Vec<_> = (0..4).map(receive).collect();
    senders.into_iter().for_each(|handle| handle.join().unwrap());
    let sum: u64 = receivers.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, 4 * peer_common::sum_below(n / 4));
}

/// Its `select!` starts a coroutine for each arm each time, and an arm that is too late loses what it has received: so each
/// sender has a number for every item, and what is looked at is that none comes twice.
fn select(n: u64) {
    let ((a, from_a), (b, from_b)) = (mpsc::channel::<u64>(), mpsc::channel::<u64>());
    let send = |sender: mpsc::Sender<u64>| {
        go(move || {
            // Until nobody receives any more.
            (0..n).all(|i| sender.send(i).is_ok());
        })
    };
    let senders = [send(a), send(b)];
    let (mut in_a, mut in_b, mut next) = (0, 0, [0; 2]);
    for _ in 0..n {
        let which = may::select!(
            i = from_a.recv() => in_a = i.unwrap(),
            i = from_b.recv() => in_b = i.unwrap()
        );
        let i = [in_a, in_b][which];
        assert!(i >= next[which]);
        next[which] = i + 1;
    }
    drop((from_a, from_b));
    senders.into_iter().for_each(|handle| handle.join().unwrap());
}

/// A `cqueue` has a coroutine for each arm, which receives ahead of whoever polls.
fn fan_in(n: u64) {
    let ((a, from_a), (b, from_b)) = (mpsc::channel::<u64>(), mpsc::channel::<u64>());
    let send = |sender: mpsc::Sender<u64>| move || (0..n / 2).for_each(|i| sender.send(i).unwrap());
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [go(send(a.clone())), go(send(b.clone()))];
    let sum = AtomicU64::new(0);
    may::cqueue::scope(|cqueue| {
        may::cqueue_add!(cqueue, 0, i = from_a.recv() => { sum.fetch_add(i.unwrap(), Relaxed); });
        may::cqueue_add!(cqueue, 1, i = from_b.recv() => { sum.fetch_add(i.unwrap(), Relaxed); });
        (0..n / 2 * 2).for_each(|_| assert!(cqueue.poll(None).is_ok()));
        // An arm takes what it was polled for before it waits again.
        while sum.load(Relaxed) < 2 * peer_common::sum_below(n / 2) {
            yield_now();
        }
    });
    assert_eq!(sum.load(Relaxed), 2 * peer_common::sum_below(n / 2));
    senders.into_iter().for_each(|handle| handle.join().unwrap());
}

fn mutex(coroutines: u64, n: u64) {
    let count = Arc::new(Mutex::new(0));
    let each = |_| {
        let count = Arc::clone(&count);
        go(move || (0..n / coroutines).for_each(|_| *count.lock().unwrap() += 1))
    };
    let handles: Vec<_> = (0..coroutines).map(each).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(*count.lock().unwrap(), n / coroutines * coroutines);
}

fn skynet(leaves: u64) -> Found {
    fn node(to: mpsc::Sender<u64>, first: u64, size: u64) {
        if size == 1 {
            return to.send(first).unwrap();
        }
        let (sender, receiver) = mpsc::channel();
        for child in 0..10 {
            let sender = sender.clone();
            go(move || node(sender, first + child * (size / 10), size / 10));
        }
        to.send((0..10).map(|_| receiver.recv().unwrap()).sum()).unwrap();
    }
    let run = |leaves: u64| {
        let (sender, receiver) = mpsc::channel();
        go(move || node(sender, 0, leaves));
        assert_eq!(receiver.recv(), Ok(peer_common::sum_below(leaves)));
    };
    run(leaves / 10);
    let start = Instant::now();
    run(leaves);
    peer_common::per_op(start.elapsed(), leaves)
}

fn oversleep(n: u64) -> Found {
    let sleep = |_| {
        let start = Instant::now();
        coroutine::sleep(MS);
        start.elapsed()
    };
    peer_common::oversleep((0..n).map(sleep).collect())
}

/// The last hog that begins starts one more coroutine, and spins too.
fn hog(procs: usize) -> Found {
    let spinning = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..procs {
        let (spinning, sender) = (Arc::clone(&spinning), sender.clone());
        go(move || {
            if spinning.fetch_add(1, SeqCst) + 1 == procs {
                let start = Instant::now();
                go(move || sender.send(start.elapsed()).unwrap());
            }
            // For ever: the program ends meanwhile.
            loop {
                std::hint::spin_loop();
            }
        });
    }
    match receiver.recv_timeout(Duration::from_secs(2)) {
        Ok(waited) => Found::new(waited.as_secs_f64() * 1e3),
        Err(_) => Found::never(),
    }
}

fn blocking() -> Found {
    let run = |times| {
        let each = |_| go(move || (0..times).for_each(|_| std::thread::sleep(MS)));
        let handles: Vec<_> = (0..100).map(each).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
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
    coroutine::scope(|scope| {
        // SAFETY: as in `go`.
        unsafe { scope.spawn(|| sort(left, left_space)) };
        sort(right, right_space);
    });
    space.copy_from_slice(numbers);
    peer_common::merge(space, middle, numbers);
}

/// With so many bytes for what is read.
fn echo<const ROOM: usize>() -> Found {
    peer_common::many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    peer_common::widen(&listener);
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
        if stream.write_all(&buffer[..got]).is_err() {
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
        socket.send_to(&buffer[..got], from).unwrap();
    }
}
