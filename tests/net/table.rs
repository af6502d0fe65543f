//! A table of all operations that can wait for a socket, and of the events that can happen to the wait.
//!
//! A row is an operation, a column is an event; goroutines and plain threads play each cell. A cell checks what the call
//! returns; that a call that gave up has taken and sent no byte; and that no descriptor is left, neither open nor in a poller.
//! A cell that is not played says why, and is counted.

mod rows;
mod scene;

use common::child;
use common::crew::{CREWS, Crew, Member, everyone};
use common::until;
use gmp::context::{Context, ContextError};
use gmp::net::is_closed;
use rows::{NO_ROWS, TABLE};
use scene::{
    Ends, Event, LONG, NEVER, NO_CLONE, NO_HALF, NO_RESET, NO_SOCKET, SHORT, Scene, inode, is_open, unix,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;

/// An event that can happen to a wait: its name, and the function that plays it. That function returns the reason if the cell
/// is empty.
type Column = (&'static str, fn(&Crew<'_>, Scene) -> Result<(), &'static str>);

const COLUMNS: &[Column] = &[
    ("data", data),
    ("data while waiting", data_while_waiting),
    ("a deadline in the past", deadline_in_the_past),
    ("a deadline while waiting", deadline_while_waiting),
    ("a deadline that is moved", deadline_moved),
    ("close by another", |crew, scene| closed_by_another(crew, scene, false)),
    ("close by another, of one that is lent", |crew, scene| closed_by_another(crew, scene, true)),
    ("close of a clone", clone_closed),
    ("a context that is done", context_done),
    ("a peer that resets", |crew, scene| event(crew, scene, |scene| &mut scene.reset)),
    ("a peer that closes its half", |crew, scene| event(crew, scene, |scene| &mut scene.half_close)),
];

fn call<'a>(crew: &Crew<'a>, scene: &Scene) -> Member<'a, io::Result<Vec<u8>>> {
    let call = Arc::clone(&scene.call);
    crew.go(move || call())
}

/// Makes the call, and returns when the call waits.
fn waiting<'a>(crew: &Crew<'a>, scene: &Scene) -> Result<Member<'a, io::Result<Vec<u8>>>, &'static str> {
    scene.waits?;
    let member = call(crew, scene);
    member.until_it_waits();
    Ok(member)
}

/// Asserts that the operation still works.
#[track_caller]
fn works(crew: &Crew<'_>, scene: &Scene) {
    (scene.feed)();
    is_answered(scene, call(crew, scene));
}

/// Asserts that the call returns the answer. The peer has begun its part, and repeats it until the call has ended: after a
/// first piece there may still be no room.
#[track_caller]
fn is_answered(scene: &Scene, member: Member<'_, io::Result<Vec<u8>>>) {
    if scene.heard.is_some() {
        until(|| {
            (scene.feed)();
            member.is_finished()
        });
    }
    assert_eq!(member.join().unwrap(), scene.answer);
    is_heard(scene, scene.answer);
}

/// Asserts that the peer hears this, and no byte more.
#[track_caller]
fn is_heard(scene: &Scene, bytes: &[u8]) {
    let Some(heard) = &scene.heard else { return };
    // The written bytes are on their way.
    until(|| {
        (scene.feed)();
        heard.lock().unwrap().len() >= bytes.len()
    });
    (scene.feed)();
    assert_eq!(*heard.lock().unwrap(), bytes);
}

#[track_caller]
fn times_out(result: io::Result<Vec<u8>>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
}

fn data(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    works(crew, &scene);
    Ok(())
}

fn data_while_waiting(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let member = waiting(crew, &scene)?;
    (scene.feed)();
    is_answered(&scene, member);
    Ok(())
}

