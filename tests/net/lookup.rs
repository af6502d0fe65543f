//! The stack on which a name is looked up: a C library may need more stack than a goroutine has.

use common::child;
use common::crew::everyone;
use common::loopback::refusing;
use common::{everywhere, runtime};
use gmp::context::{Context, ContextError};
use gmp::net::{DialConfig, TcpListener, TcpStream, UdpSocket, lookup, lookup_deadline};
use gmp::{Builder, Runtime, goexit};
use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use std::vec;

const KIB: usize = 1 << 10;

/// Touches `kib` KiB of stack, and calls `f` there.
#[inline(never)]
fn descend(kib: usize, f: &mut dyn FnMut()) {
    let frame = [1_u8; 4 * KIB];
    black_box(&frame);
    match kib.checked_sub(4) {
        None => f(),
        Some(rest) => descend(rest, f),
    }
    black_box(&frame);
}

/// An address whose look-up takes that many KiB of stack, as the look-up of a name with some thousand addresses does with
/// glibc, and then calls the function, if there is one.
struct Deep(SocketAddr, usize, RefCell<Option<Box<dyn FnOnce() + Send>>>);

impl Deep {
    fn new(addr: SocketAddr) -> Self {
        Deep(addr, 150, RefCell::new(None))
    }

    fn then(then: impl FnOnce() + Send + 'static) -> Self {
        Deep(any(), 20, RefCell::new(Some(Box::new(then))))
    }
}

impl ToSocketAddrs for Deep {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        descend(self.1, &mut || {
            if let Some(then) = self.2.take() {
                then();
            }
        });
        Ok(vec![self.0].into_iter())
    }
}

/// An address of the loopback, with any port.
fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Fails by the end of the process when a call looks its name up on the goroutine's own stack of 64 KiB.
#[test]
fn each_call_that_takes_a_name_has_stack_for_the_look_up() {
    if !child::is_child() {
        child::passes("each_call_that_takes_a_name_has_stack_for_the_look_up", &[]);
        return;
    }
    everywhere(|rt| {
        let looks_up = || {
            let late = Instant::now() + Duration::from_secs(60);
            assert_eq!(lookup(Deep::new(any())).unwrap().next(), Some(any()));
            assert_eq!(lookup_deadline(Deep::new(any()), late).unwrap().next(), Some(any()));
            let listener = TcpListener::bind(Deep::new(any())).unwrap();
            let at = || Deep::new(listener.local_addr().unwrap());
            TcpStream::connect(at()).unwrap();
            TcpStream::connect_deadline(at(), late).unwrap();
            DialConfig::new().connect(at()).unwrap();
            let udp = UdpSocket::bind(Deep::new(any())).unwrap();
            let to = || Deep::new(udp.local_addr().unwrap());
            udp.send_to(b"hello", to()).unwrap();
            udp.connect(to()).unwrap();
        };
        rt.run(|| Builder::new().stack_size(64 * KIB).go(looks_up).unwrap().join().unwrap());
        // A plain thread has enough stack.
        looks_up();
    });
}

/// Addresses that are found one by one, without an end. The iterator panics when it is asked for more than its limit.
struct Endless(SocketAddr, usize);

impl ToSocketAddrs for Endless {
    type Iter = Box<dyn Iterator<Item = SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (addr, most) = (self.0, self.1);
        Ok(Box::new((1..).map(move |count| {
            assert!(count <= most, "asked for address {count}");
            addr
        })))
    }
}

/// Fails by a panic of the iterator when a call asks for an address that it does not need; some iterators have no end.
#[test]
fn addresses_that_are_found_one_by_one_need_no_end() {
    everyone(|crew| {
        crew.run(|| {
            let listener = TcpListener::bind(Endless(any(), 1)).unwrap();
            let udp = UdpSocket::bind(Endless(any(), 1)).unwrap();
            udp.connect(Endless(udp.local_addr().unwrap(), 1)).unwrap();
            // If an address can't be bound, the call asks for the next one. The first address is in TEST-NET-1.
            TcpListener::bind(&[SocketAddr::from(([192, 0, 2, 1], 0)), any()][..]).unwrap();
            // The families take turns within the addresses that a dial takes out of the iterator at once.
            let at = listener.local_addr().unwrap();
            let late = Instant::now() + Duration::from_secs(60);
            for stream in [
                TcpStream::connect(Endless(at, 4097)),
                TcpStream::connect_deadline(Endless(at, 4097), late),
                DialConfig::new().connect(Endless(at, 4097)),
            ] {
                assert_eq!(stream.unwrap().peer_addr().unwrap(), at);
            }
        });
    });
}

