//! The curves of `benches/scale` on tokio.

use peer_common::scale::{self, Lines};
use peer_common::shapes::Pick;
use peer_common::{Args, Found, sum_below};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Sleep;

pub async fn run(args: &Args) -> Option<Found> {
    let (size, n) = (args.size.unwrap_or(10), args.n(100_000));
    Some(match args.workload.as_str() {
        "scale_yield" => yields(size, n).await,
        "scale_ping_pong" => ping_pong(size, n).await,
        "scale_parked_one" => parked_one(size, n).await,
        "scale_parked_own" => parked_own(size, n).await,
        "scale_timer_stop" => timer_stop(size, n).await,
        "scale_timer_fire" => timer_fire(size, n).await,
        "scale_select" => select(size, n).await,
        "scale_channels" => channels(size, n).await,
        "scale_procs_yield" => yields(2 * args.procs as u64, n).await,
        "scale_procs_transfer" => transfer(2 * args.procs as u64, n).await,
        _ => return None,
    })
}

async fn sum_of(handles: Vec<JoinHandle<u64>>) -> u64 {
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.unwrap();
    }
    sum
}

async fn yields(size: u64, n: u64) -> Found {
    let (lines, rounds) = (Lines::new(size), scale::rounds(n, size));
    let each = |_| {
        let lines = Arc::clone(&lines);
        tokio::spawn(async move {
            lines.arrive();
            while !lines.open() {
                yield_now().await;
            }
            for _ in 0..rounds {
                yield_now().await;
            }
            lines.leave();
            rounds
        })
    };
    let handles = (0..size).map(each).collect();
    assert_eq!(sum_of(handles).await, size * rounds);
    lines.per_op(size * rounds)
}

async fn ping_pong(size: u64, n: u64) -> Found {
    let pairs = (size / 2).max(1);
    let (lines, rounds) = (Lines::new(pairs), scale::rounds(n, pairs));
    let each = |_| {
        let ((ping, mut pinged), (pong, mut ponged)) = (mpsc::channel(1), mpsc::channel(1));
        let lines = Arc::clone(&lines);
        let other = tokio::spawn(async move {
            while let Some(i) = pinged.recv().await {
                let i: u64 = i;
                pong.send(i + 1).await.unwrap();
            }
        });
        let one = tokio::spawn(async move {
            lines.arrive();
            while !lines.open() {
                yield_now().await;
            }
            let mut sum = 0;
            for i in 0..rounds {
                ping.send(i).await.unwrap();
                sum += ponged.recv().await.unwrap();
            }
            lines.leave();
            sum
        });
        (one, other)
    };
    let (ones, others): (Vec<_>, Vec<_>) = (0..pairs).map(each).unzip();
    assert_eq!(sum_of(ones).await, pairs * (sum_below(rounds) + rounds));
    for other in others {
        other.await.unwrap();
    }
    lines.per_op(pairs * rounds)
}

async fn all_arrive(arrived: &AtomicU64, size: u64) {
    while arrived.load(SeqCst) < size {
        yield_now().await;
    }
}

/// Its own channels have one receiver; `async-channel` is what its users take for several.
async fn parked_one(size: u64, n: u64) -> Found {
    let (mut create, mut wake, rounds) = (Duration::ZERO, Duration::ZERO, scale::rounds(n, size));
    for _ in 0..rounds {
        let arrived = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let (sender, receiver) = async_channel::bounded(1);
        let each = |_| {
            let (receiver, arrived) = (receiver.clone(), Arc::clone(&arrived));
            tokio::spawn(async move {
                arrived.fetch_add(1, Relaxed);
                receiver.recv().await.unwrap()
            })
        };
        let handles = (0..size).map(each).collect();
        all_arrive(&arrived, size).await;
        let created = Instant::now();
        for i in 0..size {
            sender.send(i).await.unwrap();
        }
        assert_eq!(sum_of(handles).await, sum_below(size));
        create += created - start;
        wake += created.elapsed();
    }
    scale::created_and_woken(create, wake, size * rounds)
}

async fn parked_own(size: u64, n: u64) -> Found {
    let (mut create, mut wake, rounds) = (Duration::ZERO, Duration::ZERO, scale::rounds(n, size));
    for _ in 0..rounds {
        let arrived = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let each = |_| {
            let (sender, receiver) = oneshot::channel();
            let arrived = Arc::clone(&arrived);
            let handle = tokio::spawn(async move {
                arrived.fetch_add(1, Relaxed);
                receiver.await.unwrap()
            });
            (handle, sender)
        };
        let (handles, senders): (_, Vec<_>) = (0..size).map(each).unzip();
        all_arrive(&arrived, size).await;
        let created = Instant::now();
        (0..size).zip(senders).for_each(|(i, sender)| sender.send(i).unwrap());
        assert_eq!(sum_of(handles).await, sum_below(size));
        create += created - start;
        wake += created.elapsed();
    }
    scale::created_and_woken(create, wake, size * rounds)
}