fn deadline_in_the_past(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    socket.limit(*direction, Some(Instant::now()));
    times_out(call(crew, &scene).join());
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

fn deadline_while_waiting(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    scene.waits?;
    let begin = Instant::now();
    socket.limit(*direction, Some(begin + SHORT));
    times_out(call(crew, &scene).join());
    assert!(begin.elapsed() >= SHORT, "{:?}", begin.elapsed());
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

/// One of two callers waits in the queue of the I/O lock.
fn deadline_moved(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    socket.limit(*direction, Some(Instant::now() + LONG));
    let members = [waiting(crew, &scene)?, waiting(crew, &scene)?];
    socket.limit(*direction, Some(Instant::now() + 2 * LONG));
    members.iter().for_each(Member::until_it_waits);
    socket.limit(*direction, Some(Instant::now()));
    members.into_iter().for_each(|member| times_out(member.join()));
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

/// One of two callers waits in the queue of the I/O lock.
fn closed_by_another(crew: &Crew<'_>, scene: Scene, lent: bool) -> Result<(), &'static str> {
    let (socket, _) = scene.socket.as_ref().map_err(|why| *why)?;
    let (number, members) = (socket.as_raw_fd(), [waiting(crew, &scene)?, waiting(crew, &scene)?]);
    if lent {
        assert_eq!(socket.as_fd().as_raw_fd(), number);
    }
    let same = Arc::clone(socket);
    crew.run(move || same.shut()).unwrap();
    match lent {
        true => assert!(is_open(number), "the number is taken"),
        false => assert_ne!(inode(number), Some(scene.inode), "the number is free"),
    }
    members.into_iter().for_each(|member| assert!(is_closed(&member.join().unwrap_err())));
    assert!(is_closed(&call(crew, &scene).join().unwrap_err()));
    assert!(is_closed(&socket.shut().unwrap_err()));
    is_heard(&scene, b"");
    Ok(())
}

/// The limits and the close of a clone are its own.
fn clone_closed(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    let clone = socket.duplicate()?;
    let member = waiting(crew, &scene)?;
    clone.limit(*direction, Some(Instant::now()));
    crew.run(move || clone.shut()).unwrap();
    member.until_it_waits();
    (scene.feed)();
    is_answered(&scene, member);
    // The other way round: the file for which the call waited stays open, and no poller may have an entry for it.
    let _clone = socket.duplicate()?;
    socket.shut().unwrap();
    let entry = format!("{:x} ", scene.inode);
    assert!(!descriptors()[1].iter().any(|watched| watched.starts_with(&entry)), "watched still");
    Ok(())
}

fn context_done(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    scene.waits?;
    let (context, cancel) = Context::background().with_cancel();
    let call = Arc::clone(&scene.call);
    let member = crew.go(move || context.run(|| call().unwrap_err()).expect("nothing is unwound"));
    member.until_it_waits();
    cancel.cancel();
    let refused = member.join();
    let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
    assert_eq!(inner, Some(&ContextError::Canceled), "{refused:?}");
    works(crew, &scene);
    Ok(())
}

fn event(crew: &Crew<'_>, mut scene: Scene, which: fn(&mut Scene) -> &mut Event) -> Result<(), &'static str> {
    let (happens, ends) = std::mem::replace(which(&mut scene), Err("it has happened"))?;
    let member = waiting(crew, &scene)?;
    happens();
    match ends {
        Ends::Answer(bytes) => assert_eq!(member.join().unwrap(), bytes),
        Ends::Error(kinds) => {
            let refused = member.join().unwrap_err();
            assert!(kinds.contains(&refused.kind()), "{refused:?}");
        }
        Ends::Unmoved => {
            (scene.feed)();
            is_answered(&scene, member);
        }
    }
    Ok(())
}

/// Returns the sockets, pipes, wake fds and pollers that the process has open, and the entries of its pollers; both sorted. The
/// runtime opens only files for itself while it runs.
fn descriptors() -> [Vec<String>; 2] {
    let (mut open, mut watched) = (Vec::new(), Vec::new());
    for fd in fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap()) {
        // The descriptor of the folder itself is closed by now.
        let Ok(link) = fs::read_link(fd.path()) else { continue };
        let link = link.to_string_lossy().into_owned();
        if link.contains("[eventpoll]") {
            let info = format!("/proc/self/fdinfo/{}", fd.file_name().display());
            let info = fs::read_to_string(info).unwrap_or_default();
            let entries = info.lines().filter(|line| line.starts_with("tfd:"));
            watched.extend(entries.map(|line| line.split("ino:").nth(1).unwrap_or(line).to_owned()));
        }
        if ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| link.starts_with(kind)) {
            open.push(link);
        }
    }
    [&mut open, &mut watched].into_iter().for_each(|list| list.sort());
    [open, watched]
}

/// The cells that are not played: the column, the reason, and the number of rows.
const EMPTY: &[(&str, &str, usize)] = &[
    ("a context that is done", NEVER, 2),
    ("a deadline in the past", NO_SOCKET, 3),
    ("a deadline that is moved", NO_SOCKET, 3),
    ("a deadline that is moved", NEVER, 2),
    ("a deadline while waiting", NO_SOCKET, 3),
    ("a deadline while waiting", NEVER, 2),
    ("a peer that closes its half", NO_HALF, 25),
    ("a peer that resets", NO_RESET, 10),
    ("close by another", NO_SOCKET, 3),
    ("close by another", NEVER, 2),
    ("close by another, of one that is lent", NO_SOCKET, 3),
    ("close by another, of one that is lent", NEVER, 2),
    ("close of a clone", NO_CLONE, 4),
    ("close of a clone", NO_SOCKET, 3),
    ("close of a clone", NEVER, 2),
    ("data while waiting", NEVER, 2),
];

/// Fails by a hang, by another answer or error, when a call that gave up has lost or sent a byte, when a descriptor is left,
/// and when a cell is no longer played.
#[test]
fn each_operation_in_each_event() {
    // Runs in a process of its own, whose descriptors are those of one cell at a time.
    if !child::is_child() {
        let told = child::passes("each_operation_in_each_event", &[]);
        let counts: Vec<_> = told.lines().filter_map(|line| line.split_once("cells: ")).collect();
        assert_eq!(counts.len(), CREWS);
        println!("{}", counts[0].1);
        return;
    }
    // Makes the process's dead socket, which stays open.
    let _lent = unix().0.as_fd();
    everyone(|crew| {
        let mut empty = BTreeMap::new();
        for row in TABLE {
            for (column, play) in COLUMNS {
                let cell = TellOnPanic(row.name, column);
                let before = descriptors();
                let scene = (row.scene)();
                if let Err(why) = play(crew, scene) {
                    *empty.entry((*column, why)).or_insert(0) += 1;
                }
                assert_eq!(descriptors(), before, "open, and watched");
                drop(cell);
            }
        }
        let (all, not_played): (_, usize) = (TABLE.len() * COLUMNS.len(), empty.values().sum());
        // The parent reads standard error.
        eprintln!("cells: {} played, {not_played} not played: {empty:?}", all - not_played);
        let listed: BTreeMap<_, _> = EMPTY.iter().map(|&(column, why, rows)| ((column, why), rows)).collect();
        assert_eq!(empty, listed);
    });
}

/// Prints which cell failed.
struct TellOnPanic(&'static str, &'static str);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was {}, {}", self.0, self.1);
        }
    }
}

