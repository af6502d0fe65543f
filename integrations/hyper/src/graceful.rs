//! The end of a connection in order.

use gmp::context::Context as GmpContext;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::service::Service;
use hyper::{Request, Response};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

/// A connection that can be asked to end when it has answered what was asked: those of hyper's servers.
pub trait Graceful: Future<Output = hyper::Result<()>> {
    /// Asks the connection to end in order; it is to be polled until it has.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

#[cfg(feature = "http1")]
mod of_http1 {
    use super::*;
    use hyper::server::conn::http1;

    impl<I, B, S> Graceful for http1::Connection<I, S>
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        I: Read + Write + Unpin,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        fn graceful_shutdown(self: Pin<&mut Self>) {
            http1::Connection::graceful_shutdown(self);
        }
    }

    impl<I, B, S> Graceful for http1::UpgradeableConnection<I, S>
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        I: Read + Write + Unpin + Send + 'static,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        fn graceful_shutdown(self: Pin<&mut Self>) {
            http1::UpgradeableConnection::graceful_shutdown(self);
        }
    }
}

#[cfg(feature = "http2")]
mod of_http2 {
    use super::*;
    use hyper::rt::bounds::Http2ServerConnExec;
    use hyper::server::conn::http2;

    impl<I, B, S, E> Graceful for http2::Connection<I, S, E>
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        I: Read + Write + Unpin,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
        E: Http2ServerConnExec<S::Future, B>,
    {
        fn graceful_shutdown(self: Pin<&mut Self>) {
            http2::Connection::graceful_shutdown(self);
        }
    }
}

/// Waits for a connection, and when the context is done first asks the connection to end in order: HTTP/1 answers the request
/// that has begun, HTTP/2 all that have, and a connection without one closes at once. The client learns of it, by a
/// header or by a GOAWAY.
///
/// The goroutine that waits is not to run under that context itself, whose end would have the connection dropped. A limit for
/// the rest is another context's, under which it runs.
///
/// ```
/// use gmp::context::Context;
/// use gmp::net::{TcpListener, TcpStream};
/// use gmp_hyper::{GmpIo, serve_until};
/// use hyper::server::conn::http1;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response, body::Incoming};
/// use std::convert::Infallible;
/// use std::io::Read;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (stops, cancel) = Context::background().with_cancel();
///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///         let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
///         let io = GmpIo::new(listener.accept().unwrap().0);
///         let serves = gmp::go(move || {
///             let answer = |_: Request<Incoming>| async { Ok::<_, Infallible>(Response::new(String::new())) };
///             let connection = http1::Builder::new().serve_connection(io, service_fn(answer));
///             gmp::block_on(serve_until(connection, &stops))
///         });
///         // It has asked for nothing.
///         cancel.cancel();
///         serves.join().unwrap().unwrap();
///         assert_eq!(client.read(&mut [0]).unwrap(), 0);
///     })
/// }
/// ```
///
/// # Errors
/// Those of the connection.
pub async fn serve_until<C: Graceful>(connection: C, stops: &GmpContext) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let mut ended = pin!(Some(stops.ended()));
    poll_fn(|cx| {
        if ended.as_mut().as_pin_mut().is_some_and(|ended| ended.poll(cx).is_ready()) {
            ended.set(None);
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await
}
