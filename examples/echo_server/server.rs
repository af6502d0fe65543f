//! The server: a goroutine that accepts, and one for each connection. The code reads like a server with a thread for each
//! connection, and it is one, except that these threads cost only a few kilobytes.

use gmp::net::{TcpListener, TcpStream, is_closed};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Server {
    listener: TcpListener,
    state: Mutex<State>,
    one_ended: Condvar,
    corrupt: AtomicBool,
}

#[derive(Default)]
struct State {
    closing: bool,
    /// By descriptor, which belongs to the connection as long as the entry is here.
    open: BTreeMap<RawFd, Arc<TcpStream>>,
    totals: Totals,
}

/// How much was served. A message is the result of one read.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub connections: u64,
    pub messages: u64,
    pub bytes: u64,
}

impl Server {
    /// With `corrupt` the server flips one bit of the first message, to show that its clients check.
    pub fn new(listener: TcpListener, corrupt: bool) -> Arc<Self> {
        let state = Mutex::new(State::default());
        Arc::new(Server { listener, state, one_ended: Condvar::new(), corrupt: AtomicBool::new(corrupt) })
    }

    /// Accepts until `close`, and starts a goroutine for each connection.
    pub fn serve(self: &Arc<Self>) {
        let mut told = None;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    told = None;
                    let server = Arc::clone(self);
                    // If no goroutine can be started, the connection is closed; `gmp::go` would panic.
                    let _refused = gmp::Builder::new().go(move || server.serve_one(Arc::new(stream)));
                }
                Err(refused) if is_closed(&refused) => return,
                Err(refused) => {
                    // Mostly EMFILE: the connection waits in the kernel until there is room. Accepting again at once would
                    // spin.
                    if told != refused.raw_os_error() {
                        eprintln!("echo_server: cannot accept: {refused}; trying again");
                        told = refused.raw_os_error();
                    }
                    gmp::time::sleep(PAUSE);
                }
            }
        }
    }

    fn serve_one(&self, stream: Arc<TcpStream>) {
        let fd = stream.as_raw_fd();
        {
            let mut state = self.state();
            if state.closing {
                return;
            }
            state.open.insert(fd, Arc::clone(&stream));
        }
        let (messages, bytes) = self.echo(&stream);

        let mut state = self.state();
        state.open.remove(&fd);
        state.totals.connections += 1;
        state.totals.messages += messages;
        state.totals.bytes += bytes;
        self.one_ended.notify_one();
    }

    /// Sends back all bytes until the peer ends, or breaks, the connection.
    fn echo(&self, mut stream: &TcpStream) -> (u64, u64) {
        let (mut messages, mut bytes) = (0, 0);
        let mut buf = [0; 8 << 10];
        let _only_slower_without = stream.set_nodelay(true);
        while let Ok(got @ 1..) = stream.read(&mut buf) {
            if self.corrupt.load(Relaxed) && self.corrupt.swap(false, Relaxed) {
                buf[got / 2] ^= 1;
            }
            if stream.write_all(&buf[..got]).is_err() {
                break;
            }
            messages += 1;
            bytes += got as u64;
        }
        (messages, bytes)
    }

    /// Ends the server from a plain thread: it takes no new connections; open connections get answers to what they have sent,
    /// and end. A client that does not take its answer within `patience` is cut off. Blocks the thread for at most twice as
    /// long. Returns what was served, and how many connections are still open.
    pub fn close(&self, patience: Duration) -> (Totals, usize) {
        self.state().closing = true;
        // Ends the loop of `serve`, wherever it is.
        let _by_an_earlier_call = self.listener.close();
        let mut state = self.state();
        for how in [Shutdown::Read, Shutdown::Both] {
            for stream in state.open.values() {
                let _it_is_gone_already = stream.shutdown(how);
            }
            let still_open = |state: &mut State| !state.open.is_empty();
            let waited = self.one_ended.wait_timeout_while(state, patience, still_open);
            (state, _) = waited.expect("nobody panics under the lock");
        }
        (state.totals, state.open.len())
    }

    /// Takes the lock. No goroutine holds it across a call that parks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under the lock")
    }
}
