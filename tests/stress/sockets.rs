//! Sockets: events, I/O locks and ends meet the operations that wait for them.

use crate::support::{Random, everywhere, join_all, pair, rounds};
use gmp::go;
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

/// Fails by a hang when an I/O lock is handed to a goroutine that is only about to wait for it, or to none.
#[test]
fn turns_of_a_socket_are_handed_on_under_contention() {
    everywhere(|rt| {
        let (near, mut far) = pair();
        let near = Arc::new(near);
        let writes = rounds(2000);
        let write = |seed| {
            let near = Arc::clone(&near);
            move || {
                let mut random = Random::new(seed);
                for _ in 0..writes {
                    assert_eq!((&*near).write(&[0; 3]).unwrap(), 3);
                    random.pause(200);
                }
            }
        };
        let goroutines: Vec<_> = (0..6).map(|seed| rt.go(write(seed))).collect();
        let threads: Vec<_> = (6..8).map(|seed| thread::spawn(write(seed))).collect();
        let all = 8 * writes * 3;
        rt.run(|| {
            let (mut total, mut buffer) = (0, [0; 100]);
            while total < all {
                total += far.read(&mut buffer).unwrap();
            }
        });
        join_all(goroutines);
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// An event comes while its reader is on the way to sleep, on another P than the poller's. Fails by a hang.
#[test]
fn readers_and_events_do_not_miss_each_other() {
    everywhere(|rt| {
        rt.run(|| {
            join_all((0..6).flat_map(|seed| {
                let (near, far) = pair();
                [(near, true), (far, false)].map(|(mut stream, mut mine)| {
                    go(move || {
                        let mut random = Random::new(seed * 2 + usize::from(mine));
                        for round in 0..rounds(2000) {
                            random.pause(400);
                            if mine {
                                stream.write_all(&(round as u32).to_ne_bytes()).unwrap();
                            } else {
                                let mut heard = [0; 4];
                                // Sometimes in two parts: a read that has filled its buffer does not show that the socket
                                // is drained.
                                let first = 1 + random.below(4) as usize;
                                stream.read_exact(&mut heard[..first]).unwrap();
                                stream.read_exact(&mut heard[first..]).unwrap();
                                assert_eq!(u32::from_ne_bytes(heard), round as u32);
                            }
                            mine = !mine;
                        }
                    })
                })
            }))
        });
    });
}
