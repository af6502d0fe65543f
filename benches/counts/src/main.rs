//! What `check` counts: `gmp-counts WORKLOAD N` does N operations at one P, and prints how often it has allocated.
//!
//! Everything is done N times and nothing by the clock, so that what 2N cost beyond N is the price of N operations. Each
//! workload checks its sums: one that does not do its work would be cheap.

mod common;

use common::{join, sum_below};
use gmp::chan::{Receiver, Sender, bounded};
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::{Event, Mutex};
use gmp::{go, yield_now};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, workload, n] = &args[..] else { panic!("gmp-counts WORKLOAD N") };
    let n: u64 = n.parse().expect("a number of operations");
    let work: fn(u64) = match workload.as_str() {
        "yield_2" => |n| yields(2, n),
        "yield_1000" => |n| yields(1000, n),
        "spawn_join" => spawn_join,
        "join_unstolen" => join_unstolen,
        "park_ready" => park_ready,
        "ping_pong" => ping_pong,
        "buffered" => buffered,
        "try_send_recv" => try_send_recv,
        "one_answer" => one_answer,
        "select" => select,
        "select_ready" => select_ready,
        "select_waits" => select_waits,
        "mutex" => mutex,
        "try_lock" => try_lock,
        "timer_stop" => timer_stop,
        "timer_moved" => timer_moved,
        "sleep" => sleep,
        "submit" => submit,
        "echo" => echo,
        _ => panic!("there is no workload {workload:?}"),
    };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(1).build() }.expect("a runtime");
    common::run(&runtime, work, n)
}

fn yields(goroutines: u64, n: u64) {
    let each = |_| go(move || (0..n / goroutines).for_each(|_| yield_now()));
    join((0..goroutines).map(each).collect::<Vec<_>>());
}

/// In batches of 100.
fn spawn_join(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let mut handles = Vec::with_capacity(100);
    for batch in 0..n / 100 {
        let each = |i| {
            go(move || {
                SUM.fetch_add(batch * 100 + i, Relaxed);
            })
        };
        handles.extend((0..100).map(each));
        join(handles.drain(..));
    }
    assert_eq!(SUM.load(Relaxed), sum_below(n));
}

/// A fork that nobody takes.
fn join_unstolen(n: u64) {
    let sums = (0..n).map(|i| {
        let (one, other) = gmp::join(|| std::hint::black_box(i), || std::hint::black_box(1));
        one * other
    });
    assert_eq!(sums.sum::<u64>(), sum_below(n));
}

/// A round trip: two notifications, two waits.
fn park_ready(n: u64) {
    let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (hears, answers) = (Arc::clone(&ping), Arc::clone(&pong));
    let other = go(move || {
        for _ in 0..n {
            hears.wait();
            answers.notify_one();
        }
    });
    for _ in 0..n {
        ping.notify_one();
        pong.wait();
    }
    join([other]);
}

/// A round trip over two channels without a buffer.
fn ping_pong(n: u64) {
    let ((ping, pinged), (pong, ponged)) = (bounded(0), bounded(0));
    let other = go(move || pinged.iter().for_each(|i: u64| pong.send(i + 1).unwrap()));
    for i in 0..n {
        ping.send(i).unwrap();
        assert_eq!(ponged.recv(), Ok(i + 1));
    }
    drop(ping);
    join([other]);
}

/// A number through a channel with room for 128.
fn buffered(n: u64) {
    let (sender, receiver): (Sender<u64>, Receiver<u64>) = bounded(128);
    let other = go(move || (0..n).for_each(|i| sender.send(i).unwrap()));
    assert_eq!(receiver.iter().sum::<u64>(), sum_below(n));
    join([other]);
}

/// A number into a channel with room for 128, and out again; nobody waits.
fn try_send_recv(n: u64) {
    let (sender, receiver) = bounded(128);
    for i in 0..n {
        sender.try_send(i).unwrap();
        assert_eq!(receiver.try_recv(), Ok(i));
    }
}

