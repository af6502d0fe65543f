//! A runtime whose end waits says for which goroutines it waits, and which of them it leaves behind.

use super::{HOUR, MS};
use common::stderr::{pipe_for_stderr, stderr_does_not_block};
use common::{child, gate::Gate, watched};
use gmp::sync::Event;
use gmp::{Builder, Runtime};
use std::hint::spin_loop;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn runtime(limit: Duration) -> Runtime {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(2).shutdown_timeout(limit).build() }.unwrap()
}

/// Returns the lines about an end that waits, or that has left something, without the line numbers of this file.
fn told(stderr: &str) -> Vec<String> {
    let ends = stderr.lines().filter(|line| line.starts_with("gmp: a runtime "));
    ends.map(|line| {
        let mut parts = line.split("tests/threads/shutdown/told.rs:");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + "HERE" + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':')
        })
    })
    .collect()
}

/// Fails when nothing is said, or when the wrong goroutine, or an unwound one, is named.
#[test]
fn a_goroutine_that_blocks_its_thread_or_runs_is_named_with_its_reason() {
    if child::is_child() {
        let rt = runtime(2000 * MS);
        rt.run(|| {
            let begun = [Gate::default(), Gate::default()];
            let [blocks, runs] = begun.clone();
            gmp::go(|| gmp::time::sleep(HOUR));
            let block = move || {
                blocks.open();
                std::thread::sleep(HOUR)
            };
            Builder::new().name("blocks").go(block).unwrap();
            gmp::go(move || {
                runs.open();
                loop {
                    spin_loop();
                }
            });
            begun.iter().for_each(|gate| gate.pass());
        });
        drop(rt);
        return;
    }
    let stderr = child::passes("a_goroutine_that_blocks_its_thread_or_runs_is_named_with_its_reason", &[]);
    let whom =
        "goroutine 3 'blocks' [blocks its thread] created at HERE, goroutine 4 [running] created at HERE";
    assert_eq!(
        told(&stderr),
        [
            format!("gmp: a runtime ends, and waits 2s at most, for {whom}"),
            format!("gmp: a runtime has ended, and left {whom}")
        ]
    );
}

/// A goroutine that runs, or blocks its thread, while no goroutine waits for its P needs no other thread. Fails by a message
/// about a limit for which no goroutine waits, or when a goroutine keeps its P at the end and can't be named.
#[test]
fn at_the_limit_of_threads_a_lone_goroutine_is_named_and_no_thread_is_missed() {
    if child::is_child() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { Runtime::builder().procs(1).max_threads(1).shutdown_timeout(2000 * MS).build() }
            .unwrap();
        // The goroutine blocks its thread for some time slices.
        rt.go(|| std::thread::sleep(60 * MS)).join().unwrap();
        let begun = Gate::default();
        let begins = begun.clone();
        let runs = move || {
            begins.open();
            loop {
                spin_loop();
            }
        };
        rt.go(runs);
        begun.pass();
        drop(rt);
        return;
    }
    let stderr =
        child::passes("at_the_limit_of_threads_a_lone_goroutine_is_named_and_no_thread_is_missed", &[]);
    let whom = "goroutine 2 [running] created at HERE";
    assert_eq!(
        told(&stderr),
        [
            format!("gmp: a runtime ends, and waits 2s at most, for {whom}"),
            format!("gmp: a runtime has ended, and left {whom}")
        ]
    );
    assert!(!stderr.contains("all threads"), "{stderr}");
}

/// Fails when nothing is said, or when the thread that is left is not counted.
#[test]
fn threads_in_destructors_of_thread_locals_are_counted() {
    struct Sleeps;
    impl Drop for Sleeps {
        fn drop(&mut self) {
            std::thread::sleep(HOUR);
        }
    }
    std::thread_local! {
        static SLEEPS: Sleeps = const { Sleeps };
    }
    if child::is_child() {
        let rt = runtime(2000 * MS);
        rt.run(|| SLEEPS.with(|_| ()));
        return drop(rt);
    }
    let stderr = child::passes("threads_in_destructors_of_thread_locals_are_counted", &[]);
    let whom = "1 thread with destructors of its thread-locals";
    assert_eq!(
        told(&stderr),
        [
            format!("gmp: a runtime ends, and waits 2s at most, for {whom}"),
            format!("gmp: a runtime has ended, and left {whom}")
        ]
    );
}

