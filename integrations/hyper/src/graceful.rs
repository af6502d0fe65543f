//! The orderly end of a connection.

use gmp::context::Context as GmpContext;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::service::Service;
use hyper::{Request, Response};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

/// A connection that can be asked to end once it has answered the requests that have begun: those of hyper's servers.
pub trait Graceful: Future<Output = hyper::Result<()>> {
    /// Asks the connection to end in order; the caller polls it until it has ended.
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

/// Waits for a connection; when the context is done, asks the connection to end in order and waits on: HTTP/1 answers the
/// request that has begun, HTTP/2 all that have begun, and a connection without a request closes at once. The client learns of
/// that by a header or by a GOAWAY.
///
/// The goroutine that waits must not run under that context itself, whose end would drop the connection. For a limit on the
/// rest, run it under another context.
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
///         // The client has sent no request.
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
