//! The stack pool, as its users and the kernel see it.

use super::slab::SLAB;
use super::*;
use crate::stack::tests::{child, is_child};
use std::fs;
use std::os::fd::AsRawFd;

/// Returns `true` in a child process, in which `test` runs alone. In the parent, runs the test in such a child, where it must
/// pass, and returns `false`.
fn alone(test: &str) -> bool {
    if is_child() {
        return true;
    }
    let output = child(module_path!(), test).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    false
}

/// Limits the address space of the process so that stacks get 100 MiB more, and an eighth of the limit is left.
fn leave_address_space_for_stacks() {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let bytes = (pages * PAGE as u64 + (100 << 20)) / 7 * 8;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the call reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Reserves and takes a stack as a spawn and a first run do, without a P.
fn take(pool: &StackPool, size: usize) -> io::Result<StackMem> {
    pool.reserve(None, size)?;
    pool.take_one(size)
}

/// # Safety
/// The same as for `StackPool::give`.
unsafe fn give(pool: &StackPool, stack: StackMem) {
    let mut cache = StackCache::default();
    // SAFETY: by this function's contract.
    unsafe { pool.give(&mut cache, stack) };
    pool.empty(&mut cache);
}

fn write_through(stack: &StackMem) {
    let bytes = stack.class.bytes() - PAGE;
    // SAFETY: these bytes are the usable part of a stack that is out of its pool.
    unsafe { stack.top().wrapping_sub(bytes).write_bytes(0xA5, bytes) };
}

/// Returns how many of the kernel's mappings overlap the slab, and how many of them cannot be read.
fn mappings(base: usize, bytes: usize) -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        address(from) < base + bytes && base < address(to)
    });
    ours.fold((0, 0), |(all, closed), line| (all + 1, closed + usize::from(line.contains("---p"))))
}

fn extent(pool: &StackPool) -> (usize, usize) {
    let inner = pool.inner.lock();
    let slab = inner.slabs[0].as_ref().unwrap();
    (slab.base.addr().get(), slab.bytes())
}

/// Fails by an off-by-one error in the classes: a stack is too small, or one class too large.
#[test]
fn sizes_are_rounded_up_to_a_class() {
    let class = |size| Class::of(size).unwrap();
    assert_eq!(class(0).bytes(), MIN_STACK);
    assert_eq!(class(MIN_STACK + 1).bytes(), 2 * MIN_STACK);
    assert_eq!(class(64 << 10).bytes(), 64 << 10);
    assert_eq!((class(MAX_STACK).bytes(), class(MAX_STACK).index()), (MAX_STACK, Class::COUNT - 1));
    let error = take(&StackPool::new(None, PAGE), MAX_STACK + 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "a stack of 67108865 bytes: the biggest is 64 MiB");
}

/// Fails by a fault or an assertion: slots overlap, or lie outside of their slab; or a stack's memory is another's, too.
#[test]
fn stacks_of_all_classes_can_be_written_and_do_not_overlap() {
    let pool = StackPool::new(None, GUARD);
    let mut stacks: Vec<StackMem> = (0..Class::COUNT).map(|i| take(&pool, MIN_STACK << i).unwrap()).collect();
    stacks.extend((0..200).map(|_| take(&pool, 64 << 10).unwrap()));
    let mut tops: Vec<_> = stacks.iter().map(|stack| (stack.top().addr(), stack.class.bytes())).collect();
    tops.sort();
    assert!(tops.windows(2).all(|pair| pair[0].0 + pair[1].1 <= pair[1].0));
    // The usable part of each stack. Of the largest ones only a page at each end, so that they cost no memory.
    let parts = |stack: &StackMem| {
        let bytes = stack.class.bytes() - PAGE;
        let part = if bytes < 1 << 20 { bytes } else { PAGE };
        [bytes, part].map(|below| (stack.top().wrapping_sub(below), part))
    };
    for (number, stack) in (0..).zip(&stacks) {
        // SAFETY: the parts belong to a stack that is out of its pool.
        parts(stack).into_iter().for_each(|(from, bytes)| unsafe { from.write_bytes(number, bytes) });
    }
    for (number, stack) in (0_u8..).zip(&stacks) {
        for (from, bytes) in parts(stack) {
            // SAFETY: these bytes were written above, and no other thread has the stack.
            let read = unsafe { std::slice::from_raw_parts(from, bytes) };
            assert!(read.iter().all(|&byte| byte == number), "stack {number}");
        }
    }
}

