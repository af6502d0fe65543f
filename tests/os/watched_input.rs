//! Standard input, and what takes its place.

use super::watched::flags;
use common::bolt::bolted;
use common::child;
use common::room::Room;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;
use std::time::Duration;

/// Fails when a line is lost, when a goroutine has to wait for the reader, or when a mode was changed: the parent has another
/// descriptor of the same open file.
#[test]
fn standard_input_is_waited_for() {
    if child::is_child() {
        let rt = common::runtime(1);
        let reads = rt.go(|| gmp::io::stdin().lines().map(|line| line.unwrap()).collect::<Vec<_>>());
        common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
        // The only P is free meanwhile.
        println!("{} waits", rt.go(|| "it").join().unwrap());
        println!("lines: {:?}", reads.join().unwrap());
        return;
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    let before = flags(&reader);
    let mut child = child::command("standard_input_is_waited_for")
        .stdin(reader.try_clone().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(said.any(|line| line.contains("it waits")));
    assert_eq!(flags(&reader), before);
    drop(reader);
    writer.write_all(b"one\ntwo\n").unwrap();
    drop(writer);
    assert!(said.any(|line| line.contains(r#"lines: ["one", "two"]"#)));
    assert!(child.wait().unwrap().success());
}

/// Puts the file at descriptor 0.
fn put_at_0(file: &impl AsRawFd) {
    // SAFETY: no pointers; nothing relies on the file that was there.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), libc::STDIN_FILENO) }, libc::STDIN_FILENO);
}

/// Makes a goroutine wait for standard input, and then writes to the pipe.
fn waits_for_input(rt: &gmp::Runtime, mut writer: PipeWriter) {
    let reads = rt.go(|| {
        let mut buffer = [0; 16];
        let len = gmp::io::stdin().read(&mut buffer).unwrap();
        buffer[..len].to_vec()
    });
    common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
    writer.write_all(b"hello").unwrap();
    assert_eq!(reads.join().unwrap(), b"hello");
}

/// Another file is put at descriptor 0, as daemons and shells do. Fails by a hang when the poller still watches the file that
/// was there.
#[test]
fn standard_input_that_was_replaced_is_waited_for() {
    if !child::is_child() {
        child::passes("standard_input_that_was_replaced_is_waited_for", &[]);
        return;
    }
    common::watched(1, || {
        let rt = common::runtime(1);
        let pipe = || std::io::pipe().unwrap();
        // The kernel stops watching a file when the file's last descriptor is closed.
        for (reader, writer) in [pipe(), pipe()] {
            put_at_0(&reader);
            drop(reader);
            waits_for_input(&rt, writer);
        }
        // The kernel still watches a file that has another descriptor.
        let (kept, writer) = pipe();
        let writes_again = writer.try_clone().unwrap();
        put_at_0(&kept);
        waits_for_input(&rt, writer);
        let (reader, writer) = pipe();
        put_at_0(&reader);
        waits_for_input(&rt, writer);
        put_at_0(&kept);
        waits_for_input(&rt, writes_again);
        // A file that stays at its number is not watched twice.
        let (reader, writer) = pipe();
        put_at_0(&reader);
        for _ in 0..2 {
            waits_for_input(&rt, writer.try_clone().unwrap());
        }
    });
}

/// Fails by a hang when a read of a pipe that has replaced a file on a disk blocks its thread.
#[test]
fn a_pipe_in_the_place_of_a_file_is_waited_for() {
    if !child::is_child() {
        child::passes("a_pipe_in_the_place_of_a_file_is_waited_for", &[]);
        return;
    }
    common::watched(1, || {
        let (rt, room) = (common::runtime(1), Room::new());
        std::fs::write(room.join("file"), "calm").unwrap();
        put_at_0(&File::open(room.join("file")).unwrap());
        let calm = || {
            let mut text = String::new();
            gmp::io::stdin().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(rt.run(calm), "calm");
        let (reader, writer) = std::io::pipe().unwrap();
        put_at_0(&reader);
        waits_for_input(&rt, writer);
        // A file replaces the pipe.
        put_at_0(&File::open(room.join("file")).unwrap());
        assert_eq!(rt.run(calm), "calm");
    });
}

/// Fails by a hang when a reader that its runtime has left behind keeps the input's lock, or its descriptor.
#[test]
fn a_reader_of_standard_input_that_is_left_behind_holds_nobody_up() {
    if child::is_child() {
        let first = common::runtime(1);
        let left = first.go(|| bolted(|| drop(gmp::io::stdin().read_line(&mut String::new()))));
        common::until(|| common::dumps::read(&first.dump()).iter().any(|g| g.1.starts_with("IO wait")));
        drop(left);
        first.shutdown(Duration::from_secs(5));
        println!("it is left");
        let line = || {
            let mut line = String::new();
            gmp::io::stdin().read_line(&mut line).unwrap();
            line
        };
        assert_eq!(common::runtime(1).go(line).join().unwrap(), "one\n");
        assert_eq!(line(), "two\n");
        println!("all is read");
        return;
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut child = child::command("a_reader_of_standard_input_that_is_left_behind_holds_nobody_up")
        .stdin(reader)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    common::watched(1, move || {
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        assert!(said.any(|line| line.contains("it is left")));
        writer.write_all(b"one\ntwo\n").unwrap();
        assert!(said.any(|line| line.contains("all is read")));
        assert!(child.wait().unwrap().success());
    });
}

/// Fails when descriptor 0 is free for the next file, which std would then take for its input.
#[test]
fn the_descriptor_of_standard_input_outlives_a_close() {
    if child::is_child() {
        let input = gmp::io::stdin();
        input.watched().close().unwrap();
        assert!(gmp::net::is_closed(&input.watched().close().unwrap_err()));
        let file = File::open("/dev/null").unwrap();
        assert_ne!(file.as_raw_fd(), libc::STDIN_FILENO);
        assert!(gmp::net::is_closed(&input.read_line(&mut String::new()).unwrap_err()));
        assert!(!input.is_terminal());
        assert_eq!(input.as_fd().as_raw_fd(), libc::STDIN_FILENO);
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        assert_eq!(line, "one\n");
        println!("it is open");
        return;
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"one\n").unwrap();
    drop(writer);
    let mut child = child::command("the_descriptor_of_standard_input_outlives_a_close");
    let said = child.stdin(reader).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("it is open"), "{said:?}");
}

/// Lines go to the callers in turn, one reader at a time, and a copy begins with the bytes of the buffer. Fails when two
/// readers get one line, or none does, when a reader gets half a line, or when a copy skips bytes.
#[test]
fn readers_of_standard_input_share_its_buffer() {
    if child::is_child() {
        let rt = common::runtime(2);
        let read = |_| {
            rt.go(|| {
                let mut lines = Vec::new();
                for _ in 0..500 {
                    let mut line = String::new();
                    assert!(gmp::io::stdin().read_line(&mut line).unwrap() > 0);
                    lines.push(line.trim_end().parse::<u32>().unwrap());
                }
                lines
            })
        };
        let readers = [0, 1].map(read);
        let mut lines: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        lines.sort_unstable();
        assert!(lines.into_iter().eq(0..1000));
        rt.go(|| {
            let mut two = gmp::io::stdin().lock();
            let mut byte = [0];
            two.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"r");
            assert_eq!(two.fill_buf().unwrap()[0], b'e');
            drop(two);
            assert!(!gmp::io::stdin().is_terminal());
            let (reader, writer) = gmp::io::pipe().unwrap();
            let rest = gmp::go(move || std::io::read_to_string(reader).unwrap());
            assert_eq!(gmp::io::copy(&gmp::io::stdin(), &writer).unwrap(), 3);
            drop(writer);
            assert_eq!(rest.join().unwrap(), "est");
            assert_eq!(gmp::io::stdin().read_line(&mut String::new()).unwrap(), 0);
        })
        .join()
        .unwrap();
        println!("all is read");
        return;
    }
    let mut child = child::command("readers_of_standard_input_share_its_buffer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = (0..1000).map(|n| format!("{n}\n")).collect();
    stdin.write_all((lines + "rest").as_bytes()).unwrap();
    drop(stdin);
    let said = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && out.contains("all is read"), "{out}");
}
