//! What a user of the heap may rely on; each test checks one property.

use gmp_timers::{CLEAN_BATCH, Handle, Heap, Nanos};
use std::rc::Rc;

fn at(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

fn values<T>(heap: &mut Heap<T>, now: u64) -> Vec<T> {
    std::iter::from_fn(|| heap.pop_due(at(now))).map(|(_, value)| value).collect()
}

/// Fails when equal due times come out in the order of the array, or when a reset keeps the old order.
#[test]
fn equal_due_times_fire_in_the_order_of_insert_and_reset() {
    let mut heap = Heap::new();
    let handles: Vec<Handle> = (0..100).map(|id| heap.insert(at(50), id)).collect();
    // Resets to the same time, by way of a later time, and by way of an earlier one: all move to the end of the queue.
    heap.reset(handles[3], at(50));
    heap.reset(handles[1], at(90));
    heap.reset(handles[1], at(50));
    heap.reset(handles[2], at(10));
    heap.reset(handles[2], at(50));
    let mut expected: Vec<i32> = (0..100).filter(|id| !(1..4).contains(id)).collect();
    expected.extend([3, 1, 2]);
    assert_eq!(values(&mut heap, 50), expected);
}

/// Fails when a timer fires before its new time, not at that time, or at both times.
#[test]
fn a_moved_timer_fires_once_at_its_last_due_time() {
    let mut heap = Heap::new();
    let handle = heap.insert(at(10), 'x');
    heap.insert(at(25), 'y');
    for due in [20, 40, 15, 30] {
        assert!(heap.reset(handle, at(due)));
    }
    assert_eq!(values(&mut heap, 24), []);
    assert_eq!(values(&mut heap, 29), ['y']);
    assert_eq!(heap.pop_due(at(30)), Some((at(30), 'x')));
    assert_eq!(values(&mut heap, 1_000), []);
    assert!(!heap.reset(handle, at(1)));
}

/// Fails when the handle of a timer that fired, was stopped, or was moved out by `drain` stops the timer that uses its slot
/// now.
#[test]
fn a_stale_handle_does_nothing_to_the_next_user_of_its_slot() {
    let mut heap = Heap::new();
    let fired = heap.insert(at(1), 1);
    assert_eq!(values(&mut heap, 1), [1]);
    let stopped = heap.insert(at(2), 2);
    assert_eq!((heap.remove(stopped), heap.remove(stopped)), (Some(2), None));
    let drained = heap.insert(at(3), 3);
    assert_eq!(heap.drain().collect::<Vec<_>>(), [(at(3), 3)]);
    let live = heap.insert(at(4), 4);
    for stale in [fired, stopped, drained] {
        assert_ne!(stale, live);
        assert_eq!((heap.remove(stale), heap.reset(stale, at(0))), (None, false));
    }
    assert_eq!((heap.next_due(), heap.remove(live)), (Some(at(4)), Some(4)));
}

/// Fails when a handle is valid for a slot whose memory was given back and allocated again.
#[test]
fn handles_of_a_burst_stay_stale_after_its_memory_went() {
    let mut heap = Heap::new();
    let mut burst: Vec<Handle> = (0..10_000).map(|due| heap.insert(at(due), ())).collect();
    burst.iter().for_each(|&handle| assert!(heap.remove(handle).is_some()));
    let again: Vec<Handle> = (0..10_000).map(|due| heap.insert(at(due), ())).collect();
    burst.retain(|&handle| heap.remove(handle).is_some() || heap.reset(handle, at(0)));
    assert_eq!((burst.len(), heap.len()), (0, again.len()));
}

/// Fails when the front is dead or early after the timer before it fired, stopped or moved: the caller would wake for nothing.
#[test]
fn next_due_is_exact_behind_a_few_stopped_and_moved_timers() {
    let leave: [fn(&mut Heap<u64>, Handle); 3] = [
        |heap, _| assert_eq!(heap.pop_due(at(0)), Some((at(0), 0))),
        |heap, front| assert_eq!(heap.remove(front), Some(0)),
        |heap, front| assert!(heap.reset(front, at(200))),
    ];
    for leave in leave {
        let mut heap = Heap::new();
        let handles: Vec<Handle> = (0..CLEAN_BATCH as u64).map(|due| heap.insert(at(due), due)).collect();
        heap.insert(at(99), 99);
        for pair in handles[1..].chunks(2) {
            assert!(heap.remove(pair[0]).is_some());
            assert!(pair.len() == 1 || heap.reset(pair[1], at(200)));
        }
        assert_eq!(heap.next_due(), Some(at(0)));
        leave(&mut heap, handles[0]);
        assert_eq!(heap.next_due(), Some(at(99)));
    }
}

/// Fails when a timer at the last possible time never fires, or when a timer at zero waits.
#[test]
fn the_ends_of_time_are_due_times_like_others() {
    let mut heap = Heap::new();
    heap.insert(Nanos::MAX, "never");
    heap.insert(Nanos::ZERO, "at once");
    assert_eq!(heap.pop_due(Nanos::ZERO), Some((Nanos::ZERO, "at once")));
    assert_eq!(heap.pop_due(at(u64::MAX - 1)), None);
    assert_eq!(heap.pop_due(Nanos::MAX), Some((Nanos::MAX, "never")));
}

/// Fails when the order is lost on the way, or when the old heap can't be used at once.
#[test]
fn timers_move_to_another_heap_in_their_order() {
    let (mut old, mut new) = (Heap::new(), Heap::new());
    for id in 0..500 {
        old.insert(at(100 - id % 7), id);
    }
    let drain = old.drain();
    let handle = old.insert(at(5), 1_000);
    assert_eq!((drain.len(), old.len()), (500, 1));
    for (due, id) in drain {
        new.insert(due, id);
    }
    let mut expected: Vec<u64> = (0..500).collect();
    expected.sort_by_key(|id| 100 - id % 7);
    assert_eq!(values(&mut new, 100), expected);
    assert_eq!(old.remove(handle), Some(1_000));
}

/// Fails when a value is dropped late (a stopped timer keeps its values alive), twice, or never.
#[test]
fn each_value_is_dropped_once_and_at_once() {
    let token = Rc::new(());
    let mut heap = Heap::new();
    let handles: Vec<Handle> = (0..300).map(|due| heap.insert(at(due), token.clone())).collect();
    assert_eq!(Rc::strong_count(&token), 301);
    drop(heap.remove(handles[150]));
    assert_eq!(Rc::strong_count(&token), 300);
    drop(heap.pop_due(at(0)));
    assert_eq!(Rc::strong_count(&token), 299);
    heap.drain().take(98).for_each(drop);
    assert_eq!(Rc::strong_count(&token), 1);
    heap.insert(at(0), token.clone());
    drop(heap);
    assert_eq!(Rc::strong_count(&token), 1);
}

/// Fails when a handle takes more room: some structures keep one for each direction of a socket.
#[test]
fn an_optional_handle_takes_eight_bytes() {
    assert_eq!((size_of::<Handle>(), size_of::<Option<Handle>>()), (8, 8));
}

/// Fails when a Debug form asks `T` for one, or prints nothing that helps in a dump.
#[test]
fn debug_prints_numbers_and_times() {
    let mut heap = Heap::new();
    let handle = heap.insert(at(2_500_000), Rc::new(()));
    assert_eq!(format!("{heap:?}"), "Heap { timers: 1, dead_entries: 0, next_due: Some(2.5ms) }");
    assert_eq!(format!("{handle:?}"), "Handle(0#1)");
    assert_eq!(format!("{:?}", heap.drain()), "Drain { timers: 1 }");
}
