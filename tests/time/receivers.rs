//! Receivers that outlive their timer or ticker: there is no more to receive.

use crate::timers::{MS, alone};
use common::everywhere;
use gmp::time::{Ticker, Timer};
use std::time::{Duration, Instant};

/// Fails by a value when a timer or ticker goes on after its owner has dropped it.
#[test]
fn a_timer_or_ticker_that_is_dropped_gives_nothing_more() {
    const LONGER: Duration = Duration::from_millis(20);
    let _alone = alone();
    everywhere(|rt| {
        let gives_nothing = || {
            let timer = Timer::new(3 * MS);
            let receiver = timer.receiver().clone();
            drop(timer);
            assert!(receiver.recv_timeout(LONGER).is_err());
            let ticker = Ticker::new(MS);
            let receiver = ticker.receiver().clone();
            assert!(receiver.recv().is_ok());
            drop(ticker);
            assert!(receiver.recv_timeout(LONGER).is_err());
        };
        gives_nothing();
        rt.run(gives_nothing);
    });
}

/// The same for receivers that already wait.
#[test]
fn a_receiver_of_a_dropped_timer_waits_on() {
    const DUE: Duration = Duration::from_millis(30);
    let _alone = alone();
    everywhere(|rt| {
        let begun = Instant::now();
        let (timer, ticker) = (Timer::new(DUE), Ticker::new(DUE));
        let waits = [timer.receiver(), ticker.receiver()].map(|receiver| {
            let receiver = receiver.clone();
            rt.go(move || receiver.recv_timeout(3 * DUE).is_err())
        });
        rt.run(|| (0..10).for_each(|_| gmp::yield_now()));
        drop((timer, ticker));
        // On a busy machine the timer and the ticker may have been due before the drop.
        let in_time = begun.elapsed() < DUE;
        let nothing = waits.map(|waits| waits.join().unwrap());
        assert!(nothing == [true; 2] || !in_time, "{nothing:?}");
    });
}
