//! Tasks that belong to a request.

use peer_common::shapes::{self, MS, children, is_each, sum_of_work, work};
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub async fn fan_out(n: u64) {
    let expected = sum_of_work(16, 200);
    for _ in 0..n {
        let backends: [JoinHandle<u64>; 16] =
            std::array::from_fn(|backend| tokio::spawn(async move { work(200, backend as u64) }));
        let mut sum = 0_u64;
        for backend in backends {
            sum = sum.wrapping_add(backend.await.unwrap());
        }
        assert_eq!(sum, expected);
    }
}

pub async fn hedged(n: u64) {
    for i in 0..n {
        let (answer, mut answers) = mpsc::channel(3);
        for replica in 0..3 {
            let answer = answer.clone();
            tokio::spawn(async move {
                work(100, replica);
                // Whoever comes late is not heard; there is room.
                let _ = answer.try_send(i);
            });
        }
        assert_eq!(answers.recv().await, Some(i));
    }
}

pub async fn deadline(n: u64) {
    const CALLERS: u64 = 500;
    let each = (n / CALLERS).max(1);
    let caller = |_| {
        tokio::spawn(async move {
            let mut late = 0;
            for i in 0..each {
                let (answer, answered) = oneshot::channel();
                tokio::spawn(async move {
                    if is_each(i, 16) && !is_each(i, 32) {
                        sleep(10 * MS).await;
                    }
                    let _ = answer.send(i);
                });
                match timeout(5 * MS, answered).await {
                    Ok(answer) => assert_eq!(answer, Ok(i)),
                    Err(_) => late += 1,
                }
            }
            late
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let mut late = 0;
    for caller in callers {
        late += caller.await.unwrap();
    }
    assert!(late <= n, "more fallbacks than requests");
}

pub async fn request_tree(n: u64) {
    for i in 0..n {
        let token = CancellationToken::new();
        let (answer, mut answers) = mpsc::channel(1);
        let branch = |branch| {
            let (token, answer) = (token.clone(), answer.clone());
            tokio::spawn(async move {
                let leaf = |leaf| {
                    let (token, answer) = (token.clone(), answer.clone());
                    tokio::spawn(async move {
                        if (branch, leaf) == (0, 0) {
                            return answer.send(i).await.unwrap();
                        }
                        let (_backend, answered) = oneshot::channel::<u64>();
                        tokio::select! {
                            _ = answered => unreachable!("nobody answers"),
                            _ = token.cancelled() => {}
                        }
                    })
                };
                let leaves: [JoinHandle<()>; 4] = std::array::from_fn(leaf);
                for leaf in leaves {
                    leaf.await.unwrap();
                }
            })
        };
        let branches: [JoinHandle<()>; 4] = std::array::from_fn(branch);
        assert_eq!(answers.recv().await, Some(i));
        token.cancel();
        for branch in branches {
            branch.await.unwrap();
        }
    }
}

pub async fn abort(n: u64) {
    for _ in 0..n / 100 {
        let (_sender, receiver) = async_channel::bounded::<u64>(1);
        let wait = |_| {
            let receiver = receiver.clone();
            tokio::spawn(async move { receiver.recv().await })
        };
        let waiting: Vec<_> = (0..100).map(wait).collect();
        yield_now().await;
        waiting.iter().for_each(JoinHandle::abort);
        for ended in waiting {
            assert!(ended.await.unwrap_err().is_cancelled());
        }
    }
}

pub async fn errgroup(n: u64) {
    for i in 0..n {
        let mut group = JoinSet::new();
        for task in 0..32 {
            group.spawn(async move {
                match task {
                    0..16 => Ok(()),
                    16 => Err(i),
                    _ => std::future::pending().await,
                }
            });
        }
        let mut error = None;
        while let Some(ended) = group.join_next().await {
            if let Err(failed) = ended.unwrap() {
                error = Some(failed);
                break;
            }
        }
        group.shutdown().await;
        assert_eq!(error, Some(i));
    }
}

pub async fn spawn_chain(n: u64) {
    fn call(deep: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move { if deep == 0 { 0 } else { 1 + tokio::spawn(call(deep - 1)).await.unwrap() } })
    }
    for _ in 0..n / 100 {
        assert_eq!(call(100).await, 100);
    }
}

struct Crawl {
    seen: Mutex<HashSet<u64>>,
    permits: Semaphore,
}

/// Whoever is through drops its sender.
fn visit(
    crawl: Arc<Crawl>,
    page: u64,
    through: mpsc::Sender<()>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if !crawl.seen.lock().unwrap().insert(page) {
            return;
        }
        let permit = crawl.permits.acquire().await.unwrap();
        yield_now().await;
        yield_now().await;
        work(100, page);
        drop(permit);
        for child in children(page) {
            tokio::spawn(visit(Arc::clone(&crawl), child, through.clone()));
        }
    })
}

pub async fn crawl(n: u64) {
    for _ in 0..n {
        let crawl = Arc::new(Crawl { seen: Mutex::default(), permits: Semaphore::new(16) });
        let (through, mut all_through) = mpsc::channel(1);
        visit(Arc::clone(&crawl), 0, through).await;
        assert_eq!(all_through.recv().await, None);
        assert_eq!(crawl.seen.lock().unwrap().len() as u64, shapes::PAGES);
    }
}

struct Request {
    id: u64,
    answer: oneshot::Sender<u64>,
}

async fn serve(requests: async_channel::Receiver<Request>, map: Arc<RwLock<HashMap<u64, u64>>>) {
    while let Ok(Request { id, answer }) = requests.recv().await {
        let key = id % 1000;
        let value = map.read().unwrap()[&key];
        if is_each(id, 100) {
            map.write().unwrap().insert(key, value);
        }
        if is_each(id, 8) {
            let parts: [JoinHandle<u64>; 4] =
                std::array::from_fn(|part| tokio::spawn(async move { work(100, part as u64) }));
            let mut sum = 0_u64;
            for part in parts {
                sum = sum.wrapping_add(part.await.unwrap());
            }
            assert_ne!(sum, 0);
        }
        if is_each(id, 512) {
            sleep(MS).await;
        }
        if is_each(id, 256) {
            tokio::task::spawn_blocking(shapes::block).await.unwrap();
        }
        answer.send(value).unwrap();
    }
}

pub async fn mixed(n: u64) {
    let map: Arc<RwLock<HashMap<u64, u64>>> =
        Arc::new(RwLock::new((0..1000).map(|key| (key, key + 7)).collect()));
    let (to_workers, requests) = async_channel::bounded(64);
    for _ in 0..8 {
        tokio::spawn(serve(requests.clone(), Arc::clone(&map)));
    }
    let each = n / 16;
    super::in_each(16, |client| {
        let to_workers = to_workers.clone();
        async move {
            for id in client * each..(client + 1) * each {
                let (answer, answered) = oneshot::channel();
                assert!(to_workers.send(Request { id, answer }).await.is_ok());
                assert_eq!(timeout(1000 * MS, answered).await.unwrap(), Ok(id % 1000 + 7));
            }
        }
    })
    .await;
}
