//! Values with a descriptor that another library made.

use common::child;
use common::crew::{Crew, everyone};
use gmp::io::Watched;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;
use std::sync::Arc;

fn flags(fd: &impl AsRawFd) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }
}

fn read(pipe: &Watched<PipeReader>) -> std::io::Result<Vec<u8>> {
    let mut buffer = [0; 16];
    let len = pipe.read_with(|mut pipe| pipe.read(&mut buffer))?;
    Ok(buffer[..len].to_vec())
}

/// Fails by a mode that was changed, which whoever shares the open file would meet.
#[test]
fn the_mode_stays_what_it_was() {
    everyone(|crew: &Crew<'_>| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let before = flags(&reader);
        let reader = Arc::new(Watched::new(reader));
        let same = Arc::clone(&reader);
        let reads = crew.go(move || read(&same).unwrap());
        reads.until_it_waits();
        assert_eq!(flags(&*reader), before);
        writer.write_all(b"hello").unwrap();
        assert_eq!(reads.join(), b"hello");
        let inner = Arc::into_inner(reader).unwrap().into_inner();
        assert_eq!(flags(&inner), before);
    });
}

/// Fails by an event that only one of two gets, without a word to the other.
#[test]
fn one_descriptor_is_watched_once() {
    let rt = common::runtime(2);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let first = Arc::new(Watched::new(reader.try_clone().unwrap()));
    let same = Arc::clone(&first);
    let reads = rt.go(move || read(&same).unwrap());
    common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
    let refused = rt
        .go({
            let first = Arc::clone(&first);
            // As long as `first` lives, so does its descriptor.
            move || Watched::new(first.as_fd()).read_with(|_| Err::<(), _>(ErrorKind::WouldBlock.into()))
        })
        .join()
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(refused.to_string().contains("watched already"), "{refused}");
    // A duplicate is another descriptor.
    let twin = Watched::new(reader);
    writer.write_all(b"one").unwrap();
    assert_eq!(reads.join().unwrap(), b"one");
    writer.write_all(b"two").unwrap();
    assert_eq!(rt.go(move || read(&twin).unwrap()).join().unwrap(), b"two");
}

/// Fails by a number that names something else afterwards, for whoever owns the descriptor and goes on using it.
#[test]
fn a_borrowed_descriptor_stays_its_owners() {
    everyone(|crew| {
        crew.run(|| {
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let watched = Watched::new(&reader);
            assert_eq!(watched.as_fd().as_raw_fd(), reader.as_raw_fd());
            watched.close().unwrap();
            assert!(gmp::net::is_closed(&watched.read_with(|_| Ok(())).unwrap_err()));
            drop(watched);
            writer.write_all(b"hello").unwrap();
            let mut got = [0; 5];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
        });
    });
}

/// Fails by an error for what epoll does not take.
#[test]
fn a_regular_file_is_read_as_well() {
    everyone(|crew| {
        crew.run(|| {
            let file = Watched::new(File::open("/proc/self/cmdline").unwrap());
            let mut text = Vec::new();
            let file_of = |text: &mut Vec<u8>| {
                let mut buffer = [0; 64];
                let len = file.read_with(|mut file| file.read(&mut buffer)).unwrap();
                text.extend_from_slice(&buffer[..len]);
                len
            };
            while file_of(&mut text) > 0 {}
            assert_eq!(text, std::fs::read("/proc/self/cmdline").unwrap());
            // A disk's, which the kernel refuses to watch.
            let file = Watched::new(File::open(std::env::current_exe().unwrap()).unwrap());
            let mut magic = [0; 4];
            file.read_with(|mut file| file.read_exact(&mut magic)).unwrap();
            assert_eq!(&magic, b"\x7fELF");
        });
    });
}

/// Fails by a line that is lost, by a goroutine that has to wait for the one that reads, or by a mode that was changed: the
/// parent has the other name of the same open file.
#[test]
fn standard_input_is_waited_for() {
    if child::is_child() {
        let rt = common::runtime(1);
        let reads =
            rt.go(|| BufReader::new(gmp::io::stdin()).lines().map(|line| line.unwrap()).collect::<Vec<_>>());
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
