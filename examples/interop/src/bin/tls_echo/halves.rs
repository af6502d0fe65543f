//! A TLS connection that one goroutine reads while another writes.
//!
//! rustls keeps both directions in one value, so a lock is around that value. No goroutine waits for the peer under the lock:
//!
//! * the reader takes bytes from the socket without the lock, and hands them to rustls under the lock;
//! * a writer encrypts under the lock into a buffer, and sends the buffer without the lock. `turn` has the buffers go out in
//!   the order in which they were encrypted. Each buffer takes all encrypted bytes that there are, so outside of the lock only
//!   an alert that the reader has caused can be left to send.

use gmp::net::TcpStream;
use gmp::sync::Mutex;
use rustls::ServerConnection;
use std::io::{self, Read, Write};

pub struct Halves<'a> {
    session: Mutex<ServerConnection>,
    turn: Mutex<()>,
    /// The bytes that have come and that rustls does not have yet. Only the reader uses them.
    came: Mutex<Came>,
    stream: &'a TcpStream,
}

struct Came {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl<'a> Halves<'a> {
    /// Makes the halves of a connection after its handshake.
    pub fn new(session: ServerConnection, stream: &'a TcpStream) -> Self {
        let came = Mutex::new(Came { bytes: vec![0; 16 << 10], from: 0, to: 0 });
        Halves { session: Mutex::new(session), turn: Mutex::new(()), came, stream }
    }

    /// Reads as `Read::read` does. Only one goroutine at a time may read.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut came = self.came.lock();
        loop {
            {
                let mut session = self.session.lock();
                match session.reader().read(buf) {
                    Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
                if came.from < came.to {
                    let Came { bytes, from, to } = &mut *came;
                    *from += session.read_tls(&mut &bytes[*from..*to])?;
                    let taken = session.process_new_packets();
                    let answer = session.wants_write();
                    drop(session);
                    if answer {
                        let _the_peer_may_have_gone = self.send(|_| Ok(()));
                    }
                    taken.map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong))?;
                    continue;
                }
            }
            came.from = 0;
            came.to = (&mut &*self.stream).read(&mut came.bytes)?;
            if came.to == 0 {
                // This tells rustls the end of the stream. Its `reader` then returns the end, or an error if there was no
                // close_notify.
                self.session.lock().read_tls(&mut io::empty())?;
            }
        }
    }

    /// Writes as `Write::write_all` and `flush` do.
    pub fn write_all(&self, plain: &[u8]) -> io::Result<()> {
        // The chunks are smaller than rustls' own limit for bytes that wait to be sent, which is 64 KiB.
        plain.chunks(32 << 10).try_for_each(|chunk| self.send(|session| session.writer().write_all(chunk)))
    }

    /// Tells the peer that no more bytes will come.
    pub fn close(&self) -> io::Result<()> {
        self.send(|session| {
            session.send_close_notify();
            Ok(())
        })
    }

    fn send(&self, add: impl FnOnce(&mut ServerConnection) -> io::Result<()>) -> io::Result<()> {
        let _turn = self.turn.lock();
        let mut sealed = Vec::new();
        {
            let mut session = self.session.lock();
            add(&mut session)?;
            while session.wants_write() {
                session.write_tls(&mut sealed)?;
            }
        }
        (&mut &*self.stream).write_all(&sealed)
    }
}
