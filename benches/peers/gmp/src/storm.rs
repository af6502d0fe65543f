//! How long others wait beside goroutines that spawn and yield, with more of them alive than a ring holds.

use gmp::net::{TcpListener, TcpStream};
use gmp::time::sleep;
use gmp::{JoinHandle, chan, go, yield_now};
use peer_common::Found;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SPAWNERS: usize = 2;
const WORK: Duration = Duration::from_micros(2);
const EACH: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn spawner(most: u64, live: Arc<AtomicU64>, over: Arc<AtomicBool>) {
    while !over.load(Relaxed) {
        if live.load(Relaxed) >= most {
            yield_now();
            continue;
        }
        live.fetch_add(1, Relaxed);
        let ends = Arc::clone(&live);
        drop(go(move || {
            let begun = Instant::now();
            while begun.elapsed() < WORK {
                std::hint::spin_loop();
            }
            ends.fetch_sub(1, Relaxed);
        }));
    }
}

/// Does it again and again, and says how long it took each time.
fn again(mut it: impl FnMut()) -> Vec<Duration> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < EACH {
        let start = Instant::now();
        it();
        took.push(start.elapsed());
    }
    took
}

fn connection() -> (TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    near.set_nodelay(true).and(far.set_nodelay(true)).unwrap();
    let echo = go(move || {
        let mut byte = [0];
        while far.read(&mut byte).unwrap() == 1 {
            far.write_all(&byte).unwrap();
        }
    });
    (near, echo)
}

/// A thread sends the time now and then.
fn from_a_thread() -> Vec<Duration> {
    let (sender, receiver) = chan::bounded::<Instant>(0);
    let thread = std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < EACH {
            std::thread::sleep(2 * MS);
            sender.send(Instant::now()).unwrap();
        }
    });
    let took = receiver.iter().map(|sent| sent.elapsed()).collect();
    thread.join().unwrap();
    took
}

pub fn storm(most: u64) -> Found {
    let (over, live) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (mut near, echo) = connection();
    let spawners: Vec<_> = (0..SPAWNERS)
        .map(|_| {
            let (live, over) = (Arc::clone(&live), Arc::clone(&over));
            go(move || spawner(most, live, over))
        })
        .collect();
    let found = [
        ("yield", again(yield_now)),
        ("sleep", again(|| sleep(MS))),
        ("join", again(|| go(|| ()).join().unwrap())),
        (
            "echo",
            again(|| {
                near.write_all(&[1]).unwrap();
                near.read_exact(&mut [0]).unwrap();
            }),
        ),
        ("thread", from_a_thread()),
    ];
    over.store(true, Relaxed);
    drop(near);
    echo.join().unwrap();
    spawners.into_iter().for_each(|spawner| spawner.join().unwrap());
    peer_common::waits_of_each(found)
}
