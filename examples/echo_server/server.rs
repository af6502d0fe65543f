//! The server: a goroutine that accepts, and one for each connection. It reads like a server with a thread for
//! each connection, and it is one, except that these threads cost a few kilobytes.

use gmp::net::{TcpListener, TcpStream, is_closed};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a full table of descriptors is given to empty.
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
    /// By descriptor, which stays a connection's own as long as it stands here.
    open: BTreeMap<RawFd, Arc<TcpStream>>,
    totals: Totals,
}

/// What was served. A message is what one read brought.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub connections: u64,
    pub messages: u64,
    pub bytes: u64,
}

impl Server {
    /// With `corrupt` it flips one bit of the first message, to show that its clients look.
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
                    // A goroutine that can't be had is a connection that is closed; `gmp::go` would panic.
                    let _refused = gmp::Builder::new().go(move || server.serve_one(Arc::new(stream)));
                }
                Err(refused) if is_closed(&refused) => return,
                Err(refused) => {
                    // Mostly EMFILE: the connection waits in the kernel until there is room.
                    // Asking again at once would spin.
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

    /// Sends back what comes until the peer ends, or breaks, the connection.
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

    /// Ends the server from a plain thread: no new connections; those that are open have what they sent
    /// answered and end. A client that does not take its answer within `patience` is cut off. Blocks the thread for at
    /// most twice as long. Returns what was served, and how many connections are open even so.
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

    /// Never held across a call that parks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under the lock")
    }
}
