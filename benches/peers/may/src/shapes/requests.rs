//! Coroutines that belong to a request.

use crate::go;
use may::coroutine::{self, JoinHandle, yield_now};
use may::sync::{Mutex, RwLock, Semphore, WaitGroup, mpmc, mpsc};
use peer_common::shapes::{self, MS, children, is_each, sum_of_work, work};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

fn cancel<T>(handle: &JoinHandle<T>) {
    // SAFETY: it waits in a call of this library, and nothing on its stack is shared with others.
    unsafe { handle.coroutine().cancel() };
}

pub fn fan_out(n: u64) {
    let expected = sum_of_work(16, 200);
    for _ in 0..n {
        let backends: [JoinHandle<u64>; 16] =
            std::array::from_fn(|backend| go(move || work(200, backend as u64)));
        let sum = backends.into_iter().map(|backend| backend.join().unwrap()).fold(0, u64::wrapping_add);
        assert_eq!(sum, expected);
    }
}

pub fn hedged(n: u64) {
    for i in 0..n {
        let (answer, answers) = mpsc::channel();
        for replica in 0..3 {
            let answer = answer.clone();
            go(move || {
                work(100, replica);
                // Whoever comes late is not heard.
                let _ = answer.send(i);
            });
        }
        assert_eq!(answers.recv(), Ok(i));
    }
}

pub fn deadline(n: u64) {
    const CALLERS: u64 = 500;
    let each = (n / CALLERS).max(1);
    let call = move |i: u64| {
        let (answer, answered) = mpsc::channel();
        go(move || {
            if is_each(i, 16) && !is_each(i, 32) {
                coroutine::sleep(10 * MS);
            }
            let _ = answer.send(i);
        });
        match answered.recv_timeout(5 * MS) {
            Ok(answer) => assert_eq!(answer, i),
            Err(_) => return 1,
        }
        0
    };
    let callers: Vec<_> = (0..CALLERS).map(|_| go(move || (0..each).map(call).sum::<u64>())).collect();
    let late: u64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(late <= n, "more fallbacks than requests");
}

/// A leaf whose wait is cancelled unwinds, and its join tells that.
pub fn request_tree(n: u64) {
    for i in 0..n {
        let (answer, answers) = mpsc::channel();
        let branch = |branch| {
            let answer = answer.clone();
            go(move || {
                let leaf = |leaf| {
                    let answer = answer.clone();
                    go(move || {
                        if (branch, leaf) == (0, 0) {
                            return answer.send(i).unwrap();
                        }
                        let (_backend, answered) = mpsc::channel::<u64>();
                        let _ = answered.recv();
                        unreachable!("nobody answers");
                    })
                };
                std::array::from_fn::<JoinHandle<()>, 4, _>(leaf)
            })
        };
        let branches: [_; 4] = std::array::from_fn(branch);
        assert_eq!(answers.recv(), Ok(i));
        let leaves: Vec<_> = branches.into_iter().flat_map(|branch| branch.join().unwrap()).collect();
        leaves.iter().for_each(cancel);
        assert!(leaves.into_iter().map(JoinHandle::join).filter(Result::is_err).count() >= 15);
    }
}

pub fn abort(n: u64) {
    for _ in 0..n / 100 {
        let (_sender, receiver) = mpmc::channel::<u64>();
        let wait = |_| {
            let receiver = receiver.clone();
            go(move || receiver.recv())
        };
        let waiting: Vec<_> = (0..100).map(wait).collect();
        yield_now();
        waiting.iter().for_each(cancel);
        assert!(waiting.into_iter().all(|ended| ended.join().is_err()));
    }
}

pub fn errgroup(n: u64) {
    for i in 0..n {
        let (result, results) = mpsc::channel();
        let start = |task| {
            let result = result.clone();
            go(move || match task {
                0..16 => result.send(Ok(())).unwrap(),
                16 => result.send(Err(i)).unwrap(),
                _ => coroutine::park(),
            })
        };
        let tasks: Vec<_> = (0..32).map(start).collect();
        let error = results.iter().find_map(Result::err);
        tasks.iter().for_each(cancel);
        tasks.into_iter().for_each(|task| drop(task.join()));
        assert_eq!(error, Some(i));
    }
}

pub fn spawn_chain(n: u64) {
    fn call(deep: u64) -> u64 {
        if deep == 0 { 0 } else { 1 + go(move || call(deep - 1)).join().unwrap() }
    }
    for _ in 0..n / 100 {
        assert_eq!(call(100), 100);
    }
}

struct Crawl {
    seen: Mutex<HashSet<u64>>,
    permits: Semphore,
}

fn visit(crawl: Arc<Crawl>, page: u64, pages: WaitGroup) {
    if !crawl.seen.lock().unwrap().insert(page) {
        return;
    }
    crawl.permits.wait();
    yield_now();
    yield_now();
    work(100, page);
    crawl.permits.post();
    for child in children(page) {
        let (to_child, pages) = (Arc::clone(&crawl), pages.clone());
        go(move || visit(to_child, child, pages));
    }
}

pub fn crawl(n: u64) {
    for _ in 0..n {
        let crawl = Arc::new(Crawl { seen: Mutex::default(), permits: Semphore::new(16) });
        let pages = WaitGroup::new();
        visit(Arc::clone(&crawl), 0, pages.clone());
        pages.wait();
        assert_eq!(crawl.seen.lock().unwrap().len() as u64, shapes::PAGES);
    }
}

struct Request {
    id: u64,
    answer: mpsc::Sender<u64>,
}

fn serve(requests: mpmc::Receiver<Request>, map: Arc<RwLock<HashMap<u64, u64>>>) {
    for Request { id, answer } in requests.iter() {
        let key = id % 1000;
        let value = map.read().unwrap()[&key];
        if is_each(id, 100) {
            map.write().unwrap().insert(key, value);
        }
        if is_each(id, 8) {
            let parts: [JoinHandle<u64>; 4] = std::array::from_fn(|part| go(move || work(100, part as u64)));
            let sum = parts.into_iter().map(|part| part.join().unwrap()).fold(0, u64::wrapping_add);
            assert_ne!(sum, 0);
        }
        if is_each(id, 512) {
            coroutine::sleep(MS);
        }
        if is_each(id, 256) {
            shapes::block();
        }
        answer.send(value).unwrap();
    }
}

pub fn mixed(n: u64) {
    let map: Arc<RwLock<HashMap<u64, u64>>> =
        Arc::new(RwLock::new((0..1000).map(|key| (key, key + 7)).collect()));
    let (to_workers, requests) = mpmc::channel();
    for _ in 0..8 {
        let (requests, map) = (requests.clone(), Arc::clone(&map));
        go(move || serve(requests, map));
    }
    let each = n / 16;
    let client = |client: u64| {
        let to_workers = to_workers.clone();
        go(move || {
            for id in client * each..(client + 1) * each {
                let (answer, answered) = mpsc::channel();
                assert!(to_workers.send(Request { id, answer }).is_ok());
                assert_eq!(answered.recv_timeout(1000 * MS), Ok(id % 1000 + 7));
            }
        })
    };
    let clients: Vec<_> = (0..16).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
