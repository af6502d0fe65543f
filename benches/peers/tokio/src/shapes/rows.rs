//! Rows that had a goal before they had a program.

use super::{in_each, measured};
use peer_common::shapes::{MS, Pick, median_micros};
use peer_common::{Args, Found};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

pub async fn select_128(n: u64) {
    let ((a, mut from_a), (b, mut from_b)) = (mpsc::channel(128), mpsc::channel(128));
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

pub async fn random_sleeps(n: u64) -> Found {
    let run = async |n| {
        let start = Instant::now();
        in_each(n, |number| async move {
            let mut pick = Pick::of(number);
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_micros(1000 + pick.below(9001))).await;
            }
        })
        .await;
        start.elapsed()
    };
    run(n / 10).await;
    Found::new(run(n).await.as_secs_f64() * 1e3)
}

pub async fn rings(procs: usize, rounds: u64) -> Found {
    measured(rounds, |rounds| last_over_first(4 * procs, rounds)).await
}

async fn last_over_first(count: usize, rounds: u64) -> f64 {
    const MEMBERS: usize = 8;
    let (through, mut ends) = mpsc::channel(count);
    let start = Instant::now();
    let mut firsts = Vec::new();
    for _ in 0..count {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| mpsc::channel::<u64>(1)).unzip();
        for (member, mut receiver) in receivers.into_iter().enumerate() {
            let (next, through) = (senders[(member + 1) % MEMBERS].clone(), through.clone());
            tokio::spawn(async move {
                for round in 0..rounds {
                    assert_eq!(receiver.recv().await, Some(round));
                    match (member + 1 == MEMBERS, round + 1 == rounds) {
                        (false, _) => next.send(round).await.unwrap(),
                        (true, false) => next.send(round + 1).await.unwrap(),
                        (true, true) => through.send(start.elapsed()).await.unwrap(),
                    }
                }
            });
        }
        firsts.push(senders[0].clone());
    }
    let start_of_all = start.elapsed();
    for first in &firsts {
        first.send(0).await.unwrap();
    }
    let mut took = Vec::new();
    for _ in 0..count {
        took.push(ends.recv().await.unwrap() - start_of_all);
    }
    took.sort();
    took[count - 1].as_secs_f64() / took[0].as_secs_f64()
}

/// At one P the runtime of one thread, whose thread is the one in `block_on`.
pub fn thread_submit(args: &Args) -> Found {
    let rt = match args.procs {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        procs => {
            let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(procs).enable_all().build();
            rt.expect("a runtime")
        }
    };
    let (handle, n) = (rt.handle().clone(), args.n(150));
    let (done, ended) = oneshot::channel();
    let submits = std::thread::spawn(move || {
        let slots: Arc<[AtomicU64]> = (0..n).map(|_| AtomicU64::new(0)).collect();
        for i in 0..n as usize {
            std::thread::sleep(2 * MS);
            let (slots, start) = (Arc::clone(&slots), Instant::now());
            drop(handle.spawn(async move { slots[i].store(start.elapsed().as_nanos() as u64, SeqCst) }));
        }
        std::thread::sleep(20 * MS);
        let took = slots.iter().map(|slot| Duration::from_nanos(slot.load(SeqCst))).collect();
        let _ = done.send(took);
    });
    let took: Vec<Duration> = rt.block_on(ended).unwrap();
    submits.join().unwrap();
    assert!(took.iter().all(|took| !took.is_zero()), "one did not start");
    median_micros(took)
}

/// Each drops its sender, and the receiver learns when all have.
pub async fn spawn_wait(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    let (through, mut all_through) = mpsc::channel::<()>(1);
    for i in 0..n {
        let through = through.clone();
        tokio::spawn(async move {
            SUM.fetch_add(i, Relaxed);
            drop(through);
        });
    }
    drop(through);
    assert_eq!(all_through.recv().await, None);
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}

pub async fn parked_own(n: u64) -> Found {
    let arrived = Arc::new(AtomicU64::new(0));
    let clock = peer_common::Clock::new();
    let park = |_| {
        let (sender, receiver) = oneshot::channel::<()>();
        let arrived = Arc::clone(&arrived);
        let handle = tokio::spawn(async move {
            arrived.fetch_add(1, Relaxed);
            assert!(receiver.await.is_err());
        });
        (sender, handle)
    };
    let parked: Vec<_> = (0..n).map(park).collect();
    while arrived.load(SeqCst) < n {
        yield_now().await;
    }
    let found = clock.per_op(n);
    for (sender, handle) in parked {
        drop(sender);
        handle.await.unwrap();
    }
    found
}
