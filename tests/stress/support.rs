//! What the races share: how many rounds, a runtime that is dumped when it hangs, and pauses of random length.

use crate::common::{PROCS, effort, runtime, watched_telling};
use gmp::net::{TcpListener, TcpStream};
use gmp::{JoinHandle, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// So many rounds, or a multiple of them; a tenth in a debug build.
pub fn rounds(base: usize) -> usize {
    (base * effort() as usize / if cfg!(debug_assertions) { 10 } else { 1 }).max(1)
}

/// What each of `takers` has to do at each number of Ps, so that it is `total` in all.
pub fn share(total: usize, takers: usize) -> usize {
    rounds(total / PROCS.len() / takers)
}

/// The property holds in a fresh runtime of each size. One that hangs tells what its goroutines are doing.
#[track_caller]
pub fn everywhere(property: impl Fn(&Runtime)) {
    let property = &property;
    for procs in PROCS {
        let rt = Arc::new(runtime(procs));
        let seen = Arc::downgrade(&rt);
        // Its end is watched, too.
        let tell = move || seen.upgrade().map_or_else(|| "it was ending\n".to_owned(), |rt| rt.dump());
        watched_telling(procs, tell, move || property(&rt));
    }
}

/// xorshift64: the same pauses in every run, for what they are worth on a machine with others.
pub struct Random(u64);

impl Random {
    pub fn new(seed: usize) -> Self {
        Random(0x9E37_79B9_7F4A_7C15 ^ (seed as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Passes time and stays awake; more often a little than much. The unit is some 10 ns.
    pub fn pause(&mut self, most: u64) {
        let most = 1 + self.below(most);
        spin(self.below(most));
    }
}

/// Passes so much time and stays awake.
pub fn spin(steps: u64) {
    for _ in 0..steps {
        std::hint::spin_loop();
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
