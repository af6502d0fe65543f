//! The workloads on tokio: a multi-threaded runtime, the main task spawned on a worker.

mod scale;
mod shapes;
mod tails;

use peer_common::{Args, CUTOFF, Found, Signal};
use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket, UnixListener};
use tokio::sync::{Mutex, mpsc};
use tokio::task::yield_now;

const MS: Duration = Duration::from_millis(1);

fn main() {
    let args = Args::from_env();
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(args.procs).enable_all().build();
    let rt = rt.expect("a runtime");
    if args.workload == "hog" {
        // A hog stalls the main task too, so a plain thread looks at the clock.
        hog(&rt, args.procs).print();
    } else if let Some(found) = in_block_on(&args) {
        found.print();
    } else {
        rt.block_on(async move { tokio::spawn(run(args)).await.unwrap() }).print();
    }
    std::process::exit(0);
}

/// What is about `block_on` itself, whose thread counts as one of the runtime's: alone it runs the tasks, too.
fn in_block_on(args: &Args) -> Option<Found> {
    let rt = || match args.procs {
        1 => tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
        procs => {
            let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(procs - 1).build();
            rt.expect("a runtime")
        }
    };
    match args.workload.as_str() {
        "block_on_ready" => {
            let (rt, n) = (rt(), args.n(20_000_000));
            Some(peer_common::timed(n, |n| {
                (0..n).for_each(|i| assert_eq!(rt.block_on(ready(black_box(i))), i));
            }))
        }
        "self_wake" => Some(rt().block_on(timed(args.n(4_000_000), peer_common::wake_itself))),
        "thread_submit" => Some(shapes::thread_submit(args)),
        "waker_ping_pong" => Some(rt().block_on(timed(args.n(1_000_000), waker_ping_pong))),
        _ => None,
    }
}

async fn waker_ping_pong(n: u64) {
    let signals: Arc<[Signal; 2]> = Arc::default();
    let theirs = Arc::clone(&signals);
    let other = tokio::spawn(async move {
        for _ in 0..n {
            theirs[0].take().await;
            theirs[1].give();
        }
    });
    for _ in 0..n {
        signals[0].give();
        signals[1].take().await;
    }
    other.await.unwrap();
}

/// `timed` for what is waited for.
async fn timed<F: Future<Output = ()>>(n: u64, run: impl Fn(u64) -> F) -> Found {
    run((n / 10).max(1)).await;
    let start = Instant::now();
    run(n).await;
    peer_common::per_op(start.elapsed(), n)
}

async fn run(args: Args) -> Found {
    let n = |default| args.n(default);
    match args.workload.as_str() {
        "spawn_join" => timed(n(1_000_000), spawn_join).await,
        "yield_2" => timed(n(4_000_000), |n| yields(2, n)).await,
        "yield_1000" => timed(n(4_000_000), |n| yields(1000, n)).await,
        "ping_pong" => timed(n(1_000_000), ping_pong).await,
        "buffered_1x1" => timed(n(4_000_000), buffered_1x1).await,
        "buffered_4x4" => timed(n(2_000_000), buffered_4x4).await,
        "select" => timed(n(1_000_000), select).await,
        "fan_in" => timed(n(1_000_000), fan_in).await,
        "mutex_1" => timed(n(4_000_000), |n| mutex(1, n)).await,
        "mutex_8" => timed(n(2_000_000), |n| mutex(8, n)).await,
        "skynet" => skynet(n(1_000_000)).await,
        "timer_stop" => timed(n(1_000_000), timer_stop).await,
        "oversleep" => oversleep(n(2_000)).await,
        "parked" => parked(n(1_000_000)).await,
        "blocking" => blocking(|| async { std::thread::sleep(MS) }).await,
        "blocking_marked" => {
            let sleep = || async { tokio::task::spawn_blocking(|| std::thread::sleep(MS)).await.unwrap() };
            blocking(sleep).await
        }
        "merge_sort" => merge_sort(n(1_000_000)).await,
        "echo" => echo::<4096>().await,
        "small_echo" => echo::<64>().await,
        "unix_echo" => unix_echo().await,
        "udp_echo" => udp_echo().await,
        _ => others(&args).await.unwrap_or_else(|| args.unknown()),
    }
}

/// The workloads that have files of their own.
async fn others(args: &Args) -> Option<Found> {
    if args.workload.starts_with("scale_") {
        scale::run(args).await
    } else if args.workload.starts_with("tail_") {
        tails::run(args).await
    } else {
        shapes::run(args).await
    }
}

async fn spawn_join(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    let each = |i| {
        tokio::spawn(async move {
            SUM.fetch_add(i, Relaxed);
        })
    };
    let handles: Vec<_> = (0..n).map(each).collect();
    for handle in handles {
        handle.await.unwrap();
    }
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}

