//! Name look-ups. Each blocks a thread, so a bound says how many may be under way at once.
//!
//! *The stack.* glibc's `getaddrinfo` keeps the addresses that it has found in its frame, up to 64 KiB of them, which is a
//! goroutine's whole stack: a name of some 1000 addresses would overflow that. So a look-up runs on a stack of its own, as a
//! function of `with_stack` does, unless the goroutine's stack has as much left. A goroutine that waits in line has no such
//! stack yet.

use crate::host::{Active, Clock, Stacks};
use crate::net::limit::timed_out;
use crate::net::methods::with_a_frame;
use crate::net::{check_contexts, is_closed};
use crate::runtime::lines::WaitInLine;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::any::{TypeId, type_name};
use std::io;
use std::iter::Cloned;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Instant;
use std::{option, slice};

/// Room for glibc's 64 KiB, for the frames of the code that asks the name servers, and for a caller's own `ToSocketAddrs`
/// around them.
const STACK: usize = 256 << 10;
/// The room on a goroutine's own stack that is as good: somewhat less, as the guard and the callers take a part of a stack of
/// that size.
const ENOUGH: usize = 224 << 10;

/// Looks a name up, as std's [`to_socket_addrs`](ToSocketAddrs::to_socket_addrs): for a program that keeps the addresses, or
/// chooses among them. Calls that take a name, such as [`TcpStream::connect`](super::TcpStream::connect), look it up by
/// themselves.
///
/// Blocks the goroutine, or the plain thread. A look-up takes a thread, so goroutines park in line for their turn
/// ([`max_lookups`](crate::RuntimeBuilder::max_lookups)). If `addr` is an address rather than a name, the call returns it at
/// once.
///
/// In a goroutine a look-up, also one by a `ToSocketAddrs` of your own, runs on a stack of 256 KiB if the goroutine's stack has
/// less left: the C library puts up to 64 KiB of addresses there. Call this instead of std's `to_socket_addrs`: for a name of
/// some 1000 addresses that function overflows a goroutine's stack, which ends the process.
///
/// ```
/// use gmp::net::{UdpSocket, lookup};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let server = lookup(("localhost", 9))?.find(|addr| addr.is_ipv4()).unwrap();
///         let socket = UdpSocket::bind("127.0.0.1:0")?;
///         // No send looks the name up again.
///         for _ in 0..3 {
///             socket.send_to(b"hello", server)?;
///         }
///         Ok(())
///     })
/// }
/// # .unwrap();
/// ```
///
/// # Unwinds
/// When the wait in line is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind). A look-up that is under way is not ended.
///
/// # Errors
/// As with std; and if there is no stack for the look-up, for want of memory or because of
/// [`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes).
#[doc(alias = "LookupHost")]
#[doc(alias = "lookup_host")]
#[doc(alias = "to_socket_addrs")]
pub fn lookup<A: ToSocketAddrs>(addr: A) -> io::Result<A::Iter> {
    with_a_frame(resolve(&addr))
}

/// Looks a name up as [`lookup`], if the look-up can begin by `deadline`. A look-up that is under way is not ended. If the
/// deadline has passed, no name server is asked.
///
/// ```
/// use std::io::ErrorKind;
/// use std::time::Instant;
///
/// let late = gmp::net::lookup_deadline(("localhost", 80), Instant::now()).unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::TimedOut);
/// ```
///
/// # Unwinds
/// As [`lookup`]; see [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`lookup`]; `TimedOut` after `deadline`.
pub fn lookup_deadline<A: ToSocketAddrs>(addr: A, deadline: Instant) -> io::Result<A::Iter> {
    with_a_frame(resolve_until(&addr, Some(Active::nanos(deadline))))
}

/// Returns the addresses of `addr`. A goroutine that may have to look a name up waits in line for that
/// ([`max_lookups`](crate::RuntimeBuilder::max_lookups)), and blocks no other goroutine meanwhile.
///
/// # Errors
/// As with std; and the error of the context under which the caller runs, if that context ends the wait in line. A look-up that
/// is under way is not ended.
pub(crate) fn resolve<A: ToSocketAddrs>(addr: &A) -> io::Result<A::Iter> {
    resolve_until(addr, None)
}

/// Does the same as `resolve`, if a look-up can begin by `until`. A look-up that is under way is not ended.
///
/// # Errors
/// As `resolve`; `TimedOut` after `until`.
pub(crate) fn resolve_until<A: ToSocketAddrs>(addr: &A, until: Option<Nanos>) -> io::Result<A::Iter> {
    if until.is_some_and(|until| until <= Active::now()) && is_a_name(addr) {
        return Err(timed_out());
    }
    resolve_behind(addr, |wait| wait(until))
}

