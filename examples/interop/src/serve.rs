//! A server with a goroutine for each connection, until SIGINT or SIGTERM.

use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream, is_closed};
use gmp::signal::{self, SIGINT, SIGTERM};
use gmp::{Runtime, RuntimeBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// How long connections have to end at the stop, and then once more after they were cut off.
const GRACE: Duration = Duration::from_millis(600);
const CUT: Duration = Duration::from_millis(100);

/// The numbers of a server that has ended.
pub struct Served {
    pub connections: u64,
    /// How many of them had not ended within the grace.
    pub cut: usize,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections, {} cut off", self.connections, self.cut)
    }
}

#[derive(Default)]
struct Connections {
    state: Mutex<State>,
    one_ended: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    total: u64,
    open: BTreeMap<u64, Arc<TcpStream>>,
}

impl Connections {
    /// Takes the lock. No goroutine holds it across a call that parks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under the lock")
    }

    /// Keeps a connection in the table while `serve_one` runs. It leaves the table also when `serve_one` panics.
    fn during(&self, stream: TcpStream, serve_one: impl FnOnce(&Arc<TcpStream>)) {
        struct Leave<'a>(&'a Connections, u64);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.state().open.remove(&self.1);
                self.0.one_ended.notify_one();
            }
        }
        let stream = Arc::new(stream);
        let number = {
            let mut state = self.state();
            if state.stopping {
                return;
            }
            state.total += 1;
            let number = state.total;
            state.open.insert(number, Arc::clone(&stream));
            number
        };
        let _leave = Leave(self, number);
        serve_one(&stream);
    }

    /// Waits until no connection is open, but no longer than `limit`. Returns how many are open.
    fn ended_within(&self, limit: Duration) -> usize {
        let some = |state: &mut State| !state.open.is_empty();
        let waited = self.one_ended.wait_timeout_while(self.state(), limit, some);
        waited.expect("nobody panics under the lock").0.open.len()
    }

    fn shutdown(&self, how: Shutdown) {
        for stream in self.state().open.values() {
            let _it_is_gone_already = stream.shutdown(how);
        }
    }
}

/// Listens at `listen`, prints that, and runs `connection` in a goroutine for each client that comes. SIGINT and SIGTERM end
/// the server: it accepts no more clients, the context is done, and the connections read the end of their streams. Connections
/// that have not ended after a while are cut off.
pub fn serve(
    listen: &str,
    connection: impl Fn(&Arc<TcpStream>, &Context) + Send + Sync + 'static,
) -> io::Result<Served> {
    serve_in(Runtime::builder(), listen, connection)
}

/// Does the same as `serve`, in a runtime with given settings.
pub fn serve_in(
    runtime: RuntimeBuilder,
    listen: &str,
    connection: impl Fn(&Arc<TcpStream>, &Context) + Send + Sync + 'static,
) -> io::Result<Served> {
    let signals = signal::notify(&[SIGINT, SIGTERM])?;
    // SAFETY: these programs, and the crates that they run over streams, keep nothing of a thread across a call that parks.
    // docs/crates.md says how that was checked.
    let runtime = unsafe { runtime.build()? };
    let listener = Arc::new(TcpListener::bind(listen)?);
    println!("listening on {}, SIGINT or SIGTERM ends it", listener.local_addr()?);
    let (context, cancel) = Context::background().with_cancel();
    let connections = Arc::new(Connections::default());
    let accepting = runtime.go({
        let (listener, connections) = (Arc::clone(&listener), Arc::clone(&connections));
        let connection = Arc::new(connection);
        move || {
            accept(&listener, |stream| {
                let (connections, connection) = (Arc::clone(&connections), Arc::clone(&connection));
                let context = context.clone();
                let serve_one = move || connections.during(stream, |stream| connection(stream, &context));
                // If no goroutine can be started, the connection is closed.
                let _refused = gmp::Builder::new().go(serve_one);
            });
        }
    });

    let _which = signals.recv();
    // A second signal kills the process.
    drop(signals);
    connections.state().stopping = true;
    let _nobody_else_does = listener.close();
    cancel.cancel_with("the server stops");
    connections.shutdown(Shutdown::Read);
    let cut = connections.ended_within(GRACE);
    connections.shutdown(Shutdown::Both);
    connections.ended_within(CUT);
    accepting.join().map_err(io::Error::other)?;
    let connections = connections.state().total;
    Ok(Served { connections, cut })
}

/// Accepts until the listener is closed.
fn accept(listener: &TcpListener, mut each: impl FnMut(TcpStream)) {
    let mut told = None;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                told = None;
                let _only_slower_without = stream.set_nodelay(true);
                each(stream);
            }
            Err(refused) if is_closed(&refused) => return,
            Err(refused) => {
                // Usually EMFILE: the connection waits in the kernel until there is room. Accepting again at once would spin.
                if told != refused.raw_os_error() {
                    eprintln!("cannot accept: {refused}; trying again");
                    told = refused.raw_os_error();
                }
                gmp::time::sleep(PAUSE);
            }
        }
    }
}