async fn yields(tasks: u64, n: u64) {
    let each = |_| {
        tokio::spawn(async move {
            for _ in 0..n / tasks {
                yield_now().await;
            }
        })
    };
    let handles: Vec<_> = (0..tasks).map(each).collect();
    for handle in handles {
        handle.await.unwrap();
    }
}

async fn ping_pong(n: u64) {
    let ((ping, mut pinged), (pong, mut ponged)) = (mpsc::channel(1), mpsc::channel(1));
    let other = tokio::spawn(async move {
        while let Some(i) = pinged.recv().await {
            pong.send(i + 1).await.unwrap();
        }
    });
    for i in 0..n {
        ping.send(i).await.unwrap();
        assert_eq!(ponged.recv().await, Some(i + 1));
    }
    drop(ping);
    other.await.unwrap();
}

async fn buffered_1x1(n: u64) {
    let (sender, mut receiver) = mpsc::channel(128);
    let sending = tokio::spawn(async move {
        for i in 0..n {
            sender.send(i).await.unwrap();
        }
    });
    let receiving = tokio::spawn(async move {
        let mut sum = 0;
        while let Some(i) = receiver.recv().await {
            sum += i;
        }
        sum
    });
    sending.await.unwrap();
    assert_eq!(receiving.await.unwrap(), peer_common::sum_below(n));
}

/// Its own channels have one receiver; `async-channel` is what its users take for several.
async fn buffered_4x4(n: u64) {
    let (sender, receiver) = async_channel::bounded(128);
    let send = |_| {
        let sender = sender.clone();
        tokio::spawn(async move {
            for i in 0..n / 4 {
                sender.send(i).await.unwrap();
            }
        })
    };
    let receive = |_| {
        let receiver = receiver.clone();
        tokio::spawn(async move {
            let mut sum = 0;
            while let Ok(i) = receiver.recv().await {
                sum += i;
            }
            sum
        })
    };
    let senders: Vec<_> = (0..4).map(send).collect();
    let receivers: Vec<_> = (0..4).map(receive).collect();
    drop((sender, receiver));
    for handle in senders {
        handle.await.unwrap();
    }
    let mut sum: u64 = 0;
    for handle in receivers {
        sum += handle.await.unwrap();
    }
    assert_eq!(sum, 4 * peer_common::sum_below(n / 4));
}

async fn fan_in(n: u64) {
    let (into, mut from_both) = mpsc::channel(128);
    let mut arms = Vec::new();
    for _ in 0..2 {
        let (sender, mut receiver) = mpsc::channel(1);
        let into = into.clone();
        arms.push(tokio::spawn(async move {
            for i in 0..n / 2 {
                sender.send(i).await.unwrap();
            }
        }));
        arms.push(tokio::spawn(async move {
            while let Some(i) = receiver.recv().await {
                into.send(i).await.unwrap();
            }
        }));
    }
    drop(into);
    let mut sum = 0;
    while let Some(i) = from_both.recv().await {
        sum += i;
    }
    assert_eq!(sum, 2 * peer_common::sum_below(n / 2));
    for arm in arms {
        arm.await.unwrap();
    }
}

async fn select(n: u64) {
    let (a, mut from_a) = mpsc::channel(1);
    let (b, mut from_b) = mpsc::channel(1);
    let send = |sender: mpsc::Sender<u64>| {
        tokio::spawn(async move {
            for i in 0..n / 2 {
                sender.send(i).await.unwrap();
            }
        })
    };
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [send(a.clone()), send(b.clone())];
    let mut sum = 0;
    for _ in 0..n / 2 * 2 {
        tokio::select! {
            i = from_a.recv() => sum += i.unwrap(),
            i = from_b.recv() => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, 2 * peer_common::sum_below(n / 2));
    for sender in senders {
        sender.await.unwrap();
    }
}

async fn mutex(tasks: u64, n: u64) {
    let count = Arc::new(Mutex::new(0));
    let each = |_| {
        let count = Arc::clone(&count);
        tokio::spawn(async move {
            for _ in 0..n / tasks {
                *count.lock().await += 1;
            }
        })
    };
    let handles: Vec<_> = (0..tasks).map(each).collect();
    for handle in handles {
        handle.await.unwrap();
    }
    assert_eq!(*count.lock().await, n / tasks * tasks);
}

fn node(to: mpsc::Sender<u64>, first: u64, size: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if size == 1 {
            return to.send(first).await.unwrap();
        }
        let (sender, mut receiver) = mpsc::channel(1);
        for child in 0..10 {
            tokio::spawn(node(sender.clone(), first + child * (size / 10), size / 10));
        }
        let mut sum = 0;
        for _ in 0..10 {
            sum += receiver.recv().await.unwrap();
        }
        to.send(sum).await.unwrap();
    })
}

async fn skynet(leaves: u64) -> Found {
    let run = async |leaves: u64| {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(node(sender, 0, leaves));
        assert_eq!(receiver.recv().await, Some(peer_common::sum_below(leaves)));
    };
    run(leaves / 10).await;
    let start = Instant::now();
    run(leaves).await;
    peer_common::per_op(start.elapsed(), leaves)
}

