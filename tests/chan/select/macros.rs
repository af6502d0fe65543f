//! What the macro evaluates, when, and how often.

use super::share;
use common::crew::everyone;
use common::random::Random;
use gmp::chan::{Receiver, Sender, bounded, never, never_sender, unbounded};
use gmp::{select, select_biased};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Fails if a channel is evaluated twice, never, or out of order; or if a message is evaluated that is not sent.
#[test]
fn channels_are_evaluated_once_on_entry_and_only_the_message_that_is_sent() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = unbounded();
            let (full, rest) = bounded(1);
            full.send('f').unwrap();
            for round in 0..50 {
                let seen = RefCell::new(Vec::new());
                fn note<'a, T>(seen: &RefCell<Vec<&'static str>>, what: &'static str, value: &'a T) -> &'a T {
                    seen.borrow_mut().push(what);
                    value
                }
                let sent = select! {
                    recv(note(&seen, "first", &never::<u8>())) -> _ => unreachable!(),
                    send(note(&seen, "second", &s), (note(&seen, "message", &()), round).1) -> sent => sent,
                    send(note(&seen, "third", &full), (note(&seen, "not sent", &()), 'x').1) -> _ => unreachable!(),
                    recv(note(&seen, "fourth", &never::<u8>())) -> _ => unreachable!(),
                };
                assert_eq!(sent, Ok(()));
                assert_eq!(*seen.borrow(), ["first", "second", "third", "fourth", "message"]);
                assert_eq!(r.try_recv(), Ok(round));
            }
            assert_eq!(rest.try_iter().collect::<Vec<_>>(), ['f']);
        });
    });
}

/// Fails if they are evaluated again after a wake-up.
#[test]
fn a_select_that_waits_evaluates_nothing_again() {
    everyone(|crew| {
        for round in 0..share(1000, 1) {
            let [(s, r), (offer, taken)] = [bounded(0), bounded(0)];
            let waiter = crew.go(move || {
                let (channels, messages, limits) = (Cell::new(0), Cell::new(0), Cell::new(0));
                fn count<T>(cell: &Cell<u32>, value: T) -> T {
                    cell.set(cell.get() + 1);
                    value
                }
                for round in 0..2 {
                    select! {
                        recv(count(&channels, &r)) -> got => assert_eq!(got, Ok(round)),
                        send(count(&channels, &offer), count(&messages, 7)) -> sent => sent.unwrap(),
                        default(count(&limits, Duration::from_secs(3600))) => unreachable!(),
                    }
                }
                (channels.get(), messages.get(), limits.get())
            });
            Random::new(round).pause(200);
            // The select receives once and sends once.
            s.send(0).unwrap();
            assert_eq!(taken.recv(), Ok(7));
            assert_eq!(waiter.join(), (4, 1, 2));
        }
    });
}

/// The macro accepts what crossbeam-channel's accepts. Fails to compile, or by a wrong value.
#[test]
fn the_syntax_is_crossbeams() {
    let (s, r) = bounded::<Option<i32>>(2);
    select! { send(s, Some(1)) -> res => assert!(res.is_ok()) }
    select!(send(s, Some(2)) -> _ => ());
    // Patterns, blocks with and without a comma, and values.
    let value = select! {
        recv(r) -> mut got => got.as_mut().unwrap().take().unwrap(),
    };
    assert_eq!(value, 1);
    let value: Result<i32, &str> = select! {
        recv(&r) -> got => { got.map(|got| got.unwrap()).map_err(|_| "closed") }
        recv(never::<()>()) -> _got => { return; }
        default => Err("empty"),
    };
    assert_eq!(value, Ok(2));
    // The macro is an expression whose arms see `break`, `continue` and `?`.
    let mut rounds = 0;
    let found = loop {
        rounds += 1;
        select! {
            recv(r) -> _ => continue,
            default() => if rounds == 3 { break rounds },
        }
    };
    assert_eq!(found, 3);
    fn first(r: &Receiver<i32>) -> Result<i32, gmp::chan::RecvError> {
        Ok(select! { recv(r) -> got => got?, recv(never::<i32>()) -> got => got? })
    }
    let (numbers, ours) = unbounded();
    numbers.send(5).unwrap();
    drop(numbers);
    assert_eq!((first(&ours).is_ok(), first(&ours).is_err()), (true, true));
    // A channel may be a temporary, and a message may move.
    let text = String::from("moved");
    let (s, r) = bounded(1);
    select_biased! {
        send(Some(&s).cloned().unwrap_or_else(never_sender), text) -> res => res.unwrap(),
        recv(never::<u8>()) -> _ => unreachable!(),
    }
    assert_eq!(select! { recv([&r][0]) -> text => text.unwrap() }, "moved");
    // An arm may use the channels of the others, mutably too.
    let mut channels: (Sender<u8>, Receiver<u8>) = bounded(1);
    select! {
        send(channels.0, 1) -> _ => channels = bounded(1),
        default(Duration::from_secs(3600)) => {}
    }
    assert!(channels.1.is_empty());
}

