//! Stacks and the limits of the machine: which spawn is refused a stack, what its caller is told, and which memory is given
//! back.

use common::child;
use common::descriptors::all_descriptors;
use common::{PROCS, runtime, seccomp, skipped, until, watched};
use gmp::sync::Event;
use gmp::{Builder, JoinHandle, Runtime, go};
use std::ffi::CString;
use std::fs;
use std::hint::black_box;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const STACK: usize = 64 << 10;

/// Goroutines that wait for the same end.
#[derive(Default)]
struct Waiting {
    end: Arc<Event>,
    began: Arc<AtomicUsize>,
    all: Vec<JoinHandle<()>>,
}

impl Waiting {
    /// Starts one more goroutine, or returns why not. The caller is a goroutine.
    fn add(&mut self) -> Result<(), Error> {
        let (end, began) = (Arc::clone(&self.end), Arc::clone(&self.began));
        let body = move || {
            began.fetch_add(1, SeqCst);
            end.wait();
            // Wakes the next one.
            end.notify_one();
        };
        self.all.push(Builder::new().go(body)?);
        Ok(())
    }

    /// Starts goroutines until one is refused.
    fn fill(&mut self) -> Error {
        loop {
            if let Err(refused) = self.add() {
                return refused;
            }
        }
    }

    /// Asserts that all goroutines that were accepted run, and end.
    fn end(self) {
        until(|| self.began.load(SeqCst) == self.all.len());
        self.end.notify_one();
        self.all.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// Fails if a stack that was given back still counts, if a stack in use does not count, or by an abort in place of an error and
/// a panic.
#[test]
fn the_limit_of_the_builder_is_exact_and_told_at_the_spawn() {
    for procs in PROCS {
        watched(procs, || {
            let builder = Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(20 * STACK);
            // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
            let rt = unsafe { builder.build() }.unwrap();
            rt.run(|| {
                for _ in 0..20 {
                    let mut waiting = Waiting::default();
                    let refused = waiting.fill();
                    // Main has one stack.
                    assert_eq!((waiting.all.len(), refused.kind()), (19, ErrorKind::QuotaExceeded));
                    let text =
                        "a stack of 64 KiB: 1280 KiB of stacks are in use, the runtime's limit is 1280 KiB";
                    assert_eq!(refused.to_string(), text);
                    waiting.end();
                }
                let mut waiting = Waiting::default();
                waiting.fill();
                let panic = catch_unwind(|| drop(go(|| ()))).unwrap_err();
                let text = panic.downcast_ref::<String>().unwrap();
                assert!(text.starts_with("go: a stack of 64 KiB: "), "{text}");
                waiting.end();
            });
        });
    }
}

/// Spawns until the kernel refuses, in a process that is short of something. Returns how many goroutines were accepted, all of
/// which run, and why no more were.
fn exhaust() -> (usize, Error) {
    let rt = runtime(2);
    rt.run(|| {
        let mut waiting = Waiting::default();
        let refused = waiting.fill();
        let count = waiting.all.len();
        waiting.end();
        // Stacks that came back can be had again.
        let mut again = Waiting::default();
        (0..count / 2).for_each(|_| again.add().expect("there were as many before"));
        again.end();
        (count, refused)
    })
}

/// `ulimit -v`. Fails by an abort, by an accepted goroutine that does not run, or by an error that does not name the limit.
#[test]
fn address_space_that_runs_out_is_told_at_the_spawn() {
    if !child::is_child() {
        child::passes("address_space_that_runs_out_is_told_at_the_spawn", &[]);
        return;
    }
    watched(2, || {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        // Threads need some of the address space.
        let bytes = pages * 4096 + (400 << 20);
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: it reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let (count, refused) = exhaust();
        assert!((500..6400).contains(&count), "{count}");
        let text = refused.to_string();
        assert!(text.contains("RLIMIT_AS is ") && refused.kind() == ErrorKind::OutOfMemory, "{text}");
    });
}

/// `ulimit -d`. Fails as above, or by an abort of the allocator afterwards, as nothing is left for it.
#[test]
fn data_that_runs_out_is_told_at_the_spawn() {
    if !child::is_child() {
        child::passes("data_that_runs_out_is_told_at_the_spawn", &[]);
        return;
    }
    watched(2, || {
        let bytes = 160 << 20;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: it reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
        let rt = runtime(2);
        rt.run(|| {
            let mut waiting = Waiting::default();
            let refused = waiting.fill();
            let text = refused.to_string();
            assert!(
                text.contains("RLIMIT_DATA is 160 MiB") && refused.kind() == ErrorKind::OutOfMemory,
                "{text}"
            );
            assert!((500..2500).contains(&waiting.all.len()), "{}", waiting.all.len());
            // Most of the eighth that is left for the heap and a thread.
            assert!(black_box(vec![1_u8; 12 << 20]).iter().all(|byte| *byte == 1));
            assert!(thread::Builder::new().spawn(|| ()).unwrap().join().is_ok());
            waiting.end();
        });
    });
}

/// `ulimit -d`. Fails by an abort of the allocator: a program that can do without the runtime learns nothing.
#[test]
fn a_runtime_for_which_there_is_no_memory_is_an_error() {
    if !child::is_child() {
        child::passes("a_runtime_for_which_there_is_no_memory_is_an_error", &[]);
        return;
    }
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes the struct that we pass.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_DATA, &mut before) }, 0);
    let set = |rlim_cur| {
        let limit = libc::rlimit { rlim_cur, ..before };
        // SAFETY: it reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    };
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(5).unwrap().parse().unwrap();
    // Less than the Ps of a runtime take.
    set(pages * 4096 + (1 << 20));
    // SAFETY: no goroutine is ever started there.
    let refused = unsafe { Runtime::builder().procs(1).build() };
    set(before.rlim_cur);
    let refused = refused.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{refused}");
    assert!(refused.to_string().contains("the Ps of a runtime"), "{refused}");
}

