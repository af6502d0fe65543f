//! Name look-ups. Each blocks a thread, so a bound says how many may be under way at once.

use crate::host::{Active, Clock};
use crate::net::limit::timed_out;
use crate::runtime::lines::WaitInLine;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::any::{TypeId, type_name};
use std::io;
use std::iter::Cloned;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::{option, slice};

/// Returns the addresses of `addr`. A goroutine that may have to look a name up waits in line for that
/// ([`max_lookups`](crate::RuntimeBuilder::max_lookups)), and blocks no other goroutine meanwhile.
///
/// # Errors
/// As with std; and the context's, under which the caller runs, when the context ends the wait in line. A look-up that is under
/// way is not ended.
pub(crate) fn resolve<A: ToSocketAddrs>(addr: &A) -> io::Result<A::Iter> {
    resolve_until(addr, None)
}

/// As `resolve`, if a look-up can begin by then. A look-up that is under way is not ended.
///
/// # Errors
/// As `resolve`; `TimedOut` after that time.
pub(crate) fn resolve_until<A: ToSocketAddrs>(addr: &A, until: Option<Nanos>) -> io::Result<A::Iter> {
    if !may_be_a_name::<A>() || is_literal(addr) {
        return addr.to_socket_addrs();
    }
    if until.is_some_and(|until| until <= Active::now()) {
        return Err(timed_out());
    }
    resolve_behind(addr, |wait| wait(until))
}

/// As `resolve`. `waits` waits in line, as with `Line::call_behind`.
///
/// # Errors
/// As with std, and those of `waits`.
pub(crate) fn resolve_behind<A: ToSocketAddrs>(
    addr: &A,
    waits: impl FnOnce(WaitInLine<'_>) -> io::Result<()>,
) -> io::Result<A::Iter> {
    if !may_be_a_name::<A>() || is_literal(addr) {
        return addr.to_socket_addrs();
    }
    match Sched::<Active>::current() {
        Some(sched) => sched.lines.lookups.call_behind(waits, |_turn| addr.to_socket_addrs()),
        None => addr.to_socket_addrs(),
    }
}

/// Returns `false` for the types whose addresses are at hand, which std tells by the type of their iterators. The iterator
/// of another type would have to have the same name to be taken for one of these; its look-up would block the thread
/// unannounced.
fn may_be_a_name<A: ToSocketAddrs>() -> bool {
    let addresses = type_name::<A::Iter>();
    addresses != type_name::<option::IntoIter<SocketAddr>>()
        && addresses != type_name::<Cloned<slice::Iter<'static, SocketAddr>>>()
}

/// Returns `true` if `addr` is one of std's types of text, and the text is an address: std parses a text before it looks the
/// text up. Other types, whose text is not known here, wait in line.
fn is_literal<A>(addr: &A) -> bool {
    /// `addr`, and references to it, as std takes those.
    fn is<T: Text + 'static, A>(addr: &A) -> bool {
        is_just::<T, A>(addr) || is_just::<&T, A>(addr) || is_just::<&&T, A>(addr)
    }
    fn is_just<T: Text + 'static, A>(addr: &A) -> bool {
        // SAFETY: `A` is `T`, but for lifetimes, of which `is_address` relies on none.
        id_of::<A>() == TypeId::of::<T>() && unsafe { &*(&raw const *addr).cast::<T>() }.is_address()
    }
    is::<&str, A>(addr) || is::<String, A>(addr) || is::<(&str, u16), A>(addr) || is::<(String, u16), A>(addr)
}

/// What std parses first.
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
