//! What the two ends of a connection say to each other.

use gmp::net::TcpStream;
use std::io::{Read, Write};

/// Bytes that differ from place to place and from stream to stream.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    // After so many bytes the pattern begins again.
    const PERIOD: usize = 1 << 16;
    let byte = |at: usize| (at.wrapping_mul(31) ^ at >> 8 ^ seed.wrapping_mul(97)) as u8;
    let mut bytes: Vec<_> = (0..len.min(PERIOD)).map(byte).collect();
    while bytes.len() < len {
        bytes.extend_from_within(..PERIOD.min(len - bytes.len()));
    }
    bytes
}

/// Sends back what comes, to the end.
pub fn echo(mut stream: TcpStream, buffer: usize) {
    let mut buffer = vec![0; buffer];
    loop {
        match stream.read(&mut buffer).expect("the client ends in order") {
            0 => return,
            got => stream.write_all(&buffer[..got]).expect("the client reads"),
        }
    }
}

/// Sends a message of `len` bytes `rounds` times, and reads it back each time, with a buffer of `room` bytes.
pub fn ping(stream: &TcpStream, len: usize, room: usize, rounds: usize) {
    let mut stream = stream;
    let mut buffer = vec![0; room];
    for round in 0..rounds {
        let sent = pattern(round, len);
        stream.write_all(&sent).unwrap();
        let mut at = 0;
        while at < len {
            let most = room.min(len - at + room / 2);
            let got = stream.read(&mut buffer[..most]).unwrap();
            assert!(got > 0 && buffer[..got] == sent[at..at + got], "round {round}, at {at}");
            at += got;
        }
        assert_eq!(at, len);
    }
}