/// The same as in the tests before, in a process whose table of descriptors is full, so that the process can't read how
/// much it has mapped. Fails by the count, or by an abort of the allocator, as nothing is left for it.
#[test]
fn an_eighth_of_a_limit_is_left_where_no_descriptor_is() {
    const NAME: &str = "an_eighth_of_a_limit_is_left_where_no_descriptor_is";
    if !child::is_child() {
        for limit in ["RLIMIT_AS", "RLIMIT_DATA"] {
            child::passes(NAME, &[("LIMIT", limit)]);
        }
        return;
    }
    watched(2, || {
        let name = std::env::var("LIMIT").unwrap();
        let rt = runtime(2);
        // Starts the second thread.
        rt.run(|| drop(go(gmp::yield_now).join()));
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let used = |field| 4096 * statm.split(' ').nth(field).unwrap().parse::<u64>().unwrap();
        let (resource, used) = match &*name {
            "RLIMIT_AS" => (libc::RLIMIT_AS, used(0)),
            _ => (libc::RLIMIT_DATA, used(5)),
        };
        let bytes = used + (200 << 20);
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: it reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        rt.run(|| {
            let full = all_descriptors();
            let mut waiting = Waiting::default();
            let refused = waiting.fill();
            // Most of the eighth that is left for the heap.
            assert!(black_box(vec![1_u8; 12 << 20]).iter().all(|byte| *byte == 1));
            drop(full);
            assert!(refused.to_string().contains(&format!("{name} is ")), "{refused}");
            assert!((500..3200).contains(&waiting.all.len()), "{}", waiting.all.len());
            waiting.end();
        });
    });
}