/// A sleep is armed by its first poll.
async fn timer_stop(n: u64) {
    for _ in 0..n {
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::from_secs(3600)));
        std::future::poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
}

async fn oversleep(n: u64) -> Found {
    let mut took = Vec::new();
    for _ in 0..n {
        let start = Instant::now();
        tokio::time::sleep(MS).await;
        took.push(start.elapsed());
    }
    peer_common::oversleep(took)
}

async fn parked(n: u64) -> Found {
    let before = peer_common::resident();
    let (sender, receiver) = async_channel::bounded::<()>(1);
    let arrived = Arc::new(AtomicU64::new(0));
    let clock = peer_common::Clock::new();
    let each = |_| {
        let (receiver, arrived) = (receiver.clone(), Arc::clone(&arrived));
        tokio::spawn(async move {
            arrived.fetch_add(1, Relaxed);
            assert!(receiver.recv().await.is_err());
        })
    };
    let handles: Vec<_> = (0..n).map(each).collect();
    while arrived.load(SeqCst) < n {
        yield_now().await;
    }
    let found = clock.per_op(n);
    let bytes = peer_common::resident() - before;
    drop(sender);
    for handle in handles {
        handle.await.unwrap();
    }
    found.with("bytes", bytes as f64 / n as f64)
}

/// The last hog that begins starts one more task, and spins too.
fn hog(rt: &tokio::runtime::Runtime, procs: usize) -> Found {
    let spinning = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..procs {
        let (spinning, sender) = (Arc::clone(&spinning), sender.clone());
        rt.spawn(async move {
            if spinning.fetch_add(1, SeqCst) + 1 == procs {
                let start = Instant::now();
                tokio::spawn(async move { sender.send(start.elapsed()).unwrap() });
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

async fn blocking<F: Future<Output = ()> + Send>(sleep: impl Fn() -> F + Copy + Send + 'static) -> Found {
    let run = async |times| {
        let each = |_| {
            tokio::spawn(async move {
                for _ in 0..times {
                    sleep().await;
                }
            })
        };
        let handles: Vec<_> = (0..100).map(each).collect();
        for handle in handles {
            handle.await.unwrap();
        }
    };
    run(2).await;
    let start = Instant::now();
    run(20).await;
    Found::new(start.elapsed().as_secs_f64() * 1e3)
}

/// A part of the numbers that a task has for itself.
struct Part(*mut u64, *mut u64, usize);

// SAFETY: each part is one task's at a time.
unsafe impl Send for Part {}

impl Part {
    fn sort(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let Part(numbers, _, len) = self;
            if len <= CUTOFF {
                // SAFETY: the part is this task's alone.
                return peer_common::sort_leaf(unsafe { std::slice::from_raw_parts_mut(numbers, len) });
            }
            self.halves().await;
        })
    }

    async fn halves(self) {
        let middle = self.2 / 2;
        // SAFETY: inside of the part.
        let right = unsafe { Part(self.0.add(middle), self.1.add(middle), self.2 - middle) };
        let left = tokio::spawn(Part(self.0, self.1, middle).sort());
        right.sort().await;
        left.await.unwrap();
        self.merge(middle);
    }

    fn merge(&self, middle: usize) {
        // SAFETY: both halves have come back to this task.
        let (numbers, space) = unsafe {
            (std::slice::from_raw_parts_mut(self.0, self.2), std::slice::from_raw_parts_mut(self.1, self.2))
        };
        space.copy_from_slice(numbers);
        peer_common::merge(space, middle, numbers);
    }
}

async fn merge_sort(n: u64) -> Found {
    // The sort is waited for where it was begun, on a worker.
    let sort = |numbers: &mut [u64], space: &mut [u64]| {
        let part = Part(numbers.as_mut_ptr(), space.as_mut_ptr(), numbers.len());
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(part.sort()));
    };
    peer_common::timed_sort(n, sort)
}

/// With so many bytes for what is read.
async fn echo<const ROOM: usize>() -> Found {
    peer_common::many_descriptors();
    // As `TcpListener::bind`, which leaves too little room for a storm.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(peer_common::BACKLOG as u32).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(serve::<_, ROOM>(stream));
    }
}

async fn unix_echo() -> Found {
    peer_common::many_descriptors();
    let path = peer_common::socket_path();
    let listener = UnixListener::bind(&path).unwrap();
    println!("{}", path.display());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve::<_, 4096>(stream));
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin, const ROOM: usize>(mut stream: S) {
    let mut buffer = [0; ROOM];
    while let Ok(got @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..got]).await.is_err() {
            return;
        }
    }
}

async fn udp_echo() -> Found {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    println!("{}", socket.local_addr().unwrap().port());
    let mut buffer = [0; 4096];
    loop {
        let (got, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&buffer[..got], from).await.unwrap();
    }
}
