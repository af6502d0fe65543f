use crate::support::{everywhere, many};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, ServerStreamingService, StreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

type Numbers = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
type Codec = ProstCodec<Number, Number>;

/// A service that returns twice the number, or an error for zero.
struct Double;

impl UnaryService<Number> for Double {
    type Response = Number;
    type Future = Ready<Result<Response<Number>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        ready(match request.into_inner().value {
            0 => Err(Status::invalid_argument("zero")),
            value => Ok(Response::new(Number { value: value * 2 })),
        })
    }
}

/// A service that sends the numbers below its argument.
struct Count;

impl ServerStreamingService<Number> for Count {
    type Response = Number;
    type ResponseStream = Numbers;
    type Future = Ready<Result<Response<Numbers>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let numbers = tokio_stream::iter(0..request.into_inner().value);
        ready(Ok(Response::new(Box::pin(numbers.map(|value| Ok(Number { value }))))))
    }
}

/// A service that sends the sums so far.
struct Add;

impl StreamingService<Number> for Add {
    type Response = Number;
    type ResponseStream = Numbers;
    type Future = Ready<Result<Response<Numbers>, Status>>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        let mut sum = 0;
        let sums = request.into_inner().map(move |number| {
            sum += number?.value;
            Ok(Number { value: sum })
        });
        ready(Ok(Response::new(Box::pin(sums))))
    }
}

/// The server that a generator would make from a service's description.
#[derive(Clone)]
struct Arithmetic;

impl NamedService for Arithmetic {
    const NAME: &'static str = "test.Arithmetic";
}

impl Service<http::Request<Body>> for Arithmetic {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut server = tonic::server::Grpc::new(Codec::default());
            Ok(match request.uri().path() {
                "/test.Arithmetic/Double" => server.unary(Double, request).await,
                "/test.Arithmetic/Count" => server.server_streaming(Count, request).await,
                "/test.Arithmetic/Add" => server.streaming(Add, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

fn server() -> SocketAddr {
    let listener = gmp_tokio::run(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let addr = listener.local_addr().expect("bound");
    let router = Server::builder().add_service(Arithmetic);
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    addr
}

fn connect(addr: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
    gmp::block_on(endpoint.connect()).expect("the server listens")
}

/// The client that a generator would make.
#[derive(Clone)]
struct Client(tonic::client::Grpc<Channel>);

impl Client {
    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|refused| Status::unavailable(refused.to_string()))
    }

    async fn double(&mut self, value: u64) -> Result<u64, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/test.Arithmetic/Double");
        let answer = self.0.unary(Request::new(Number { value }), path, Codec::default()).await?;
        Ok(answer.into_inner().value)
    }

    async fn count(&mut self, value: u64) -> Result<Streaming<Number>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/test.Arithmetic/Count");
        let answer = self.0.server_streaming(Request::new(Number { value }), path, Codec::default()).await?;
        Ok(answer.into_inner())
    }

    async fn add(&mut self, numbers: ReceiverStream<Number>) -> Result<Streaming<Number>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/test.Arithmetic/Add");
        Ok(self.0.streaming(Request::new(numbers), path, Codec::default()).await?.into_inner())
    }
}

/// All goroutines share one connection. Fails when an answer is another call's, or when an error does not arrive.
#[test]
fn unary_calls_of_tonic_have_their_answers() {
    everywhere("", |_| {
        let client = Client(tonic::client::Grpc::new(connect(server())));
        many(20, move |n| {
            let mut client = client.clone();
            for round in 1..=20 {
                let value = n as u64 * 100 + round;
                let doubled = if round % 2 == 0 {
                    gmp::block_on(client.double(value))
                } else {
                    let mut client = client.clone();
                    gmp_tokio::run(async move { client.double(value).await })
                };
                assert_eq!(doubled.expect("it answers"), value * 2);
            }
            let refused = gmp::block_on(client.double(0)).expect_err("zero");
            assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "zero"));
        });
    });
}

/// Fails if a message of a stream is lost or comes out of order, where a goroutine parks between two of them.
#[test]
fn streams_of_tonic_pass_through_goroutines() {
    everywhere("", |_| {
        let client = Client(tonic::client::Grpc::new(connect(server())));
        many(10, move |n| {
            let mut client = client.clone();
            let mut counts = gmp::block_on(client.count(100)).expect("it answers");
            let mut seen = 0;
            while let Some(number) = gmp::block_on(counts.message()).expect("no error") {
                assert_eq!(number.value, seen);
                seen += 1;
                gmp::yield_now();
            }
            assert_eq!(seen, 100);

            // The stream goes in both directions at once.
            let (give, numbers) = mpsc::channel(1);
            let mut sums = gmp::block_on(client.add(ReceiverStream::new(numbers))).expect("it answers");
            let gives = gmp::go(move || {
                for value in 1..=50 {
                    gmp::block_on(give.send(Number { value })).expect("the call is under way");
                }
            });
            for k in 1..=50 {
                let sum = gmp::block_on(sums.message()).expect("no error").expect("one for each");
                assert_eq!(sum.value, k * (k + 1) / 2, "of {n}");
            }
            assert_eq!(gmp::block_on(sums.message()).expect("no error"), None);
            gives.join().expect("all were given");
        });
    });
}

/// Fails if a stream that a limit has ended leaves the connection in disorder.
#[test]
fn a_stream_that_a_limit_ends_leaves_the_connection_to_others() {
    everywhere("", |_| {
        let client = Client(tonic::client::Grpc::new(connect(server())));
        many(10, move |n| {
            let mut client = client.clone();
            let (_give, numbers) = mpsc::channel(1);
            let mut sums = gmp::block_on(client.add(ReceiverStream::new(numbers))).expect("it answers");
            let soon = Duration::from_millis(20);
            assert!(gmp::time::timeout(soon, || gmp::block_on(sums.message()).is_ok()).is_err());
            drop(sums);
            assert_eq!(gmp::block_on(client.double(n as u64 + 1)).expect("it answers"), n as u64 * 2 + 2);
        });
    });
}
