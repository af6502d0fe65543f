use crate::support::{MS, everywhere, many};
use std::process::Stdio;
use std::thread;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::{block_in_place, spawn_blocking};

/// Fails if the pool for blocking calls is missing, or if its result does not wake the goroutine.
#[test]
fn spawn_blocking_runs_on_threads_of_tokio() {
    everywhere(|| {
        let own = many(20, |n| {
            let (thread, said) = gmp::block_on(spawn_blocking(move || {
                thread::sleep(MS);
                (thread::current().name().map(str::to_owned), n)
            }))
            .unwrap();
            assert_eq!(said, n);
            thread
        });
        assert!(own.iter().all(|name| name.as_deref() == Some("gmp-reactor")), "{own:?}");
    });
}

/// Fails if `block_in_place` takes the goroutine's thread for one that must not block, or for a worker whose queue it has to
/// hand over; also when the function parks.
#[test]
fn block_in_place_calls_its_function_where_it_is() {
    everywhere(|| {
        many(20, |n| {
            let got = block_in_place(|| {
                thread::sleep(MS);
                n
            });
            assert_eq!(got, n);
            assert_eq!(block_in_place(|| gmp::block_on(async { n })), n);
            block_in_place(|| gmp::time::sleep(MS));
            gmp_tokio::run(async { block_in_place(|| thread::sleep(MS)) });
        });
    });
}

/// Fails if tokio refuses the call, or if other goroutines wait for the blocked thread.
#[test]
fn a_handles_block_on_blocks_the_thread_and_no_other_goroutine() {
    everywhere(|| {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let waits = gmp::go(move || Handle::current().block_on(receiver.recv()));
        // With one P this goroutine goes on only after the P was taken from the goroutine that blocks.
        gmp::time::sleep(MS);
        let sends = gmp::go(move || gmp::block_on(sender.send(5)));
        assert_eq!(waits.join().unwrap(), Some(5));
        sends.join().unwrap().unwrap();
    });
}

/// Fails if a file's contents are not those written, although each step may run on another thread.
#[test]
fn files_of_tokio_are_written_and_read() {
    everywhere(|| {
        let folder = std::env::temp_dir().join(format!("gmp-tokio-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let theirs = folder.clone();
        many(10, move |n| {
            let path = theirs.join(n.to_string());
            let mut file = gmp::block_on(
                tokio::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path),
            )
            .unwrap();
            for line in 0..10 {
                gmp::block_on(file.write_all(format!("{n} {line}\n").as_bytes())).unwrap();
            }
            gmp::block_on(file.flush()).unwrap();
            gmp::block_on(file.rewind()).unwrap();
            let mut text = String::new();
            gmp::block_on(file.read_to_string(&mut text)).unwrap();
            let expected: String = (0..10).map(|line| format!("{n} {line}\n")).collect();
            assert_eq!(text, expected);
            assert_eq!(gmp_tokio::run(tokio::fs::read_to_string(path)).unwrap(), expected);
        });
        gmp_tokio::run(tokio::fs::remove_dir_all(folder)).unwrap();
    });
}

/// Fails if the goroutine does not learn of a child's end, or if the child's output is lost.
#[test]
fn processes_of_tokio_are_awaited() {
    everywhere(|| {
        many(5, |n| {
            let mut child = tokio::process::Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            gmp::block_on(input.write_all(format!("hello {n}").as_bytes())).unwrap();
            drop(input);
            let output = gmp::block_on(child.wait_with_output()).unwrap();
            assert!(output.status.success());
            assert_eq!(output.stdout, format!("hello {n}").as_bytes());

            let mut child = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
            gmp::block_on(child.kill()).unwrap();
            let status = gmp_tokio::run(tokio::process::Command::new("false").status()).unwrap();
            assert_eq!(status.code(), Some(1));
        });
    });
}