/// `mlockall` rules light guards out, so that `vm.max_map_count` limits the goroutines. Fails as above.
#[test]
fn mappings_that_run_out_are_told_at_the_spawn() {
    if !child::is_child() {
        child::passes("mappings_that_run_out_are_told_at_the_spawn", &[]);
        return;
    }
    let max = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let max: usize = max.trim().parse().unwrap();
    if max > 100_000 {
        println!("vm.max_map_count is {max}: so many goroutines take too long");
        return;
    }
    // SAFETY: the call sets a mode of this process, for later mappings.
    if unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) } != 0 {
        println!("mlockall: {}", Error::last_os_error());
        return;
    }
    watched(2, || {
        let (count, refused) = exhaust();
        let text = refused.to_string();
        // A process that may not lock so much memory meets that limit first.
        let by_maps = text.contains(&format!("vm.max_map_count = {max}"));
        assert!(by_maps && count > max / 4 || text.contains("mmap of 1 MiB"), "{count}: {text}");
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    });
}

/// Returns how many bytes of the process are in memory.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    4096 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

/// Touches a good part of a stack of 64 KiB: a debug build has the array more than once.
#[inline(never)]
fn touch() {
    black_box([1_u8; 16 << 10]);
}

/// Fails if the memory of stacks is not given back, by the pool or by an idle P, or if a trim takes memory that is in use.
#[test]
fn the_memory_of_a_burst_goes_back() {
    const COUNT: usize = 2000;
    if !child::is_child() {
        child::passes("the_memory_of_a_burst_goes_back", &[]);
        return;
    }
    watched(4, || {
        let rt = runtime(4);
        for _ in 0..2 {
            let before = resident();
            // This goroutine stays parked over the burst and the trim, with something on its stack.
            let (go_on, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
            let parked = rt.go({
                let (go_on, goes_on) = (Arc::clone(&go_on), Arc::clone(&goes_on));
                move || {
                    let there = black_box([7_u8; 8 << 10]);
                    goes_on.notify_one();
                    go_on.wait();
                    assert!(black_box(&there).iter().all(|byte| *byte == 7));
                }
            });
            goes_on.wait();
            let peak = rt.run(|| {
                let mut waiting = Waiting::default();
                (0..COUNT).for_each(|_| {
                    waiting.all.push(go({
                        let (end, began) = (Arc::clone(&waiting.end), Arc::clone(&waiting.began));
                        move || {
                            touch();
                            began.fetch_add(1, SeqCst);
                            end.wait();
                            end.notify_one();
                        }
                    }))
                });
                until(|| waiting.began.load(SeqCst) == COUNT);
                let peak = resident();
                waiting.end();
                peak
            });
            assert!(peak > before + COUNT * (16 << 10), "{before} {peak}");
            while resident() > before + (peak - before) / 10 {
                thread::sleep(Duration::from_millis(20));
            }
            go_on.notify_one();
            parked.join().unwrap();
        }
    });
}

/// Fails by a fault, or if a bad value is taken for the default.
#[test]
fn the_default_stack_can_be_set_from_outside() {
    const TEST: &str = "the_default_stack_can_be_set_from_outside";
    if !child::is_child() {
        for size in ["1M", "1024K", "1048576"] {
            child::passes(TEST, &[("GMPSTACK", size)]);
        }
        child::passes(TEST, &[("GMPSTACK", "much")]);
        return;
    }
    // SAFETY: as above.
    match unsafe { Runtime::builder().build() } {
        Ok(rt) => rt.run(|| {
            black_box([1_u8; 300 << 10]);
        }),
        Err(refused) => {
            let text = "GMPSTACK: \"much\" is not a size from 16K to 64M, in bytes, K or M";
            assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::InvalidInput, text));
            assert_eq!(std::env::var("GMPSTACK").unwrap(), "much");
        }
    }
}

