//! The costs of a look: a second look does not ask the unwinder; and the time and the stack that a look takes.

use super::*;

/// Calls itself until the walk from `leaf` to the catcher has `frames` frames, with a live value in each; then calls
/// `f`.
fn at_depth(frames: usize, f: &dyn Fn()) {
    fn descend(calls: usize, f: &dyn Fn()) {
        let _live = live();
        if calls == 0 { f() } else { black_box(descend as fn(usize, &dyn Fn()))(calls - 1, f) }
    }
    descend(frames, f);
}

fn frames_to_mark() -> usize {
    extern "C" fn count(context: *mut Context, counted: *mut c_void) -> c_int {
        // SAFETY: the caller passed the counter; the unwinder passed its context, which is valid within this callback.
        let (counted, low) = unsafe { (&mut *counted.cast::<usize>(), _Unwind_GetCFA(context)) };
        let beyond = low > MARK.get().addr();
        *counted += usize::from(!beyond);
        if beyond { ENOUGH } else { ON }
    }
    let mut counted = 0_usize;
    // SAFETY: `count` gets the counter, as it expects.
    unsafe { walk(count, (&raw mut counted).cast()) };
    counted
}

/// Fails if a frame of plain Rust is not known after a look: each look then asks the unwinder, which takes far longer. The look
/// itself drops a row that does not belong to its frame; this test compares each row once more.
#[test]
fn a_second_look_knows_its_way() {
    struct Seen {
        /// The place of the next frame, by the row of the last frame.
        next: Option<Place>,
        frames: usize,
    }
    extern "C" fn compare(context: *mut Context, seen: *mut c_void) -> c_int {
        // SAFETY: the caller passed `seen`; the unwinder passed its context, which is valid within this callback.
        let (seen, low, at, rbp) = unsafe {
            let at = _Unwind_GetIPInfo(context, &mut 0);
            (&mut *seen.cast::<Seen>(), _Unwind_GetCFA(context), at, _Unwind_GetGR(context, 6))
        };
        let place = Place { ip: at - 1, low, rbp };
        assert!(seen.next.is_none_or(|next| next == place), "{:?} is at {place:?}", seen.next);
        if low > MARK.get().addr() {
            return ENOUGH;
        }
        seen.frames += 1;
        // The first frames belong to this test, and no look has come to them.
        if seen.frames > 2 {
            let row = Generation::now().row(place.ip);
            let row = row.unwrap_or_else(|| panic!("{at:#x} is not known: {:?}", Rule::of(place.ip)));
            // SAFETY: the unwinder shows the frame.
            seen.next = Some(unsafe { row.caller_of(place) });
        }
        ON
    }
    #[inline(never)]
    fn look_and_compare() {
        leaf();
        let mut seen = Seen { next: None, frames: 0 };
        // SAFETY: `compare` gets the record, as it expects.
        unsafe { walk(compare, (&raw mut seen).cast()) };
        assert!(seen.frames > 10, "{} frames", seen.frames);
    }
    prepare();
    let case = || at_depth(10, black_box(&|| call(look_and_compare)));
    assert_eq!(catcher(case, false), (true, false));
}

/// Prints the cost of a look; in release: `cargo test --release -p gmp --lib frames::tests::costs::cost -- --nocapture`. Fails
/// if a look takes about a hundred times as long as it should.
#[test]
fn cost_of_a_look() {
    fn measure(frames: usize) -> (usize, f64) {
        let measured = Cell::new((0, 0.0));
        let look = || {
            const ROUNDS: u32 = 2000;
            let best = |_| {
                let start = Instant::now();
                (0..ROUNDS).for_each(|_| assert!(black_box(may_unwind_to(MARK.get())).is_ok()));
                start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
            };
            measured.set((frames_to_mark(), (0..5).map(best).fold(f64::MAX, f64::min)));
        };
        let mark = 0_u8;
        MARK.set((&raw const mark).cast());
        let caught = catch_unwind(AssertUnwindSafe(|| at_depth(frames, black_box(&look))));
        assert!(caught.is_ok());
        measured.get()
    }
    prepare();
    for calls in [11, 51] {
        let (frames, micros) = measure(calls);
        println!("{frames} frames: {micros:.2} us");
        assert!(micros < 1000.0, "{frames} frames: {micros} us");
    }
    let scan = || {
        let landmarks = Landmarks { caught: [0; 2], ..*landmarks().unwrap() };
        let start = Instant::now();
        // SAFETY: `kind` does not read the table while `caught` does not say how a throw is caught.
        let kind = unsafe { code::kind(cost_of_a_look as *const () as usize, ptr::null(), &landmarks) };
        (kind, start.elapsed(), tables::Function::at(cost_of_a_look as *const () as usize).unwrap())
    };
    let (kind, elapsed, function) = (0..5).map(|_| scan()).min_by_key(|(_, elapsed, _)| *elapsed).unwrap();
    println!("a function of {} bytes: {elapsed:?}, {kind:?}", function.end - function.start);
}

/// Prints how much stack a look and a throw take, on a thread's stack that the test has filled with a pattern. Fails if a look
/// needs more than 4 KB.
#[test]
fn stack_of_a_look() {
    const SIZE: usize = 256 << 10;
    extern "C" fn body(here: *mut c_void) -> *mut c_void {
        // SAFETY: the test passed a word of its own, and joins.
        unsafe { *here.cast::<usize>() = (&raw const here).addr() };
        call(if THROWS_FIRST.load(std::sync::atomic::Ordering::Relaxed) { throw } else { look });
        ptr::null_mut()
    }
    static THROWS_FIRST: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    fn look() {
        assert!(may_unwind_to(usize::MAX as *const ()).is_err());
    }
    fn throw() {
        assert!(catch_unwind(|| call(|| resume_unwind(Box::new(1)))).is_err());
    }
    let depth = |throws: bool| {
        THROWS_FIRST.store(throws, std::sync::atomic::Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut here = 0_usize;
        // SAFETY: the memory is new and becomes the thread's stack. The thread is joined before the test reads the memory.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(ptr::null_mut(), SIZE, rights, flags, -1, 0).cast::<u8>();
            assert_ne!(memory.cast(), libc::MAP_FAILED);
            memory.write_bytes(0xa5, SIZE);
            let mut attributes = std::mem::zeroed();
            let mut thread = 0;
            assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
            assert_eq!(libc::pthread_attr_setstack(&mut attributes, memory.cast(), SIZE), 0);
            assert_eq!(libc::pthread_create(&mut thread, &attributes, body, (&raw mut here).cast()), 0);
            assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
            let untouched = (0..SIZE).take_while(|&at| *memory.add(at) == 0xa5).count();
            let used = here - memory.addr() - untouched;
            libc::munmap(memory.cast(), SIZE);
            used
        }
    };
    // `later` is the least of several measurements: meanwhile the looks of other tests take the places of these functions'
    // tables.
    let (first, later) = (depth(false), (0..20).map(|_| depth(false)).min().unwrap());
    let throws = [depth(true), depth(true)];
    println!("stack of a look: {first} bytes at first, {later} later; of a throw: {throws:?}");
    assert!(later < 4096, "{later} bytes");
}
