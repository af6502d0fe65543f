//! Code that the races share: how many rounds, and a runtime that is dumped when it hangs.

pub use common::random::{Random, rounds, spin};
use common::{PROCS, runtime, watched_telling};
use gmp::net::{TcpListener, TcpStream};
use gmp::{JoinHandle, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Returns how much each of `takers` has to do at each number of Ps, so that it is `total` in all.
pub fn share(total: usize, takers: usize) -> usize {
    rounds(total / PROCS.len() / takers)
}

/// Checks that the property holds in a fresh runtime of each size. A runtime that hangs tells what its goroutines are doing.
#[track_caller]
pub fn everywhere(property: impl Fn(&Runtime)) {
    let property = &property;
    for procs in PROCS {
        let rt = Arc::new(runtime(procs));
        let seen = Arc::downgrade(&rt);
        // The end of the runtime is watched, too.
        let tell = move || seen.upgrade().map_or_else(|| "it was ending\n".to_owned(), |rt| rt.dump());
        watched_telling(procs, tell, move || property(&rt));
    }
}

/// Counts its drops.
pub struct Probe(pub Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let far = listener.accept().expect("it is there").0;
    near.set_nodelay(true).and(far.set_nodelay(true)).expect("they are TCP streams");
    (near, far)
}

pub fn join_all<T>(handles: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
}
