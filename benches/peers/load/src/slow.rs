//! Clients that send as much as is taken from them, and read little or nothing, beside others with one message under way each:
//! by how much the server's memory changes.

use crate::echo::Load;
use crate::process::Process;
use crate::{SIZE, connect, set_nonblocking};
use peer_common::Found;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The slow ones have their turn so often, and the server's memory is looked at.
const TURN: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(500);
/// What one sends and reads in its turn.
const SENDS: usize = 1 << 20;
const READS: usize = 4 << 10;

/// The first half of the slow ones never reads.
pub fn run(address: &str, server: &Process, count: usize, slow: usize, seconds: Duration) -> Found {
    let mut slow: Vec<_> = (0..slow).map(|_| connect(address)).collect();
    slow.iter().for_each(set_nonblocking);
    let mut load = Load::new(address, count);
    let (over, came_back, sent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let over_at_end = Over(&over);
    let (found, looks) = thread::scope(|scope| {
        let over_at_end = over_at_end;
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let readers = slow.len() / 2;
                for (at, stream) in slow.iter_mut().enumerate() {
                    sent.fetch_add(send(stream), Relaxed);
                    if at >= readers {
                        came_back.fetch_add(receive(stream), Relaxed);
                    }
                }
                thread::sleep(TURN);
            }
        });
        load.warm_up(seconds);
        let looking = scope.spawn(|| {
            let mut looks = vec![server.resident()];
            while !over.load(Relaxed) {
                thread::sleep(LOOK);
                looks.push(server.resident());
            }
            looks
        });
        let found = load.measure(server, seconds);
        drop(over_at_end);
        (found, looking.join().expect("the server runs"))
    });
    let (sent, came_back) = (sent.into_inner(), came_back.into_inner());
    // Each of them has more in the sockets' buffers than it has read: it is the server that waits.
    assert!(
        sent > came_back + slow.len() as u64 * SIZE as u64,
        "{sent} bytes were sent, {came_back} came back"
    );
    assert!(came_back > 0, "nothing came back to the slow ones that read");
    let (least, most) = (looks.iter().min().expect("looked at"), looks.iter().max().expect("looked at"));
    Found::new((most - least) as f64 / 1024.0)
        .with("resident", *most as f64 / 1024.0)
        .with("looks", looks.len() as f64)
        .with("slow_sent", sent as f64)
        .with("slow_came_back", came_back as f64)
        .and("echo", found)
}

/// Ends the threads also where the measurement panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends what is taken, at most what a turn has.
fn send(stream: &mut File) -> u64 {
    let mut sent = 0;
    while sent < SENDS {
        match stream.write(&[7; 16 << 10]) {
            Ok(taken) => sent += taken,
            Err(full) if full.kind() == ErrorKind::WouldBlock => break,
            Err(broken) => panic!("a slow reader's connection: {broken}"),
        }
    }
    sent as u64
}

fn receive(stream: &mut File) -> u64 {
    let mut buffer = [0; READS];
    match stream.read(&mut buffer) {
        Ok(0) => panic!("the server closed a slow reader's connection"),
        Ok(got) => {
            assert!(buffer[..got].iter().all(|&byte| byte == 7), "a wrong answer");
            got as u64
        }
        Err(none) if none.kind() == ErrorKind::WouldBlock => 0,
        Err(broken) => panic!("a slow reader's connection: {broken}"),
    }
}