const HOUR: u64 = 3_600_000_000_000;

/// A sleep is armed by its first poll.
async fn arm(mut sleep: Pin<&mut Sleep>) {
    std::future::poll_fn(|cx| {
        assert!(sleep.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

async fn timer_stop(size: u64, n: u64) -> Found {
    let mut pick = Pick::of(size);
    let mut sleep = || tokio::time::sleep(Duration::from_nanos(HOUR + pick.below(HOUR)));
    let mut pending = Vec::new();
    for _ in 0..size {
        pending.push(Box::pin(sleep()));
        arm(pending.last_mut().expect("one was pushed").as_mut()).await;
    }
    for _ in 0..(n / 10).max(1) {
        arm(std::pin::pin!(sleep())).await;
    }
    let start = Instant::now();
    for _ in 0..n {
        arm(std::pin::pin!(sleep())).await;
    }
    peer_common::per_op(start.elapsed(), n)
}

/// It has no callbacks.
async fn timer_fire(size: u64, n: u64) -> Found {
    let (rounds, mut pick, mut fired) = (scale::rounds(n, size), Pick::of(size), 0);
    let before = peer_common::cpu();
    for _ in 0..rounds {
        let each = |_| {
            let due = Duration::from_nanos(scale::lead(size) + pick.below(scale::spread(size)));
            let sleep = tokio::time::sleep(due);
            tokio::spawn(async move {
                sleep.await;
                1
            })
        };
        let handles = (0..size).map(each).collect();
        fired += sum_of(handles).await;
    }
    assert_eq!(fired, size * rounds);
    Found::new((peer_common::cpu() - before) / (size * rounds) as f64)
}

macro_rules! arms {
    ($receivers:ident, $n:ident: $($arm:ident)*) => {{
        let [$(mut $arm),*] = <[_; [$(stringify!($arm)),*].len()]>::try_from($receivers).expect("as many");
        let mut sum = 0;
        for _ in 0..$n {
            sum += tokio::select! { $(i = $arm.recv() => i.unwrap(),)* };
        }
        sum
    }};
}

async fn selected(size: u64, n: u64) {
    let (senders, receivers): (Vec<mpsc::Sender<u64>>, Vec<_>) = (0..size).map(|_| mpsc::channel(1)).unzip();
    // All stay open: one that is closed would be ready for ever.
    let kept = senders.clone();
    let sending = tokio::spawn(async move {
        let mut pick = Pick::of(n);
        for i in 0..n {
            senders[pick.below(size) as usize].send(i).await.unwrap();
        }
    });
    let sum: u64 = match size {
        1 => arms!(receivers, n: a),
        2 => arms!(receivers, n: a b),
        4 => arms!(receivers, n: a b c d),
        8 => arms!(receivers, n: a b c d e f g h),
        16 => arms!(receivers, n: a b c d e f g h i0 j k l m n0 o p),
        32 => arms!(receivers, n: a b c d e f g h i0 j k l m n0 o p q r s t u v w x y z aa bb cc dd ee ff),
        _ => panic!("{size} arms: no such select is written here"),
    };
    assert_eq!(sum, sum_below(n));
    sending.await.unwrap();
    drop(kept);
}

async fn select(size: u64, n: u64) -> Found {
    selected(size, (n / 10).max(1)).await;
    let start = Instant::now();
    selected(size, n).await;
    peer_common::per_op(start.elapsed(), n * size)
}

async fn passed(size: u64, n: u64) {
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| mpsc::channel(128)).unzip();
    let sending = tokio::spawn(async move {
        for (i, sender) in (0..n).zip(senders.iter().cycle()) {
            sender.send(i).await.unwrap();
        }
    });
    let mut sum = 0;
    for i in 0..n {
        sum += receivers[(i % size) as usize].recv().await.unwrap();
    }
    assert_eq!(sum, sum_below(n));
    sending.await.unwrap();
}

async fn channels(size: u64, n: u64) -> Found {
    crate::timed(n, |n| passed(size, n)).await
}

async fn transfer(size: u64, n: u64) -> Found {
    let round = Arc::new(AtomicU64::new(1));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let each = |me| {
        let (round, acknowledged) = (Arc::clone(&round), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            let (mut seen, mut led) = (0, 0);
            loop {
                let now = round.load(SeqCst);
                if now > n {
                    return led;
                }
                if now != seen {
                    seen = now;
                    if now % size == me {
                        while acknowledged.load(SeqCst) < size - 1 {
                            std::hint::spin_loop();
                        }
                        acknowledged.store(0, SeqCst);
                        round.store(now + 1, SeqCst);
                        led += 1;
                    } else {
                        acknowledged.fetch_add(1, SeqCst);
                    }
                }
                yield_now().await;
            }
        })
    };
    let handles = (0..size).map(each).collect();
    assert_eq!(sum_of(handles).await, n);
    Found::new(start.elapsed().as_nanos() as f64 / 1e3 / n as f64)
}
