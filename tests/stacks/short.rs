//! The kernel has no memory left for guards, so a goroutine that was accepted waits for a stack that comes back.

use common::{child, gate::Gate, seccomp, watched};
use gmp::sync::Event;
use gmp::{JoinHandle, Runtime, chan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const STACK: usize = 64 << 10;
/// As many guards are made with a slab.
const STACKS: usize = 8;

/// A goroutine that has begun, and waits for its end.
struct Parked {
    end: Arc<Event>,
    handle: JoinHandle<()>,
}

impl Parked {
    /// Spawned by a plain thread, which leaves no P a reservation: a P takes as many stacks as it has reservations.
    fn begin(rt: &Runtime) -> Parked {
        let (begun, end) = (Gate::default(), Arc::new(Event::new()));
        let (begins, ends) = (begun.clone(), Arc::clone(&end));
        let handle = rt.go(move || {
            begins.open();
            ends.wait();
        });
        begun.pass();
        Parked { end, handle }
    }

    fn end(self) {
        self.end.notify_one();
        self.handle.join().unwrap();
    }
}

/// For what has just parked or ended: its P becomes idle meanwhile, most often.
fn until_idle() {
    thread::sleep(Duration::from_millis(2));
}

/// Keeps its P from the first gate to the second, and parks then.
fn keep(turns: &chan::Receiver<[Gate; 2]>) {
    while let Ok([from, to]) = turns.recv() {
        from.open();
        while !to.is_open() {
            std::hint::spin_loop();
        }
    }
}

/// Fails by a goroutine too many, for each one that had to ask twice, and in the end by a spawn that is refused for good.
#[test]
fn a_stack_that_is_asked_for_twice_counts_once() {
    if !child::is_child() {
        return drop(child::passes("a_stack_that_is_asked_for_twice_counts_once", &[]));
    }
    watched(2, || {
        let builder = Runtime::builder().procs(2).stack_size(STACK).max_stack_bytes(2 * STACKS * STACK);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        let (keeps, turns) = chan::bounded(0);
        let keeper = rt.go(move || keep(&turns));
        let parked: Vec<_> = (1..STACKS).map(|_| Parked::begin(&rt)).collect();
        seccomp::refuse(&[libc::SYS_madvise, libc::SYS_process_madvise], libc::ENOMEM);
        let asked_twice = parked.into_iter().map(|one| {
            // One ends on the one P while the keeper has the other. That becomes idle, too, and is the first to be taken: so
            // who begins next finds no stack there, has the idle P's cache emptied, and asks once more.
            let [from, to] = [Gate::default(), Gate::default()];
            keeps.send([from.clone(), to.clone()]).unwrap();
            from.pass();
            one.end();
            until_idle();
            to.open();
            until_idle();
            Parked::begin(&rt)
        });
        let asked_twice: Vec<_> = asked_twice.collect();
        // These wait for a stack.
        let more: Vec<_> = (0..STACKS).map(|_| rt.go(|| ())).collect();
        let refused = catch_unwind(AssertUnwindSafe(|| drop(rt.go(|| ()))));
        assert!(refused.is_err(), "a goroutine more than the limit allows");
        drop(keeps);
        keeper.join().unwrap();
        asked_twice.into_iter().for_each(Parked::end);
        more.into_iter().for_each(|one| one.join().unwrap());
        for _ in 0..2 * STACKS {
            rt.go(|| ()).join().unwrap();
        }
    });
}