/// Returns what `make` returns for the first of `addr`'s addresses for which it succeeds, or its last error. No address behind
/// that is asked for: an iterator of the program's own may take long for each, or have no end. After the look-up nothing
/// waits, so between two addresses the function looks whether a context is done.
///
/// # Errors
/// Those of `resolve`; `InvalidInput` if `addr` has no address; the context's error.
pub(crate) fn first_of<A: ToSocketAddrs, T>(
    addr: A,
    make: impl Fn(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in resolve(&addr)? {
        if last.is_some() {
            check_contexts()?;
        }
        match make(&addr) {
            Ok(made) => return Ok(made),
            // No further address will do.
            Err(closed) if is_closed(&closed) => return Err(closed),
            Err(refused) => last = Some(refused),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address to try")))
}

/// Does the same as `resolve`. `waits` waits in line, as with `Line::call_behind`.
///
/// # Errors
/// As with std, and those of `waits`.
pub(crate) fn resolve_behind<A: ToSocketAddrs>(
    addr: &A,
    waits: impl FnOnce(WaitInLine<'_>) -> io::Result<()>,
) -> io::Result<A::Iter> {
    match Sched::<Active>::current() {
        Some(sched) if is_a_name(addr) => {
            sched.lines.lookups.call_behind(waits, |_turn| with_room(sched, || addr.to_socket_addrs()))
        }
        _ => addr.to_socket_addrs(),
    }
}

/// Returns `true` if `addr` may have to be looked up.
fn is_a_name<A: ToSocketAddrs>(addr: &A) -> bool {
    may_be_a_name::<A>() && !is_literal(addr)
}

/// Calls `look_up` on a stack that has room enough for it. The caller is a goroutine of `sched`.
///
/// # Errors
/// Those of `look_up`; and if no such stack can be had.
fn with_room<R>(sched: &Sched<Active>, look_up: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    if Active::left().is_some_and(|left| left >= ENOUGH) {
        return look_up();
    }
    let (mut look_up, mut found) = (Some(look_up), None);
    Sched::call_on(Some(sched), STACK, &mut || found = look_up.take().map(|look_up| look_up()))?;
    found.expect("with_room: it was called, once")
}

/// Returns `false` for the types that hold addresses and no name, which the types of their iterators show. An iterator of
/// another type is mistaken for one of these only if its type has the same name; its look-up would then block the thread
/// unannounced.
fn may_be_a_name<A: ToSocketAddrs>() -> bool {
    let addresses = type_name::<A::Iter>();
    addresses != type_name::<option::IntoIter<SocketAddr>>()
        && addresses != type_name::<Cloned<slice::Iter<'static, SocketAddr>>>()
}

/// Returns `true` if `addr` is one of std's types of text, and the text is an address: std parses a text before it looks the
/// text up. The text of other types is not known here, so they are taken for names.
fn is_literal<A>(addr: &A) -> bool {
    /// `addr`, and references to it, as std takes those.
    fn is<T: Text + 'static, A>(addr: &A) -> bool {
        is_just::<T, A>(addr) || is_just::<&T, A>(addr) || is_just::<&&T, A>(addr)
    }
    fn is_just<T: Text + 'static, A>(addr: &A) -> bool {
        // SAFETY: `A` is `T` except for lifetimes, and `is_address` relies on none of them.
        id_of::<A>() == TypeId::of::<T>() && unsafe { &*(&raw const *addr).cast::<T>() }.is_address()
    }
    is::<&str, A>(addr) || is::<String, A>(addr) || is::<(&str, u16), A>(addr) || is::<(String, u16), A>(addr)
}

/// A text that std parses before it looks the text up.
trait Text {
    fn is_address(&self) -> bool;
}

impl Text for &str {
    fn is_address(&self) -> bool {
        self.parse::<SocketAddr>().is_ok()
    }
}

impl Text for String {
    fn is_address(&self) -> bool {
        self.parse::<SocketAddr>().is_ok()
    }
}

impl Text for (&str, u16) {
    fn is_address(&self) -> bool {
        self.0.parse::<IpAddr>().is_ok()
    }
}

impl Text for (String, u16) {
    fn is_address(&self) -> bool {
        self.0.parse::<IpAddr>().is_ok()
    }
}

impl<T: Text> Text for &T {
    fn is_address(&self) -> bool {
        T::is_address(self)
    }
}

/// Returns the id of a type as if its lifetimes were `'static`.
fn id_of<A>() -> TypeId {
    trait Id {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<A> Id for PhantomData<A> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<A>()
        }
    }
    let of: &dyn Id = &PhantomData::<A>;
    // SAFETY: the table of the object is the same for each lifetime, and `id` reads nothing of the object.
    unsafe { std::mem::transmute::<&dyn Id, &(dyn Id + 'static)>(of) }.id()
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

    /// Fails by a hand-off for each datagram that is sent to an address, or by a name that is looked up without one.
    #[test]
    fn names_are_told_from_addresses() {
        assert!(!may_be_a_name::<SocketAddr>());
        assert!(!may_be_a_name::<SocketAddrV4>());
        assert!(!may_be_a_name::<(IpAddr, u16)>());
        assert!(!may_be_a_name::<(Ipv4Addr, u16)>());
        assert!(!may_be_a_name::<&[SocketAddr]>());
        assert!(!may_be_a_name::<&&SocketAddr>());
        assert!(may_be_a_name::<&str>());
        assert!(may_be_a_name::<String>());
        assert!(may_be_a_name::<(&str, u16)>());
        assert!(may_be_a_name::<(String, u16)>());
        assert!(may_be_a_name::<&&(String, u16)>());
    }

    /// Fails by an address that waits behind the names, or by a name that is looked up out of line.
    #[test]
    fn texts_that_are_addresses_are_told_from_names() {
        for (host, whole) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
            assert!(is_literal(&whole) && is_literal(&&whole) && is_literal(&&&whole));
            assert!(is_literal(&whole.to_owned()) && is_literal(&&whole.to_owned()));
            assert!(is_literal(&(host, 80_u16)) && is_literal(&&&(host, 80_u16)));
            assert!(is_literal(&(host.to_owned(), 80_u16)) && is_literal(&&(host.to_owned(), 80_u16)));
            // Std reads these as names.
            assert!(!is_literal(&host) && !is_literal(&(whole, 80_u16)));
        }
        for name in ["localhost:80", "127.1:80", "", "127.0.0.1:http"] {
            assert!(!is_literal(&name) && !is_literal(&name.to_owned()) && !is_literal(&(name, 80_u16)));
        }
        // A text of another type, which means something else.
        struct Spells<'a>(&'a str);
        assert!(!is_literal(&Spells("127.0.0.1:80")) && Spells("a").0.len() == 1);
    }
}
