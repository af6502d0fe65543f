//! One program that does everything a stack has to bear, with the way of switching that was built:
//! `cargo test --features gmp/generator --test goroutines backend_smoke::` runs it over the `generator` crate.

use std::io::{Read, Write};
use std::time::Duration;

/// Makes deep frames, with a sleep at the deepest and values that must survive it.
fn climb(depth: u32) -> f64 {
    let here = f64::from(depth).sqrt();
    if depth == 0 {
        gmp::time::sleep(Duration::from_millis(1));
        return 0.0;
    }
    climb(depth - 1) + here
}

#[test]
fn goroutines_sleep_yield_panic_join_and_use_sockets() {
    for procs in [1, 4] {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { gmp::Runtime::builder().procs(procs).build() }.unwrap();
        runtime.run(|| {
            let expected: f64 = (0..=40).map(|n| f64::from(n).sqrt()).sum();
            let climbers: Vec<_> = (0..200).map(|_| gmp::go(|| climb(40))).collect();
            let failing = gmp::go(|| {
                gmp::yield_now();
                std::panic::resume_unwind(Box::new("as asked"));
            });
            let listener = gmp::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let server = gmp::go(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                text
            });
            let mut stream = gmp::net::TcpStream::connect(addr).unwrap();
            stream.write_all(b"through the poller").unwrap();
            drop(stream);
            assert_eq!(server.join().unwrap(), "through the poller");
            assert_eq!(failing.join().unwrap_err().into_panic().downcast_ref(), Some(&"as asked"));
            for climber in climbers {
                assert!((climber.join().unwrap() - expected).abs() < 1e-9);
            }
        });
        assert!(runtime.shutdown_timeout(Duration::from_secs(5)));
    }
}

/// Fails when a word is lost on the way through two stacks, or goes to the wrong one.
#[test]
fn with_stack_parks_nests_panics_and_moves() {
    fn deep(levels: u32) -> f64 {
        let below =
            gmp::with_stack(1 << 20, || climb(2000) + if levels == 0 { 0.0 } else { deep(levels - 1) });
        gmp::yield_now();
        below
    }
    let expected = 4.0 * (0..=2000).map(|n| f64::from(n).sqrt()).sum::<f64>();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(4).build() }.unwrap();
    runtime.run(|| {
        let all: Vec<_> = (0..50).map(|_| gmp::go(|| deep(3))).collect();
        let failing = gmp::go(|| {
            gmp::with_stack(1 << 20, || {
                gmp::yield_now();
                std::panic::resume_unwind(Box::new("as asked"))
            })
        });
        let failed: gmp::JoinError = failing.join().map(|never: ()| never).unwrap_err();
        assert_eq!(failed.into_panic().downcast_ref(), Some(&"as asked"));
        for each in all {
            assert!((each.join().unwrap() - expected).abs() < 1e-6);
        }
    });
    assert!(runtime.shutdown_timeout(Duration::from_secs(5)));
    assert!((deep(3) - expected).abs() < 1e-6);
}
