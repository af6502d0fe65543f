//! Goroutines that belong to a request.

use gmp::chan::{Receiver, Sender, bounded};
use gmp::context::Context;
use gmp::sync::{ErrGroup, Mutex, RwLock, Semaphore, WaitGroup};
use gmp::{JoinHandle, go, time, yield_now};
use peer_common::shapes::{self, MS, children, is_each, sum_of_work, work};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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
        let (answer, answers) = bounded(3);
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
        let (answer, answered) = bounded(1);
        go(move || {
            if is_each(i, 16) && !is_each(i, 32) {
                time::sleep(10 * MS);
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

pub fn request_tree(n: u64) {
    for i in 0..n {
        let (context, cancel) = Context::background().with_cancel();
        let (answer, answers) = bounded(1);
        let all = WaitGroup::new();
        for branch in 0..4 {
            let (context, answer, of_branch) = (context.clone(), answer.clone(), all.clone());
            all.go(move || {
                for leaf in 0..4 {
                    let (context, answer) = (context.clone(), answer.clone());
                    of_branch.go(move || {
                        if (branch, leaf) == (0, 0) {
                            return answer.send(i).unwrap();
                        }
                        let (_backend, answered) = bounded::<u64>(1);
                        gmp::select! {
                            recv(answered) -> _ => unreachable!("nobody answers"),
                            recv(context.done()) -> _ => {}
                        }
                    });
                }
            });
        }
        assert_eq!(answers.recv(), Ok(i));
        cancel.cancel();
        all.wait();
    }
}

pub fn abort(n: u64) {
    for _ in 0..n / 100 {
        let (context, cancel) = Context::background().with_cancel();
        let (_sender, receiver) = bounded::<u64>(0);
        let wait = |_| {
            let receiver = receiver.clone();
            context.go(move || receiver.recv())
        };
        let waiting: Vec<_> = (0..100).map(wait).collect();
        yield_now();
        cancel.cancel();
        assert!(waiting.into_iter().all(|ended| ended.join().unwrap().is_err()));
    }
}

pub fn errgroup(n: u64) {
    for i in 0..n {
        let (group, context) = ErrGroup::with_context(&Context::background());
        for task in 0..32 {
            let context = context.clone();
            group.go(move || match task {
                0..16 => Ok(()),
                16 => Err(i),
                _ => {
                    assert!(context.done().recv().is_err());
                    Ok(())
                }
            });
        }
        assert_eq!(group.wait(), Err(i));
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
    permits: Semaphore,
    pages: WaitGroup,
}

fn visit(crawl: Arc<Crawl>, page: u64) {
    if !crawl.seen.lock().insert(page) {
        return;
    }
    let permit = crawl.permits.acquire_guard(1).unwrap();
    yield_now();
    yield_now();
    work(100, page);
    drop(permit);
    for child in children(page) {
        let to_child = Arc::clone(&crawl);
        crawl.pages.go(move || visit(to_child, child));
    }
}

pub fn crawl(n: u64) {
    for _ in 0..n {
        let (seen, permits, pages) = (Mutex::default(), Semaphore::new(16), WaitGroup::new());
        let crawl = Arc::new(Crawl { seen, permits, pages });
        visit(Arc::clone(&crawl), 0);
        crawl.pages.wait();
        assert_eq!(crawl.seen.lock().len() as u64, shapes::PAGES);
    }
}

struct Request {
    id: u64,
    answer: Sender<u64>,
}

fn serve(requests: Receiver<Request>, map: Arc<RwLock<HashMap<u64, u64>>>) {
    for Request { id, answer } in &requests {
        let key = id % 1000;
        let value = map.read()[&key];
        if is_each(id, 100) {
            map.write().insert(key, value);
        }
        if is_each(id, 8) {
            let parts: [JoinHandle<u64>; 4] = std::array::from_fn(|part| go(move || work(100, part as u64)));
            let sum = parts.into_iter().map(|part| part.join().unwrap()).fold(0, u64::wrapping_add);
            assert_ne!(sum, 0);
        }
        if is_each(id, 512) {
            time::sleep(MS);
        }
        if is_each(id, 256) {
            gmp::blocking(shapes::block);
        }
        answer.send(value).unwrap();
    }
}

pub fn mixed(n: u64) {
    let map: Arc<RwLock<HashMap<u64, u64>>> =
        Arc::new(RwLock::new((0..1000).map(|key| (key, key + 7)).collect()));
    let (to_workers, requests) = bounded(64);
    for _ in 0..8 {
        let (requests, map) = (requests.clone(), Arc::clone(&map));
        go(move || serve(requests, map));
    }
    let each = n / 16;
    let client = |client: u64| {
        let to_workers = to_workers.clone();
        go(move || {
            for id in client * each..(client + 1) * each {
                let (answer, answered) = bounded(1);
                assert!(to_workers.send(Request { id, answer }).is_ok());
                assert_eq!(answered.recv_timeout(1000 * MS), Ok(id % 1000 + 7));
            }
        })
    };
    let clients: Vec<_> = (0..16).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
