//! A user's own model: goroutines that count, joined from a goroutine and from a thread.
#![cfg(gmp_loom)]

use gmp::model::Model;

/// Two goroutines on one P, one joined by the other, and one by the model's own thread.
#[test]
fn both_goroutines_are_joined() {
    Model::new().check("both_goroutines_are_joined", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(1).build().unwrap() };
        let one = runtime.go(|| 1);
        assert_eq!(runtime.run(|| gmp::go(|| 2).join().unwrap()), 2);
        assert_eq!(one.join().unwrap(), 1);
        // The end of the runtime is another model's subject.
        loom::stop_exploring();
    });
}