/// The destructor waits until the parent has read the line. Fails by a hang when the runtime does not tell of a wait in a
/// destructor; and when it says that a successful end has left a goroutine.
#[test]
fn a_destructor_that_waits_is_named_and_what_ends_in_time_is_not_left() {
    struct Waits(Arc<Event>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    if child::is_child() {
        let rt = runtime(HOUR);
        let read = Arc::new(Event::new());
        rt.run(|| {
            let waits = Waits(Arc::clone(&read));
            Builder::new()
                .name("drops")
                .go(|| {
                    let _waits = waits;
                    gmp::time::sleep(HOUR);
                })
                .unwrap();
            gmp::yield_now();
        });
        std::thread::spawn(move || {
            // The input ends when the parent has read the line.
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            read.notify_one();
        });
        drop(rt);
        return;
    }
    watched(2, || {
        let mut command =
            child::command("a_destructor_that_waits_is_named_and_what_ends_in_time_is_not_left");
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut stderr = Vec::new();
        for line in lines.by_ref() {
            stderr.push(line);
            if !told(&stderr.join("\n")).is_empty() {
                break;
            }
        }
        drop(child.stdin.take());
        stderr.extend(lines);
        assert!(child.wait().unwrap().success(), "{stderr:?}");
        assert_eq!(
            told(&stderr.join("\n")),
            ["gmp: a runtime ends, and waits 3600s at most, for goroutine 2 'drops' [event] created at HERE"],
            "{stderr:?}"
        );
    });
}

/// Fails by the time, or by a line about an end that was as short as the program had asked for.
#[test]
fn the_limit_of_the_builder_ends_the_wait_and_a_short_one_is_silent() {
    if child::is_child() {
        let rt = runtime(50 * MS);
        let blocks = Gate::default();
        let begun = blocks.clone();
        rt.run(move || {
            gmp::go(move || {
                begun.open();
                std::thread::sleep(HOUR)
            });
            blocks.pass();
        });
        let begun = Instant::now();
        drop(rt);
        assert!(begun.elapsed() >= 50 * MS);
        return;
    }
    let begun = Instant::now();
    let stderr = child::passes("the_limit_of_the_builder_ends_the_wait_and_a_short_one_is_silent", &[]);
    assert!(begun.elapsed() < HOUR);
    assert_eq!(told(&stderr), [""; 0]);
}

/// Standard error has no reader. Fails when the end waits for a reader for longer than its limit, or when no later line says
/// that lines were lost.
#[test]
fn an_end_keeps_its_limit_where_nobody_reads() {
    const NAME: &str = "an_end_keeps_its_limit_where_nobody_reads";
    if !child::is_child() {
        for env in [&[][..], &[("BLOCKS", "1")]] {
            child::passes(NAME, env);
        }
        return;
    }
    let mut pipe = pipe_for_stderr(true);
    if std::env::var_os("BLOCKS").is_none() {
        stderr_does_not_block();
    }
    let left_one = || {
        let (rt, blocks) = (runtime(HOUR), Gate::default());
        let begun = blocks.clone();
        rt.go(move || {
            begun.open();
            std::thread::sleep(HOUR)
        });
        blocks.pass();
        let begun = Instant::now();
        assert_eq!(rt.shutdown(300 * MS).goroutines_left(), 1);
        begun.elapsed()
    };
    let took = watched(2, left_one);
    assert!(took < 3 * Duration::from_secs(1), "{took:?}");
    // Reads until a read would have to wait.
    let mut said = Vec::new();
    let _none_any_more = pipe.read_to_end(&mut said);
    assert!(said.iter().all(|byte| *byte == b'.'), "{}", String::from_utf8_lossy(&said));
    watched(2, left_one);
    let _none_any_more = pipe.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    let said = said.trim_start_matches('.');
    assert!(said.starts_with("gmp: not written before, as nobody read standard error: 2 lines\n"), "{said}");
    assert_eq!(told(said).len(), 2, "{said}");
}