/// Fails by a hang when the limit is not the one that the operator has set since.
#[test]
fn a_limit_of_mappings_that_is_raised_is_seen() {
    const NAME: &str = "a_limit_of_mappings_that_is_raised_is_seen";
    const LIMIT: &str = "/proc/sys/vm/max_map_count";
    if !child::is_child() {
        let file = std::env::temp_dir().join(format!("gmp-max-map-count-{}", std::process::id()));
        fs::write(&file, "400").unwrap();
        let [limit, place] =
            [&file, Path::new(LIMIT)].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
        let said = child::passes_where(NAME, move || {
            let none = ptr::null();
            // SAFETY: the texts end in zero, and there is no data. The first mount makes the mounts of this namespace private,
            // so that the next one is not seen in others.
            let is_there = unsafe {
                (libc::unshare(libc::CLONE_NEWNS) == 0
                    || libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) == 0)
                    && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                        == 0
                    && libc::mount(limit.as_ptr(), place.as_ptr(), none, libc::MS_BIND, none.cast()) == 0
            };
            if is_there { Ok(()) } else { Err(Error::last_os_error()) }
        });
        fs::remove_file(file).unwrap();
        return if said.is_none() {
            skipped("no namespace can be had")
        };
    }
    assert_eq!(fs::read_to_string(LIMIT).unwrap(), "400");
    // Guards are made by `mprotect`.
    seccomp::refuse(&[libc::SYS_madvise, libc::SYS_process_madvise], libc::EINVAL);
    watched(2, || {
        runtime(2).run(|| {
            let mut waiting = Waiting::default();
            let refused = waiting.fill().to_string();
            assert!(refused.contains("vm.max_map_count = 400 "), "{refused}");
            fs::write(LIMIT, "65530").unwrap();
            until(|| waiting.add().is_ok());
            waiting.end();
        });
    });
}

/// A closure is moved onto the stack of its goroutine, and so is its value. Fails by the death of the process, as by an
/// overflow, when one that can't lie there is accepted; by an error that does not name both sizes and that of the stack; or
/// when one that works is refused.
#[test]
fn only_a_closure_that_can_not_lie_on_its_stack_is_refused() {
    /// What an optimised build can hold on 128 KiB; the other build makes copies.
    const HELD: usize = if cfg!(debug_assertions) { 60 << 10 } else { 110 << 10 };
    /// The default of this build.
    const DEFAULT: usize = if cfg!(debug_assertions) { 4 * STACK } else { STACK };
    fn small() -> Builder {
        // Rounded up to 128 KiB.
        Builder::new().stack_size(STACK + 1)
    }
    fn holds<const BYTES: usize>() -> impl FnOnce() -> usize + Send {
        let bytes = black_box([1_u8; BYTES]);
        move || black_box(&bytes).len()
    }
    fn returns<const BYTES: usize>() -> impl FnOnce() -> [u8; BYTES] + Send {
        || black_box([1_u8; BYTES])
    }
    fn waits<const BYTES: usize>() -> impl Future<Output = usize> + Send {
        let bytes = black_box([1_u8; BYTES]);
        async move {
            std::future::ready(()).await;
            black_box(&bytes).len()
        }
    }
    for procs in PROCS {
        watched(procs, || {
            // SAFETY: as above.
            let rt = unsafe { Runtime::builder().procs(procs).stack_size(64 * STACK).build() }.unwrap();
            rt.run(|| {
                let (held, returned) = (holds::<{ 2 * STACK }>(), returns::<{ 2 * STACK }>());
                for refused in [small().go(held).map(drop), small().go(returned).map(drop)] {
                    let refused = refused.unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                    let text = refused.to_string();
                    assert!(text.contains("131072 bytes") && text.contains("a stack of 128 KiB"), "{text}");
                }
                assert_eq!(small().go(holds::<HELD>()).unwrap().join().unwrap(), HELD);
                let returned = Builder::new().stack_size(4 * DEFAULT).go(returns::<STACK>());
                assert_eq!(returned.unwrap().join().unwrap().len(), STACK);
                // A third of the stack in an optimised build.
                let future = waits::<{ 20 << 10 }>();
                let waited = Builder::new().stack_size(DEFAULT).go(|| gmp::block_on(future));
                assert_eq!(waited.unwrap().join().unwrap(), 20 << 10);
            });
        });
    }
}
