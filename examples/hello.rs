//! The first program: goroutines, a name, a sleep, a join.
//!
//! cargo run --release --example hello
//!
//! hello from goroutine 2
//! hello from goroutine 3 'named'
//! 1 + .. + 100 = 5050, by 100 goroutines that slept 10 ms each, in 10 ms
//!
//! In a program of yours the attribute needs gmp's feature `macros`.

use gmp::{Builder, current, go, time};
use std::time::{Duration, Instant};

fn greet() {
    let me = current().expect("called on a goroutine");
    match me.name() {
        Some(name) => println!("hello from goroutine {} '{name}'", me.id()),
        None => println!("hello from goroutine {}", me.id()),
    }
}

// SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
#[gmp::main(unsafe)]
fn main() {
    go(greet).join().expect("greet does not panic");
    let named = Builder::new().name("named").go(greet).expect("the default stack is in range");
    named.join().expect("greet does not panic");

    let start = Instant::now();
    let sleepers: Vec<_> = (1..=100_u32)
        .map(|n| {
            go(move || {
                time::sleep(Duration::from_millis(10));
                n
            })
        })
        .collect();
    let sum: u32 = sleepers.into_iter().map(|sleeper| sleeper.join().expect("no panic")).sum();
    let took = start.elapsed().as_millis();
    println!("1 + .. + 100 = {sum}, by 100 goroutines that slept 10 ms each, in {took} ms");
}
