//! Name look-ups. Each blocks a thread, so a bound says how many may be under way at once.

use crate::host::{Active, Clock};
use crate::net::limit::timed_out;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::any::type_name;
use std::io;
use std::iter::Cloned;
use std::net::{SocketAddr, ToSocketAddrs};
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
    if !may_be_a_name::<A>() {
        return addr.to_socket_addrs();
    }
    if until.is_some_and(|until| until <= Active::now()) {
        return Err(timed_out());
    }
    match Sched::<Active>::current() {
        Some(sched) => sched.lines.lookups.call_until(until, |_turn| addr.to_socket_addrs()),
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
}
