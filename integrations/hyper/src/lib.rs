//! [hyper](https://docs.rs/hyper) over the sockets and timers of gmp: HTTP/1 and HTTP/2, server and client.
//!
//! hyper's own code speaks the protocol; this crate has the parts that hyper needs of a runtime: [`GmpIo`] is a stream,
//! [`GmpTimer`] the clock, [`GmpExecutor`] starts goroutines. A connection is a future, and a goroutine waits for it by
//! [`gmp::block_on`]:
//!
//! ```
//! use gmp::net::{TcpListener, TcpStream};
//! use gmp_hyper::{GmpIo, GmpTimer};
//! use hyper::body::Incoming;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use std::convert::Infallible;
//! use std::io::{Read, Write};
//!
//! async fn greet(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     // A service may block its goroutine, as any code of a goroutine may.
//!     gmp::time::sleep(std::time::Duration::from_millis(1));
//!     Ok(Response::new(format!("hello, {}\n", request.uri().path())))
//! }
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//!         let address = listener.local_addr().unwrap();
//!         gmp::go(move || {
//!             for stream in listener.incoming() {
//!                 // Usually the process has no descriptor left; others will be closed soon.
//!                 let Ok(stream) = stream else {
//!                     gmp::time::sleep(std::time::Duration::from_millis(50));
//!                     continue;
//!                 };
//!                 // If no goroutine can be started, the connection is closed.
//!                 let _refused = gmp::Builder::new().go(|| {
//!                     let io = GmpIo::new(stream);
//!                     let connection = hyper::server::conn::http1::Builder::new()
//!                         .timer(GmpTimer)
//!                         .serve_connection(io, service_fn(greet));
//!                     if let Err(refused) = gmp::block_on(connection) {
//!                         eprintln!("{refused}");
//!                     }
//!                 });
//!             }
//!         });
//!         let mut client = TcpStream::connect(address).unwrap();
//!         client.write_all(b"GET /world HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
//!         let mut answer = String::new();
//!         client.read_to_string(&mut answer).unwrap();
//!         assert!(answer.ends_with("hello, /world\n"), "{answer}");
//!     })
//! }
//! ```
//!
//! # A service that blocks
//!
//! A service may make any call that blocks a goroutine: channels, sleeps, sockets, files, [`gmp::blocking`]; the goroutine that
//! polls the service parks, and the thread runs others. Everything else that this goroutine has to poll waits meanwhile, so it
//! is better to await a future where there is one: `receiver.recv_async().await`, `gmp::go(f).await`.
//!
//! * *HTTP/1* has one request under way at a time, on the goroutine of the connection. The body of that request, and the end of
//!   the connection, are read when the service waits for them, or is done. A response is written after the service has returned
//!   it. While a service parks, the connection does not see a stop ([`serve_until`]).
//! * *HTTP/2* has many requests under way. [`Service::call`](hyper::service::Service::call) itself runs on the goroutine of the
//!   connection; the future that it returns has a goroutine of its own, by [`GmpExecutor`], and may park. While the future
//!   parks, a reset of its stream is not seen.
//!
//! # Ends
//!
//! When the context of a connection's goroutine ends, or its runtime, `block_on` drops the connection, on the goroutine's
//! stack, which closes the socket, and unwinds. [`serve_until`] ends a connection in order: the connection answers the requests
//! that have begun, and takes no more. Under HTTP/2 the context of the connection's goroutine does not reach the goroutines of
//! its requests: a service that parks there should run its body under the context, too.

mod executor;
#[cfg(feature = "server")]
mod graceful;
mod io;
mod timer;

pub use executor::{GmpExecutor, Offload, offload};
#[cfg(feature = "server")]
pub use graceful::{Graceful, serve_until};
pub use io::GmpIo;
pub use timer::{GmpTimer, Sleep};