/// Fails if the pool takes a colder stack although a hot one is free.
#[test]
fn the_stack_given_back_last_is_taken_first() {
    let pool = StackPool::new(None, PAGE);
    let [a, b] = [(); 2].map(|()| take(&pool, 64 << 10).unwrap());
    let tops = [a.top(), b.top()];
    // SAFETY: nothing ever ran on them.
    unsafe {
        give(&pool, b);
        give(&pool, a);
    }
    assert_eq!([(); 2].map(|()| take(&pool, 64 << 10).unwrap().top()), tops);
}

/// Fails if the limit counts stacks that were given back, forgets stacks that are out, or is not named in the error.
#[test]
fn the_limit_is_on_the_stacks_that_are_out() {
    let pool = StackPool::new(Some(128 << 10), PAGE);
    let first = take(&pool, 64 << 10).unwrap();
    let _second = take(&pool, 64 << 10).unwrap();
    let error = take(&pool, 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(
        error.to_string(),
        "a stack of 16 KiB: 128 KiB of stacks are in use, the runtime's limit is 128 KiB"
    );
    // SAFETY: nothing ever ran on it.
    unsafe { give(&pool, first) };
    take(&pool, 16 << 10).unwrap();
}

/// Fails if a slab outlives its pool, or dies while one of its stacks is out.
#[test]
fn a_dropped_pool_unmaps_what_came_back_and_leaks_what_did_not() {
    if !alone("a_dropped_pool_unmaps_what_came_back_and_leaks_what_did_not") {
        return;
    }
    for leak in [false, true] {
        let pool = StackPool::new(None, PAGE);
        let [stack, other] = [(); 2].map(|()| take(&pool, 64 << 10).unwrap());
        write_through(&stack);
        // SAFETY: nothing ever ran on them.
        unsafe { give(&pool, other) };
        let kept = leak.then_some(stack.top());
        if !leak {
            // SAFETY: nothing ever ran on these stacks.
            unsafe { give(&pool, stack) };
        }
        let (base, bytes) = extent(&pool);
        assert_eq!(bytes, SLAB);
        drop(pool);
        match kept {
            // SAFETY: this stack is out, so its slab was leaked.
            Some(top) => assert_eq!(unsafe { top.sub(1).read_volatile() }, 0xA5),
            None => assert_eq!(mappings(base, bytes).0, 0),
        }
    }
}

/// Fails if a slot has no guard, or one that covers more than its lowest page.
#[test]
fn every_stack_ends_at_a_guard_page_of_either_kind() {
    let (_reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the kernel reads the byte for us, and returns EFAULT if it cannot.
    let readable = |byte: *mut u8| unsafe { libc::write(writer.as_raw_fd(), byte.cast(), 1) } == 1;
    for (guard, bytes) in [Guard::Light, Guard::Mprotect]
        .into_iter()
        .flat_map(|guard| [1, PAGE, GUARD, 100_000, MAX_GUARD].map(|bytes| (guard, bytes)))
    {
        let pool = StackPool::with_guard(None, bytes, guard);
        for number in 0..2 * BATCH + 1 {
            let stack = take(&pool, 64 << 10).unwrap();
            let lowest = stack.top().wrapping_sub((64 << 10) - PAGE);
            assert_eq!(lowest.addr(), stack.extent().bottom + PAGE);
            let end = lowest.wrapping_sub(bytes.next_multiple_of(PAGE));
            assert_eq!(end.addr(), stack.extent().guard);
            let around = [lowest, lowest.wrapping_sub(1), lowest.wrapping_sub(PAGE), end];
            assert_eq!(around.map(readable), [true, false, false, false], "{guard:?} {bytes}");
            // Below the guard comes the next slot, if the slab has one; its stack is out, too.
            let slots = SLAB / ((64 << 10) - PAGE + bytes.next_multiple_of(PAGE));
            assert!(number % slots == 0 || readable(end.wrapping_sub(1)), "{guard:?} {bytes}");
        }
    }
}

/// Fails if the check accepts a guard that is not there, or one that covers usable pages.
#[test]
fn a_guard_is_believed_in_that_is_there_and_ends_where_it_should() {
    let stack = take(&StackPool::new(None, 3 * PAGE), 64 << 10).unwrap();
    let Extent { guard, .. } = stack.extent();
    let at = |page: usize| stack.top().with_addr(guard + page * PAGE);
    // SAFETY: the stack is out, and nothing ever ran on it; its slot and guard are longer than the checked range.
    let found = |page: usize, pages: usize| unsafe { guard::is_guard(at(page), pages * PAGE) };
    assert!(found(0, 3));
    assert_eq!((found(0, 4), found(0, 2), found(3, 1)), (false, false, false));
}

/// Fails if reservations of stacks that are not taken make guards, or if a stack that is taken has no guard.
#[test]
fn light_guards_are_made_for_stacks_that_are_taken() {
    let (_reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the kernel reads the byte, or refuses.
    let readable = |byte: *mut u8| unsafe { libc::write(writer.as_raw_fd(), byte.cast(), 1) } == 1;
    let (pool, mut cache, size) = (StackPool::new(None, PAGE), StackCache::default(), 64 << 10);
    (0..SLAB / size).for_each(|_| pool.reserve(Some(&mut cache), size).unwrap());
    let guarded = || pool.inner.lock().slabs.iter().flatten().map(|slab| slab.guarded).sum::<usize>();
    assert_eq!((guarded(), count_mapped(&pool)), (FIRST_BATCH, 1));
    let stacks: Vec<_> = (0..BATCH + 1).map(|_| pool.take(&mut cache, size).unwrap()).collect();
    assert_eq!(guarded(), 2 * BATCH);
    assert!(stacks.iter().all(|stack| !readable(stack.top().wrapping_sub(size))));
}

/// Fails if a stack has no guard, or its goroutine has no stack, when the kernel refuses light guards of a slab for which it
/// had made some.
#[test]
fn memory_that_is_locked_later_gets_the_other_guards_by_mprotect() {
    if !alone("memory_that_is_locked_later_gets_the_other_guards_by_mprotect") {
        return;
    }
    let (pool, size) = (StackPool::new(None, PAGE), 64 << 10);
    let first = take(&pool, size).unwrap();
    // SAFETY: the call only sets a mode of this process.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) }, 0);
    let others: Vec<_> = (0..2 * BATCH).map(|_| take(&pool, size).unwrap()).collect();
    let (base, bytes) = extent(&pool);
    assert_eq!((mappings(base, bytes).1, count_mapped(&pool)), (3 * BATCH - FIRST_BATCH, 1));
    others.iter().chain([&first]).for_each(write_through);
}

/// Unmaps the part of the slab above its first stacks, so that the kernel makes no guards there.
fn refuse_guards(pool: &StackPool, size: usize) {
    let (base, bytes) = extent(pool);
    let from = base + FIRST_BATCH * size;
    // SAFETY: no stack in this part is out, or will be taken.
    assert_eq!(unsafe { libc::munmap(from as *mut _, bytes - (from - base)) }, 0);
}

/// Fails by an error: then the stack that was given back lies in the magazine, for a reservation that no goroutine needs.
#[test]
fn where_guards_are_refused_the_last_stack_is_for_the_goroutine_that_asks() {
    if !alone("where_guards_are_refused_the_last_stack_is_for_the_goroutine_that_asks") {
        return;
    }
    let (pool, mut cache, size) = (StackPool::new(None, PAGE), StackCache::default(), 64 << 10);
    let mut stacks: Vec<_> = (0..FIRST_BATCH).map(|_| take(&pool, size).unwrap()).collect();
    refuse_guards(&pool, size);
    let spare = stacks.pop().unwrap();
    let top = spare.top();
    // SAFETY: nothing ever ran there.
    unsafe { give(&pool, spare) };
    pool.reserve(Some(&mut cache), size).unwrap();
    assert!(cache.0[Class::of(size).unwrap().index()].reservations > 0);
    assert_eq!(pool.take(&mut cache, size).unwrap().top(), top);
    assert_eq!(pool.take(&mut cache, size).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
}

/// Fails by a count below zero, by a lost reservation, or by a magazine with a stack too many.
#[test]
fn a_stack_that_is_put_back_leaves_its_reservation() {
    let size = 64 << 10;
    let (pool, mut cache) = (StackPool::new(Some(size), PAGE), StackCache::default());
    let count = || {
        let stock = &pool.inner.lock().stocks[Class::of(size).unwrap().index()];
        (pool.accepted.load(Relaxed), stock.reserved, stock.out)
    };
    pool.reserve(None, size).unwrap();
    let stack = pool.take(&mut cache, size).unwrap();
    assert_eq!(count(), (size, 1, 1));
    // SAFETY: nothing ever ran there.
    unsafe { pool.put_back(stack) };
    assert_eq!(count(), (size, 1, 0));
    assert!(cache.0.iter().all(|magazine| magazine.stacks.is_empty() && magazine.reservations == 0));
    let stack = pool.take(&mut cache, size).unwrap();
    // SAFETY: nothing ever ran there.
    unsafe { pool.give(&mut cache, stack) };
    pool.empty(&mut cache);
    assert_eq!(count(), (0, 0, 0));
}

/// Fails if a batch guards another number of slots than it should, or if a few stacks get many guards. Guards by `mprotect` are
/// visible.
#[test]
fn guards_are_made_in_batches_that_grow() {
    let pool = StackPool::with_guard(None, PAGE, Guard::Mprotect);
    let first = take(&pool, 64 << 10).unwrap();
    let (base, bytes) = extent(&pool);
    assert_eq!(mappings(base, bytes).1, FIRST_BATCH);
    // SAFETY: nothing ever ran there.
    unsafe { give(&pool, first) };
    let stacks: Vec<StackMem> = (0..BATCH).map(|_| take(&pool, 64 << 10).unwrap()).collect();
    assert_eq!(mappings(base, bytes).1, BATCH);
    stacks.iter().for_each(write_through);
    let next = take(&pool, 64 << 10).unwrap();
    assert_eq!(mappings(base, bytes).1, 2 * BATCH);
    assert_eq!(next.top().addr(), base + (BATCH + 1) * (64 << 10));
}

/// Fails by an abort, or by an error that does not name the limit.
#[test]
fn address_space_that_runs_out_is_an_error_that_names_the_limit() {
    if !alone("address_space_that_runs_out_is_an_error_that_names_the_limit") {
        return;
    }
    leave_address_space_for_stacks();
    let pool = StackPool::new(None, PAGE);
    let mut taken = 0;
    let error = loop {
        match take(&pool, 64 << 10) {
            Ok(_leaked) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!((98 * 16..=100 * 16).contains(&taken), "{taken}");
    let text = error.to_string();
    assert!(text.starts_with("a stack of 64 KiB: mmap of 1 MiB: "), "{text}");
    assert!(text.contains("mapped for stacks, RLIMIT_AS is "), "{text}");
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
}

/// Fails by an error: then slabs of another size hold the address space, although none of their stacks is out any more.
#[test]
fn what_is_free_of_one_size_makes_room_for_another() {
    if !alone("what_is_free_of_one_size_makes_room_for_another") {
        return;
    }
    leave_address_space_for_stacks();
    let pool = StackPool::new(None, PAGE);
    let mut small: Vec<_> = std::iter::from_fn(|| take(&pool, 64 << 10).ok()).collect();
    assert!(small.len() > 90 * 16, "{}", small.len());
    let kept = small.swap_remove(7);
    write_through(&kept);
    // SAFETY: nothing ever ran on them.
    small.into_iter().for_each(|stack| unsafe { give(&pool, stack) });
    let large: Vec<_> = std::iter::from_fn(|| take(&pool, 1 << 20).ok()).collect();
    assert!((20..=100).contains(&large.len()), "{}", large.len());
    large.iter().for_each(write_through);
    // SAFETY: this stack is out.
    assert_eq!(unsafe { kept.top().sub(1).read_volatile() }, 0xA5);
}

/// Fails by an error that does not name the limit, or if no mappings are left for the program.
#[test]
fn guards_by_mprotect_end_at_a_budget_of_mappings() {
    if !alone("guards_by_mprotect_end_at_a_budget_of_mappings") {
        return;
    }
    let pools = [(); 2].map(|()| StackPool::with_guard(None, PAGE, Guard::Mprotect));
    let mut taken = Vec::new();
    let error = loop {
        match take(&pools[taken.len() / 1000 % 2], 0) {
            Ok(stack) => taken.push(stack),
            Err(error) => break error,
        }
    };
    let (max, budget) = (guard::max_map_count(), guard::budget());
    assert!(taken.len() <= budget, "{}", taken.len());
    assert!(taken.len() > budget - 2 * BATCH, "{}", taken.len());
    assert!(error.to_string().contains(&format!("vm.max_map_count = {max}")), "{error}");
    std::thread::spawn(|| ()).join().unwrap();
}

/// Fails by an error, or if there is no guard by `mprotect`: the kernel has no light guards for locked memory.
#[test]
fn locked_memory_is_guarded_by_mprotect() {
    if !alone("locked_memory_is_guarded_by_mprotect") {
        return;
    }
    // SAFETY: the call only sets a mode of this process, for mappings to come.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) }, 0);
    let pool = StackPool::new(None, PAGE);
    write_through(&take(&pool, 64 << 10).unwrap());
    let (base, bytes) = extent(&pool);
    assert!(mappings(base, bytes).1 > 0);
}

/// Returns how many bytes of the range are in memory.
fn resident(base: usize, bytes: usize) -> usize {
    let mut pages = vec![0_u8; bytes / PAGE];
    // SAFETY: the range is a mapping of ours; the kernel writes a byte for each page into `pages`.
    assert_eq!(unsafe { libc::mincore(base as *mut _, bytes, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|page| **page & 1 != 0).count() * PAGE
}

/// Lets two periods pass in which no stack is needed, and does all the trimming that is due after them.
fn trim(pool: &StackPool) {
    (0..2).for_each(|_| {
        pool.age();
    });
    while pool.trim_some() {}
}

fn count_mapped(pool: &StackPool) -> usize {
    pool.inner.lock().slabs.iter().flatten().count()
}

/// Fails if a trim of all unmaps the kept stacks with the others: a panic hook would then have no stack.
#[test]
fn what_is_kept_stays_when_all_else_goes() {
    let (pool, kept, other) = (StackPool::small(PAGE), 256 << 10, 64 << 10);
    let use_one = |size| {
        pool.reserve(None, size).unwrap();
        let (stack, mut cache) = (pool.take_one(size).unwrap(), StackCache::default());
        // SAFETY: nothing ever ran on it.
        unsafe { pool.give(&mut cache, stack) };
        pool.empty(&mut cache);
    };
    [kept, other].into_iter().for_each(use_one);
    pool.keep(kept);
    pool.trim_all();
    assert_eq!(count_mapped(&pool), 1);
    pool.reserve_of_stock(other).unwrap_err();
    pool.reserve_of_stock(kept).unwrap();
    pool.take_one(kept).unwrap();
}

/// Fails by a hang: then a reservation, a take or a give asks for the lock, which the test holds.
#[test]
fn what_is_at_hand_takes_no_lock() {
    let (pool, mut cache) = (StackPool::new(None, PAGE), StackCache::default());
    let size = 64 << 10;
    let mut turn = |count: usize| {
        (0..count).for_each(|_| pool.reserve(Some(&mut cache), size).unwrap());
        let stacks: Vec<_> = (0..count).map(|_| pool.take(&mut cache, size).unwrap()).collect();
        // SAFETY: nothing ever ran on them.
        stacks.into_iter().for_each(|stack| unsafe { pool.give(&mut cache, stack) });
    };
    // These turns give the magazine as many stacks as a burst needs.
    (0..4).for_each(|_| turn(20));
    let locked = pool.inner.lock();
    (0..1000).for_each(|round| turn(1 + round % 20));
    drop(locked);
    pool.empty(&mut cache);
}

/// Fails by a reservation for which there is no stack: magazines keep more stacks than reservations, or a trim unmaps reserved
/// stacks.
#[test]
fn a_reservation_of_any_p_is_good_on_any_other_whatever_is_trimmed() {
    let mut dice = 0x9e37_79b9_u32;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        dice as usize % sides
    };
    for size in [16 << 10, 64 << 10, 1 << 20, MAX_STACK] {
        let (pool, mut cache) = (StackPool::new(None, PAGE), [(); 4].map(|()| StackCache::default()));
        let (mut reserved, mut out) = (0, Vec::new());
        let most = if size == MAX_STACK { 20 } else { 2000 };
        // The test wants many stacks in some periods, and fewer and fewer in the others.
        for step in 0..20_000 {
            let rises = step / 3000 % 2 == 0;
            let of = roll(4);
            match roll(8) {
                0..=2 if rises && reserved + out.len() < most => {
                    let near = (roll(5) > 0).then_some(&mut cache[of]);
                    pool.reserve(near, size).unwrap();
                    reserved += 1;
                }
                3..=4 if reserved > 0 => {
                    out.push(pool.take(&mut cache[of], size).unwrap());
                    reserved -= 1;
                }
                5..=6 if !out.is_empty() => {
                    let stack = out.swap_remove(roll(out.len()));
                    // SAFETY: nothing ever ran on it.
                    unsafe { pool.give(&mut cache[of], stack) };
                }
                7 if roll(20) == 0 => drop(pool.empty(&mut cache[of])),
                7 if roll(20) == 0 => {
                    pool.age();
                }
                _ => {
                    pool.trim_some();
                }
            }
            for magazine in cache.iter().flat_map(|cache| &cache.0) {
                assert!(magazine.stacks.len() <= magazine.reservations, "{magazine:?}");
            }
        }
        out.extend((0..reserved).map(|_| pool.take(&mut cache[0], size).unwrap()));
        // SAFETY: nothing ever ran on these stacks.
        out.into_iter().for_each(|stack| unsafe { pool.give(&mut cache[1], stack) });
        for cache in &mut cache {
            pool.empty(cache);
        }
        assert!(pool.inner.lock().stocks.iter().all(|stock| stock.reserved == 0));
        trim(&pool);
        assert_eq!(count_mapped(&pool), 0);
    }
}

/// Fails if stacks get pages in advance although few are out, or get pages below the top ones; if the magazine has more stacks
/// than reservations, or stacks do not come back; or, where the kernel can populate pages and no call had to wait, if the
/// pages of a storm come one by one.
#[test]
fn top_pages_are_there_beforehand_in_a_storm_only() {
    // Calls of other tests may have had to wait.
    if !alone("top_pages_are_there_beforehand_in_a_storm_only") {
        return;
    }
    let (pool, mut cache) = (StackPool::new(None, PAGE), StackCache::default());
    let class = Class::of(64 << 10).unwrap();
    let quiet = STORM * class.batch();
    let mut take = |count: usize| -> Vec<StackMem> {
        // These reservations are like those of a thread without a P: the magazine gets none of them.
        (0..count).for_each(|_| pool.reserve(None, 64 << 10).unwrap());
        (0..count).map(|_| pool.take(&mut cache, 64 << 10).unwrap()).collect()
    };
    let top = |stack: &StackMem| resident(stack.top().addr() - PAGE, PAGE) > 0;
    let few = take(quiet);
    assert_eq!(few.iter().filter(|stack| top(stack)).count(), 0);
    let many = take(10 * class.batch() + 1);
    let there = many.iter().filter(|stack| top(stack)).count();
    assert!(
        there == many.len() || there == 0 && populate::is_refused() || there > 0 && populate::leaves_out(),
        "{there} of {}",
        many.len()
    );
    assert!(many.iter().all(|stack| stack.extent().touched().is_some_and(|bytes| bytes <= PAGE)));
    {
        let magazine = &cache.0[class.index()];
        assert!(magazine.stacks.len() <= magazine.reservations && magazine.stacks.len() < class.batch());
    }
    // SAFETY: nothing ever ran on them.
    few.into_iter().chain(many).for_each(|stack| unsafe { pool.give(&mut cache, stack) });
    pool.empty(&mut cache);
    assert_eq!(pool.inner.lock().stocks[class.index()].reserved, 0);
    assert_eq!(pool.inner.lock().stocks[class.index()].out, 0);
}

/// Fails if pages stay that no stack needs, if the pages of a stack that is out go, or if a guard goes.
#[test]
fn what_is_not_needed_goes_back_page_by_page_or_as_a_slab() {
    // Another test could map memory where the slab was.
    if !alone("what_is_not_needed_goes_back_page_by_page_or_as_a_slab") {
        return;
    }
    let (_reader, writer) = std::io::pipe().unwrap();
    // SAFETY: as in `every_stack_ends_at_a_guard_page_of_either_kind`.
    let readable = |byte: *mut u8| unsafe { libc::write(writer.as_raw_fd(), byte.cast(), 1) } == 1;
    for guard in [Guard::Light, Guard::Mprotect] {
        let pool = StackPool::with_guard(None, PAGE, guard);
        let mut stacks: Vec<_> = (0..200).map(|_| take(&pool, 64 << 10).unwrap()).collect();
        stacks.iter().for_each(write_through);
        let kept = stacks.swap_remove(100);
        let (base, bytes) = extent(&pool);
        assert!(resident(base, bytes) >= 200 * 15 * PAGE);
        // SAFETY: nothing ever ran on them.
        stacks.into_iter().for_each(|stack| unsafe { give(&pool, stack) });

        pool.age();
        assert!(!pool.trim_some(), "they were in use a moment ago");
        trim(&pool);
        assert_eq!(resident(base, bytes), 15 * PAGE);
        let lowest = kept.top().wrapping_sub((64 << 10) - PAGE);
        // SAFETY: this stack is out.
        let bytes_kept = unsafe { std::slice::from_raw_parts(lowest, (64 << 10) - PAGE) };
        assert!(bytes_kept.iter().all(|byte| *byte == 0xA5));

        // The pool can give these stacks out again, with their guards.
        let again: Vec<_> = (0..199).map(|_| take(&pool, 64 << 10).unwrap()).collect();
        assert_eq!((count_mapped(&pool), pool.inner.lock().slabs[0].as_ref().unwrap().issued), (1, 200));
        again.iter().for_each(write_through);
        assert!(again.iter().all(|stack| !readable(stack.top().wrapping_sub(64 << 10))));

        // SAFETY: nothing ever ran on these stacks.
        again.into_iter().chain([kept]).for_each(|stack| unsafe { give(&pool, stack) });
        trim(&pool);
        assert_eq!((count_mapped(&pool), mappings(base, bytes).0), (0, 0));
    }
}

/// Fails if a trim takes hot stacks, which are needed again and again.
#[test]
fn what_is_needed_again_and_again_stays() {
    let pool = StackPool::new(None, PAGE);
    let burst = |count: usize| {
        let stacks: Vec<_> = (0..count).map(|_| take(&pool, 64 << 10).unwrap()).collect();
        stacks.iter().for_each(write_through);
        // SAFETY: nothing ever ran on them.
        stacks.into_iter().for_each(|stack| unsafe { give(&pool, stack) });
    };
    burst(100);
    for _ in 0..3 {
        pool.age();
        while pool.trim_some() {}
        burst(10);
    }
    let (base, bytes) = extent(&pool);
    assert_eq!(resident(base, bytes), 10 * 15 * PAGE);
}