/// The kernel refuses each address at once, so the call waits for nothing, and there is always another address. Fails by a
/// panic of the iterator when a context that is done does not end the call.
#[test]
fn a_context_ends_a_call_that_is_refused_at_each_of_many_addresses() {
    everyone(|crew| {
        crew.run(|| {
            let (context, cancel) = Context::background().with_cancel();
            cancel.cancel();
            // In TEST-NET-1, and of the other family than the socket.
            let (far, other) = (SocketAddr::from(([192, 0, 2, 1], 0)), SocketAddr::from(([0_u16; 8], 9)));
            let calls: [fn(SocketAddr, SocketAddr) -> io::Result<()>; 4] = [
                |_, _| TcpStream::connect(Endless(refusing(), 4097)).map(drop),
                |far, _| TcpListener::bind(Endless(far, 2)).map(drop),
                |far, _| UdpSocket::bind(Endless(far, 2)).map(drop),
                |_, other| UdpSocket::bind(any())?.connect(Endless(other, 2)),
            ];
            for call in calls {
                let ended = context.run(|| call(far, other)).unwrap().unwrap_err();
                assert_eq!(ContextError::of(&ended), Some(ContextError::Canceled), "{ended}");
            }
        });
    });
}

/// A look-up runs on the stack of its goroutine, or of `with_stack`, if that is large enough. Fails by the end of the process
/// when the look-up gets a smaller one.
#[test]
fn a_look_up_on_a_larger_stack_keeps_it() {
    if !child::is_child() {
        child::passes("a_look_up_on_a_larger_stack_keeps_it", &[]);
        return;
    }
    let finds = || lookup(Deep(any(), 1000, RefCell::new(None))).unwrap().count();
    let rt = runtime(2);
    let large = rt.run(|| Builder::new().stack_size(4096 * KIB).go(finds).unwrap().join().unwrap());
    let second = rt.run(|| gmp::with_stack(4096 * KIB, finds));
    assert_eq!((large, second), (1, 1));
}

/// Fails when a look-up ends otherwise than on the goroutine's stack, or keeps its turn.
#[test]
fn a_look_up_parks_and_unwinds_as_ever() {
    for procs in [1, 4] {
        let builder = Runtime::builder().procs(procs).stack_size(64 * KIB).max_lookups(1);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        rt.run(|| {
            let parks = Deep::then(|| gmp::time::sleep(Duration::from_millis(1)));
            assert_eq!(lookup(parks).unwrap().count(), 1);

            let panics = Deep::then(|| panic!("by the resolver"));
            let caught = catch_unwind(AssertUnwindSafe(|| lookup(panics).map(drop))).unwrap_err();
            assert_eq!(caught.downcast_ref(), Some(&"by the resolver"));

            let exits = gmp::go(|| lookup(Deep::then(|| goexit())).map(drop));
            assert!(exits.join().unwrap_err().is_goexit());

            let within = lookup(Deep::then(|| assert_eq!(lookup(Deep::new(any())).unwrap().count(), 1)));
            assert_eq!(within.unwrap().count(), 1);
        });
        rt.run(|| assert_eq!(lookup(Deep::new(any())).unwrap().count(), 1));
    }
}

/// Fails when a wait in the look-up continues after its context has ended.
#[test]
fn a_context_ends_a_wait_within_a_look_up() {
    let rt = runtime(2);
    rt.run(|| {
        let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
        let sleeps = Deep::then(|| gmp::time::sleep(Duration::from_secs(3600)));
        let ended = context.run(|| lookup(sleeps).map(drop));
        assert_eq!(ended.unwrap_err(), ContextError::DeadlineExceeded);
    });
}

/// Fails by a panic, or when the look-up runs on the goroutine's own stack, or when an address, which needs no look-up, needs a
/// second stack.
#[test]
fn where_there_is_no_stack_the_call_says_so() {
    let builder = Runtime::builder().procs(1).stack_size(64 * KIB).max_stack_bytes(128 * KIB);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { builder.build() }.unwrap();
    rt.run(|| {
        let refused = lookup(("localhost", 7)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded, "{refused}");
        assert_eq!(lookup(("127.0.0.1", 7)).unwrap().count(), 1);
        assert_eq!(lookup(any()).unwrap().count(), 1);
    });
}