/// Fails to compile when the message's type is inferred from the message alone, and not from the channel.
#[test]
fn a_message_has_the_type_of_its_channel() {
    type Act = Box<dyn Fn(&str) -> usize + Send>;
    let (acts, act) = bounded::<Act>(1);
    select! { send(acts, Box::new(|text| text.len())) -> sent => sent.map_err(drop).unwrap() }
    let acts_too: &Sender<Act> = &acts;
    assert_eq!(act.recv().unwrap()("four"), 4);
    select_biased! {
        send(acts_too, Box::new(str::len)) -> sent => sent.map_err(drop).unwrap(),
        default => unreachable!(),
    }
    assert_eq!(act.recv().unwrap()("four"), 4);
    let (options, option) = bounded::<Option<u8>>(1);
    select! { send(options, None) -> sent => sent.unwrap() }
    assert_eq!(option.recv(), Ok(None));
    let (slices, slice) = bounded::<&[i32]>(1);
    select! { send(slices, &[1, 2, 3]) -> sent => sent.unwrap() }
    assert_eq!(slice.recv(), Ok(&[1, 2, 3][..]));
    let (functions, function) = bounded::<fn(u32) -> u32>(1);
    select! { send(functions, |n| n.pow(2)) -> sent => sent.unwrap() }
    assert_eq!(function.recv().unwrap()(3), 9);
    let (numbers, number) = bounded::<u64>(1);
    select! { send(numbers, "7".parse().unwrap()) -> sent => sent.unwrap() }
    assert_eq!(number.recv(), Ok(7));
    // A borrow that the message takes ends when the message was sent.
    let (texts, text) = bounded::<String>(1);
    let locked = gmp::sync::Mutex::new(String::from("text"));
    select! { send(texts, locked.lock().clone()) -> _ => assert!(locked.try_lock().is_some()) }
    assert_eq!(text.recv().unwrap(), "text");
    // A message whose evaluation leaves the function.
    let gives_up = || -> Option<()> {
        select! { send(numbers, None?) -> _ => Some(()) }
    };
    assert_eq!((gives_up(), number.try_recv().is_err()), (None, true));
}

/// Fails to compile when so many arms exceed the compiler's recursion limit; or by a number when one arm is taken for another.
#[test]
fn thirty_two_arms_and_a_default() {
    let channels: [(Sender<usize>, Receiver<usize>); 16] = std::array::from_fn(|_| bounded(1));
    let (s, r): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
    let once = || {
        select! {
            recv(r[0]) -> got => got.unwrap(),
            recv(r[1]) -> got => got.unwrap(),
            recv(r[2]) -> got => got.unwrap(),
            recv(r[3]) -> got => { got.unwrap() }
            recv(r[4]) -> got => { got.unwrap() },
            recv(r[5]) -> got => got.unwrap(),
            recv(r[6]) -> got => got.unwrap(),
            recv(r[7]) -> got => got.unwrap(),
            recv(r[8]) -> got => got.unwrap(),
            recv(r[9]) -> got => got.unwrap(),
            recv(r[10]) -> got => got.unwrap(),
            recv(r[11]) -> got => got.unwrap(),
            recv(r[12]) -> got => got.unwrap(),
            recv(r[13]) -> got => got.unwrap(),
            recv(r[14]) -> got => got.unwrap(),
            recv(r[15]) -> got => got.unwrap(),
            send(s[0], 0) => 100,
            send(s[1], 1) => 101,
            send(s[2], 2) => 102,
            send(s[3], 3) => 103,
            send(s[4], 4) => { 104 }
            send(s[5], 5) => { 105 },
            send(s[6], 6) -> _ => 106,
            send(s[7], 7) -> _ => 107,
            send(s[8], 8) -> _ => { 108 }
            send(s[9], 9) -> _ => 109,
            send(s[10], 10) -> _ => 110,
            send(s[11], 11) -> _ => 111,
            send(s[12], 12) -> _ => 112,
            send(s[13], 13) -> _ => 113,
            send(s[14], 14) -> _ => 114,
            send(s[15], 15) -> _ => 115,
            default => 1000,
        }
    };
    let mut sent = [0_usize; 16];
    let mut received = [0_usize; 16];
    while sent.iter().chain(&received).any(|&times| times == 0) {
        match once() {
            arm @ 0..16 => received[arm] += 1,
            arm @ 100..116 => sent[arm - 100] += 1,
            arm => unreachable!("{arm}"),
        }
    }
    let still_there: usize = r.iter().map(Receiver::len).sum();
    assert_eq!(sent.iter().sum::<usize>(), received.iter().sum::<usize>() + still_there);
}