/// A number through a channel that is made for it, by a second sender, after the first one is dropped.
fn one_answer(n: u64) {
    let answers = (0..n).map(|i| {
        let (first, answered) = bounded(1);
        let second = first.clone();
        drop(first);
        second.send(i).unwrap();
        drop(second);
        answered.recv().unwrap()
    });
    assert_eq!(answers.sum::<u64>(), sum_below(n));
}

/// A number over one of two channels without a buffer, each with a sender of its own: half of the selects find one that waits,
/// half wait themselves.
fn select(n: u64) {
    let ((a, from_a), (b, from_b)) = (bounded(0), bounded(0));
    let send = |sender: Sender<u64>| move || (0..n / 2).for_each(|i| sender.send(i).unwrap());
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [go(send(a.clone())), go(send(b.clone()))];
    let mut sum = 0;
    for _ in 0..n {
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, 2 * sum_below(n / 2));
    join(senders);
}

/// As `select`, and each select waits: a message is offered only to one that does.
fn select_waits(n: u64) {
    let ((a, from_a), (b, from_b)) = (bounded(0), bounded(0));
    let sender = go(move || {
        for i in 0..n {
            let sender = if i % 2 == 0 { &a } else { &b };
            sender.try_send(i).expect("the select waits");
            yield_now();
        }
    });
    let mut sum = 0;
    for _ in 0..n {
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, sum_below(n));
    join([sender]);
}

/// A send and a select over two channels, one of which has the number.
fn select_ready(n: u64) {
    let ((a, from_a), (_b, from_b)) = (bounded(1), bounded::<u64>(1));
    let mut sum = 0;
    for i in 0..n {
        a.send(i).unwrap();
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, sum_below(n));
}

/// Lock, add one, unlock; nobody else wants it.
fn mutex(n: u64) {
    let count = Mutex::new(0);
    (0..n).for_each(|_| *count.lock() += 1);
    assert_eq!(*count.lock(), n);
}

/// As `mutex`, by an attempt that succeeds.
fn try_lock(n: u64) {
    let count = Mutex::new(0);
    (0..n).for_each(|_| *count.try_lock().expect("nobody has it") += 1);
    assert_eq!(*count.lock(), n);
}

/// A callback due in an hour, armed and stopped.
fn timer_stop(n: u64) {
    for _ in 0..n {
        assert!(gmp::time::after_func(Duration::from_secs(3600), || ()).stop());
    }
}

/// An idle limit that each message moves on.
fn timer_moved(n: u64) {
    let timer = gmp::time::after_func(Duration::from_secs(3600), || ());
    for _ in 0..n {
        assert!(timer.reset(Duration::from_secs(3600)));
    }
    assert!(timer.stop());
}

/// One goroutine alone: its M waits in the poller until the goroutine is due. A millisecond is long enough for the thread to
/// come to its wait before the time is over, traced and on a busy machine, too.
fn sleep(n: u64) {
    for _ in 0..n {
        gmp::time::sleep(Duration::from_millis(1));
    }
}

/// A plain thread submits, while the only P stands; then the goroutines run, and leave what they had for the next ones.
fn submit(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let handle = gmp::handle();
    let (ask, asked) = std::sync::mpsc::channel::<u64>();
    let (give, given) = std::sync::mpsc::channel();
    // One thread for both turns: the counts of threads are told apart.
    let submitter = std::thread::spawn(move || {
        let each = |i| {
            handle.go(move || {
                SUM.fetch_add(i, Relaxed);
            })
        };
        for count in asked {
            give.send((0..count).map(|i| each(i).unwrap()).collect::<Vec<_>>()).unwrap();
        }
    });
    // So many Gs and stacks are there after the first turn.
    for count in [4 * 1024, n] {
        ask.send(count).unwrap();
        // The P is not handed off meanwhile.
        join(given.recv().unwrap());
        assert_eq!(SUM.swap(0, Relaxed), sum_below(count));
    }
    drop(ask);
    submitter.join().unwrap();
}

/// Sixty-four bytes to another goroutine and back, through a TCP connection.
fn echo(n: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; 64];
        for _ in 0..n {
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for i in 0..n {
        let (sent, mut got) = ([i as u8; 64], [0; 64]);
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(sent, got);
    }
    join([server]);
}