/// Returns the operations of `net` and `os` whose docs say that they may unwind, as every wait may.
fn that_wait() -> Vec<String> {
    let folders = [
        concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/src/net"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/src/os"),
    ];
    let mut folders = Vec::from(folders.map(|folder| fs::read_dir(folder).unwrap()));
    let (mut found, mut shared, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(fs::read_dir(entry.path()).unwrap());
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap();
            let (mut of, mut waits) = (String::new(), false);
            let mut lines = text.lines().map(str::trim).peekable();
            while let Some(line) = lines.next() {
                if let Some(name) = line.strip_prefix("impl").and_then(|rest| rest.strip_suffix(" {")) {
                    let name = name.strip_suffix("<T>").unwrap_or(name);
                    of = name.rsplit(['&', ' ']).next().unwrap().to_owned();
                } else if let Some((_, rest)) = line.split_once("reads!(").or(line.split_once("writes!(")) {
                    let name = if rest.is_empty() { lines.peek().unwrap() } else { rest };
                    let is_read = line.contains("reads!(");
                    // A macro within a macro has no type yet.
                    if !name.starts_with('$') {
                        streams.push((name.split([',', ')']).next().unwrap().to_owned(), is_read));
                    }
                } else if line.contains("When the wait is ended from outside") {
                    waits = true;
                } else if let Some(rest) = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ") {
                    let name = &rest[..rest.find(['(', '<']).unwrap()];
                    match (std::mem::take(&mut waits), &of[..]) {
                        (true, "$name") => shared.push(name.to_owned()),
                        (true, of) => found.push(format!("{of}::{name}")),
                        (false, _) => {}
                    }
                }
            }
        }
    }
    for (stream, reads) in streams {
        let of_it = shared.iter().filter(|name| name.starts_with("read") == reads);
        found.extend(of_it.map(|name| format!("{stream}::{name}")));
    }
    found
}

/// Fails when an operation that can wait has no row.
#[test]
fn each_that_waits_has_a_row() {
    let mut found = that_wait();
    let mut known: Vec<_> = TABLE.iter().map(|row| row.name).chain(NO_ROWS.iter().map(|row| row.0)).collect();
    found.sort();
    known.sort();
    known.dedup();
    assert_eq!(found, known);
}
