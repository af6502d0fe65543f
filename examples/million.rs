//! A million goroutines, each parked on a channel, with a guard page below its stack: what they cost, and that the memory comes
//! back.
//!
//! cargo run --release --example million
//!
//! ```text
//! 1000000 goroutines parked on channels, procs 2
//!                     before        peak       after
//! resident            2.6      4365.8       261.9  MB
//! page tables         0.1       128.9         0.6  MB
//! each: 4492 bytes, the limit is 4700
//! trimmed after 2.0 s; 260 bytes of each stay, its G
//! created and parked in 4.54s, 4541 ns each
//! the floor is 6.06s, 6056 ns each: 0.75 times that
//! woken and joined in 747.03ms, 747 ns each
//! ```
//!
//! A thousand goroutines share a channel, from which each receives one number. When all are parked, the program sends the
//! numbers and joins every goroutine; then the runtime trims the memory that is not needed. The memory is as the kernel reports
//! it, page tables included. The floor is the same without a scheduler, on one thread: mappings, a guard page in each slot, one
//! page touched.
//!
//! The Gs stay: a waker that is late may still look at the word of a goroutine that has ended, so the memory of a G stays a
//! G's, for the next goroutines.
//!
//! The status is 1 if a goroutine costs more than 4,700 bytes, or if more stays than the G and a tenth of the rest. Below
//! 100,000 goroutines (`--goroutines N`) most of the memory would be what a process needs anyway: then the program only prints
//! it, like the times, which on a machine that does nothing else are at most 1.3 times the floor.

use gmp::chan::{self, Sender};
use gmp::{JoinHandle, go};
use std::fs;
use std::io;
use std::process::ExitCode;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const USAGE: &str = "million [--goroutines N]";
const MOST: usize = 10_000_000;
/// Goroutines that receive from the same channel.
const GROUP: usize = 1000;
/// How many bytes of memory a goroutine may cost.
const LIMIT: f64 = 4700.0;
/// How many bytes of each goroutine stay: its G, and its part of the list of handles.
const STAYS: f64 = 256.0 + 16.0;
/// From how many goroutines on memory is checked.
const ENOUGH: usize = 100_000;

/// The process's memory, in bytes.
#[derive(Clone, Copy)]
struct Memory {
    resident: f64,
    tables: f64,
}

impl Memory {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok());
            number.unwrap_or_else(|| panic!("no {name} in {status}")) * 1024.0
        };
        Memory { resident: field("VmRSS:"), tables: field("VmPTE:") }
    }

    fn sum(self) -> f64 {
        self.resident + self.tables
    }
}

/// Returns how long it takes at least: bare mappings, `count` slots with a guard page and a touched one.
fn floor(count: usize) -> io::Result<Duration> {
    const SLOT: usize = 64 << 10;
    const SLAB: usize = 64 << 20;
    const PAGE: usize = 4096;
    const GUARD_INSTALL: libc::c_int = 102;
    let start = Instant::now();
    let mut slabs = Vec::new();
    for first in (0..count).step_by(SLAB / SLOT) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let slab =
            unsafe { libc::mmap(ptr::null_mut(), SLAB, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if slab == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        slabs.push(slab);
        // SAFETY: the mapping is ours, advice and a write within it.
        unsafe {
            libc::madvise(slab, SLAB, libc::MADV_NOHUGEPAGE);
            for slot in 0..(count - first).min(SLAB / SLOT) {
                let guard = slab.byte_add(slot * SLOT);
                // If the kernel does not have this advice, each guard would take a mapping, and there are not so many: go on
                // without guards.
                libc::madvise(guard, PAGE, GUARD_INSTALL);
                guard.byte_add(SLOT - 8).cast::<u64>().write_volatile(1);
            }
        }
    }
    let took = start.elapsed();
    for slab in slabs {
        // SAFETY: the mappings made above, which are not in use any more.
        unsafe { libc::munmap(slab, SLAB) };
    }
    Ok(took)
}

/// The measurements of one run.
struct Run {
    before: Memory,
    peak: Memory,
    parked: Duration,
    joined: Duration,
}

/// Runs on a goroutine: parks all goroutines, measures, and ends them.
fn million(count: usize) -> io::Result<Run> {
    let before = Memory::now();
    let begun = Arc::new(AtomicUsize::new(0));
    let mut parked: Vec<JoinHandle<usize>> = Vec::with_capacity(count);
    let mut channels: Vec<Sender<usize>> = Vec::new();
    let start = Instant::now();
    for first in (0..count).step_by(GROUP) {
        let (sender, receiver) = chan::bounded(0);
        for _ in first..count.min(first + GROUP) {
            let (receiver, begun) = (receiver.clone(), Arc::clone(&begun));
            parked.push(gmp::Builder::new().go(move || {
                begun.fetch_add(1, SeqCst);
                receiver.recv().expect("the sender is kept")
            })?);
        }
        channels.push(sender);
    }
    while begun.load(SeqCst) < count {
        gmp::yield_now();
    }
    let took = start.elapsed();
    let peak = Memory::now();

    let start = Instant::now();
    drop(go(move || {
        (0..count).for_each(|number| channels[number / GROUP].send(number).expect("they receive"));
    }));
    let sum: usize = parked.into_iter().map(|one| one.join().expect("nobody panics")).sum();
    assert_eq!(sum, count * (count - 1) / 2, "each number was received once");
    Ok(Run { before, peak, parked: took, joined: start.elapsed() })
}

/// Waits for the trim: until enough memory has come back, and nothing more for half a second. Returns the memory that is left,
/// and how long the trim took.
fn trimmed(enough: f64) -> (Memory, Duration) {
    let start = Instant::now();
    let (mut least, mut since) = (Memory::now(), start.elapsed());
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let (now, waited) = (Memory::now(), start.elapsed());
        if now.sum() < 0.999 * least.sum() {
            (least, since) = (now, waited);
        }
        let is_over = least.sum() <= enough && waited - since > Duration::from_millis(500);
        if is_over || waited > Duration::from_secs(10) {
            return (least, since);
        }
    }
}

fn report(count: usize) -> Result<(), String> {
    // The first floor warms up the machine, whose own memory may be cold.
    let floors = [(); 2].map(|()| floor(count));
    let [_, floor] = floors.map(|floor| floor.map_err(|refused| format!("the floor: {refused}")));
    let floor = floor?;
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let runtime = unsafe { gmp::Runtime::builder().stack_size(64 << 10).build() }
        .map_err(|refused| refused.to_string())?;
    let run = runtime.run(|| million(count)).map_err(|refused| refused.to_string())?;
    let number = count as f64;
    let used = run.peak.sum() - run.before.sum();
    let stays = STAYS * number + 0.1 * used;
    let (after, waited) = trimmed(run.before.sum() + stays);

    println!("{count} goroutines parked on channels, procs {}", runtime.procs());
    println!("                    before        peak       after");
    let row = |name: &str, of: fn(Memory) -> f64| {
        let [before, peak, after] = [run.before, run.peak, after].map(|memory| of(memory) / 1e6);
        println!("{name:11} {before:11.1} {peak:11.1} {after:11.1}  MB");
    };
    row("resident", |memory| memory.resident);
    row("page tables", |memory| memory.tables);
    let each = used / number;
    println!("each: {each:.0} bytes, the limit is {LIMIT:.0}");
    let kept = (after.sum() - run.before.sum()).max(0.0);
    println!("trimmed after {:.1} s; {:.0} bytes of each stay, its G", waited.as_secs_f64(), kept / number);
    let nanos = |time: Duration| time.as_nanos() as f64 / number;
    let ratio = run.parked.as_secs_f64() / floor.as_secs_f64();
    println!("created and parked in {:.2?}, {:.0} ns each", run.parked, nanos(run.parked));
    println!("the floor is {:.2?}, {:.0} ns each: {ratio:.2} times that", floor, nanos(floor));
    println!("woken and joined in {:.2?}, {:.0} ns each", run.joined, nanos(run.joined));
    if ratio > 1.3 {
        println!("(1.3 times the floor is the limit on a machine that does nothing else)");
    }
    if count >= ENOUGH && each > LIMIT {
        return Err(format!("a goroutine costs {each:.0} bytes, more than {LIMIT:.0}"));
    }
    if count >= ENOUGH && kept > stays {
        return Err(format!("{kept:.0} bytes did not come back, more than {stays:.0}"));
    }
    Ok(())
}

fn options(mut args: impl Iterator<Item = String>) -> Result<usize, String> {
    let mut count = 1_000_000;
    while let Some(flag) = args.next() {
        if flag != "--goroutines" {
            return Err(format!("unknown argument {flag:?}; {USAGE}"));
        }
        let text = args.next().unwrap_or_default();
        let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
        count = number.ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {MOST}"))?;
    }
    Ok(count)
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let (status, wrong) = match options(args).map(report) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(wrong)) => (1, wrong),
        Err(wrong) => (2, wrong),
    };
    eprintln!("million: {wrong}");
    ExitCode::from(status)
}
