//! std's sockets and the library's: one table is compared with both, and with std's own documentation.

use std::collections::BTreeSet;
use std::process::Command;
use std::{env, fs};

/// Compiles the table for the sockets that the module around it has in scope.
macro_rules! held {
    (
        methods { $($of:ident::$name:ident $(<$generic:ident>)?: $signature:ty;)* }
        traits { $($who:ty: $trait:path;)* }
        addresses { $($address:ident)* }
    ) => {
        #[expect(clippy::type_complexity, reason = "the types are std's signatures")]
        pub fn methods<A: ToSocketAddrs, P: AsRef<Path>>() {
            $(let _: $signature = $of::$name $(::<$generic>)?;)*
        }
        pub fn traits() {
            $({
                fn has<T: $trait>() {}
                has::<$who>();
            })*
        }
        pub fn addresses() {
            $(let _: fn($address) -> std::net::$address = |address| address;)*
        }
        pub const METHODS: &[&str] = &[$(concat!(stringify!($of), "::", stringify!($name))),*];
        pub const TRAITS: &[&str] = &[$(concat!(stringify!($who), ": ", stringify!($trait))),*];
        pub const ADDRESSES: &[&str] = &[$(stringify!($address)),*];
    };
}

macro_rules! both {
    ($($table:tt)*) => {
        mod of_std {
            use super::used::*;
            use std::net::*;
            use std::os::linux::net::TcpStreamExt;
            use std::os::unix::net::{self as unix, UnixDatagram, UnixListener, UnixStream};
            held! { $($table)* }
        }
        mod of_gmp {
            use super::used::*;
            use gmp::net::*;
            held! { $($table)* }
        }
    };
}

/// The names in the table that are no sockets.
mod used {
    pub use std::fmt::Debug;
    pub use std::io::{Error, Read, Result, Write};
    pub use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    pub use std::panic::{RefUnwindSafe, UnwindSafe};
    pub use std::path::Path;
    pub use std::time::Duration;
}

both! {
    methods {
        TcpStream::connect<A>: fn(A) -> Result<TcpStream>;
        TcpStream::connect_timeout: fn(&SocketAddr, Duration) -> Result<TcpStream>;
        TcpStream::peer_addr: fn(&TcpStream) -> Result<SocketAddr>;
        TcpStream::local_addr: fn(&TcpStream) -> Result<SocketAddr>;
        TcpStream::shutdown: fn(&TcpStream, Shutdown) -> Result<()>;
        TcpStream::try_clone: fn(&TcpStream) -> Result<TcpStream>;
        TcpStream::set_read_timeout: fn(&TcpStream, Option<Duration>) -> Result<()>;
        TcpStream::set_write_timeout: fn(&TcpStream, Option<Duration>) -> Result<()>;
        TcpStream::read_timeout: fn(&TcpStream) -> Result<Option<Duration>>;
        TcpStream::write_timeout: fn(&TcpStream) -> Result<Option<Duration>>;
        TcpStream::peek: fn(&TcpStream, &mut [u8]) -> Result<usize>;
        TcpStream::set_nodelay: fn(&TcpStream, bool) -> Result<()>;
        TcpStream::nodelay: fn(&TcpStream) -> Result<bool>;
        TcpStream::set_ttl: fn(&TcpStream, u32) -> Result<()>;
        TcpStream::ttl: fn(&TcpStream) -> Result<u32>;
        TcpStream::take_error: fn(&TcpStream) -> Result<Option<Error>>;
        TcpStream::quickack: fn(&TcpStream) -> Result<bool>;
        TcpStream::set_quickack: fn(&TcpStream, bool) -> Result<()>;
        TcpListener::bind<A>: fn(A) -> Result<TcpListener>;
        TcpListener::local_addr: fn(&TcpListener) -> Result<SocketAddr>;
        TcpListener::try_clone: fn(&TcpListener) -> Result<TcpListener>;
        TcpListener::accept: fn(&TcpListener) -> Result<(TcpStream, SocketAddr)>;
        TcpListener::incoming: fn(&TcpListener) -> Incoming<'_>;
        TcpListener::set_ttl: fn(&TcpListener, u32) -> Result<()>;
        TcpListener::ttl: fn(&TcpListener) -> Result<u32>;
        TcpListener::take_error: fn(&TcpListener) -> Result<Option<Error>>;
        UdpSocket::bind<A>: fn(A) -> Result<UdpSocket>;
        UdpSocket::recv_from: fn(&UdpSocket, &mut [u8]) -> Result<(usize, SocketAddr)>;
        UdpSocket::peek_from: fn(&UdpSocket, &mut [u8]) -> Result<(usize, SocketAddr)>;
        UdpSocket::send_to<A>: fn(&UdpSocket, &[u8], A) -> Result<usize>;
        UdpSocket::peer_addr: fn(&UdpSocket) -> Result<SocketAddr>;
        UdpSocket::local_addr: fn(&UdpSocket) -> Result<SocketAddr>;
        UdpSocket::try_clone: fn(&UdpSocket) -> Result<UdpSocket>;
        UdpSocket::set_read_timeout: fn(&UdpSocket, Option<Duration>) -> Result<()>;
        UdpSocket::set_write_timeout: fn(&UdpSocket, Option<Duration>) -> Result<()>;
        UdpSocket::read_timeout: fn(&UdpSocket) -> Result<Option<Duration>>;
        UdpSocket::write_timeout: fn(&UdpSocket) -> Result<Option<Duration>>;
        UdpSocket::set_broadcast: fn(&UdpSocket, bool) -> Result<()>;
        UdpSocket::broadcast: fn(&UdpSocket) -> Result<bool>;
        UdpSocket::set_multicast_loop_v4: fn(&UdpSocket, bool) -> Result<()>;
        UdpSocket::multicast_loop_v4: fn(&UdpSocket) -> Result<bool>;
        UdpSocket::set_multicast_ttl_v4: fn(&UdpSocket, u32) -> Result<()>;
        UdpSocket::multicast_ttl_v4: fn(&UdpSocket) -> Result<u32>;
        UdpSocket::set_multicast_loop_v6: fn(&UdpSocket, bool) -> Result<()>;
        UdpSocket::multicast_loop_v6: fn(&UdpSocket) -> Result<bool>;
        UdpSocket::set_ttl: fn(&UdpSocket, u32) -> Result<()>;
        UdpSocket::ttl: fn(&UdpSocket) -> Result<u32>;
        UdpSocket::join_multicast_v4: fn(&UdpSocket, &Ipv4Addr, &Ipv4Addr) -> Result<()>;
        UdpSocket::join_multicast_v6: fn(&UdpSocket, &Ipv6Addr, u32) -> Result<()>;
        UdpSocket::leave_multicast_v4: fn(&UdpSocket, &Ipv4Addr, &Ipv4Addr) -> Result<()>;
        UdpSocket::leave_multicast_v6: fn(&UdpSocket, &Ipv6Addr, u32) -> Result<()>;
        UdpSocket::take_error: fn(&UdpSocket) -> Result<Option<Error>>;
        UdpSocket::connect<A>: fn(&UdpSocket, A) -> Result<()>;
        UdpSocket::send: fn(&UdpSocket, &[u8]) -> Result<usize>;
        UdpSocket::recv: fn(&UdpSocket, &mut [u8]) -> Result<usize>;
        UdpSocket::peek: fn(&UdpSocket, &mut [u8]) -> Result<usize>;
        UnixStream::connect<P>: fn(P) -> Result<UnixStream>;
        UnixStream::connect_addr: fn(&unix::SocketAddr) -> Result<UnixStream>;
        UnixStream::pair: fn() -> Result<(UnixStream, UnixStream)>;
        UnixStream::try_clone: fn(&UnixStream) -> Result<UnixStream>;
        UnixStream::local_addr: fn(&UnixStream) -> Result<unix::SocketAddr>;
        UnixStream::peer_addr: fn(&UnixStream) -> Result<unix::SocketAddr>;
        UnixStream::set_read_timeout: fn(&UnixStream, Option<Duration>) -> Result<()>;
        UnixStream::set_write_timeout: fn(&UnixStream, Option<Duration>) -> Result<()>;
        UnixStream::read_timeout: fn(&UnixStream) -> Result<Option<Duration>>;
        UnixStream::write_timeout: fn(&UnixStream) -> Result<Option<Duration>>;
        UnixStream::take_error: fn(&UnixStream) -> Result<Option<Error>>;
        UnixStream::shutdown: fn(&UnixStream, Shutdown) -> Result<()>;
        UnixListener::bind<P>: fn(P) -> Result<UnixListener>;
        UnixListener::bind_addr: fn(&unix::SocketAddr) -> Result<UnixListener>;
        UnixListener::accept: fn(&UnixListener) -> Result<(UnixStream, unix::SocketAddr)>;
        UnixListener::try_clone: fn(&UnixListener) -> Result<UnixListener>;
        UnixListener::local_addr: fn(&UnixListener) -> Result<unix::SocketAddr>;
        UnixListener::take_error: fn(&UnixListener) -> Result<Option<Error>>;
        UnixListener::incoming: fn(&UnixListener) -> unix::Incoming<'_>;
        UnixDatagram::bind<P>: fn(P) -> Result<UnixDatagram>;
        UnixDatagram::bind_addr: fn(&unix::SocketAddr) -> Result<UnixDatagram>;
        UnixDatagram::unbound: fn() -> Result<UnixDatagram>;
        UnixDatagram::pair: fn() -> Result<(UnixDatagram, UnixDatagram)>;
        UnixDatagram::connect<P>: fn(&UnixDatagram, P) -> Result<()>;
        UnixDatagram::connect_addr: fn(&UnixDatagram, &unix::SocketAddr) -> Result<()>;
        UnixDatagram::try_clone: fn(&UnixDatagram) -> Result<UnixDatagram>;
        UnixDatagram::local_addr: fn(&UnixDatagram) -> Result<unix::SocketAddr>;
        UnixDatagram::peer_addr: fn(&UnixDatagram) -> Result<unix::SocketAddr>;
        UnixDatagram::recv_from: fn(&UnixDatagram, &mut [u8]) -> Result<(usize, unix::SocketAddr)>;
        UnixDatagram::recv: fn(&UnixDatagram, &mut [u8]) -> Result<usize>;
        UnixDatagram::send_to<P>: fn(&UnixDatagram, &[u8], P) -> Result<usize>;
        UnixDatagram::send_to_addr: fn(&UnixDatagram, &[u8], &unix::SocketAddr) -> Result<usize>;
        UnixDatagram::send: fn(&UnixDatagram, &[u8]) -> Result<usize>;
        UnixDatagram::set_read_timeout: fn(&UnixDatagram, Option<Duration>) -> Result<()>;
        UnixDatagram::set_write_timeout: fn(&UnixDatagram, Option<Duration>) -> Result<()>;
        UnixDatagram::read_timeout: fn(&UnixDatagram) -> Result<Option<Duration>>;
        UnixDatagram::write_timeout: fn(&UnixDatagram) -> Result<Option<Duration>>;
        UnixDatagram::take_error: fn(&UnixDatagram) -> Result<Option<Error>>;
        UnixDatagram::shutdown: fn(&UnixDatagram, Shutdown) -> Result<()>;
    }
    traits {
        TcpStream: AsFd;
        TcpStream: AsRawFd;
        TcpStream: Debug;
        TcpStream: From<OwnedFd>;
        OwnedFd: From<TcpStream>;
        TcpStream: FromRawFd;
        TcpStream: IntoRawFd;
        TcpStream: Read;
        &TcpStream: Read;
        TcpStream: Write;
        &TcpStream: Write;
        TcpStream: Send;
        TcpStream: Sync;
        TcpStream: Unpin;
        TcpStream: UnwindSafe;
        TcpStream: RefUnwindSafe;
        TcpListener: AsFd;
        TcpListener: AsRawFd;
        TcpListener: Debug;
        TcpListener: From<OwnedFd>;
        OwnedFd: From<TcpListener>;
        TcpListener: FromRawFd;
        TcpListener: IntoRawFd;
        TcpListener: Send;
        TcpListener: Sync;
        TcpListener: Unpin;
        TcpListener: UnwindSafe;
        TcpListener: RefUnwindSafe;
        Incoming<'_>: Debug;
        Incoming<'_>: Iterator<Item = Result<TcpStream>>;
        Incoming<'_>: std::iter::FusedIterator;
        Incoming<'_>: Send;
        Incoming<'_>: Sync;
        Incoming<'_>: Unpin;
        Incoming<'_>: UnwindSafe;
        Incoming<'_>: RefUnwindSafe;
        UdpSocket: AsFd;
        UdpSocket: AsRawFd;
        UdpSocket: Debug;
        UdpSocket: From<OwnedFd>;
        OwnedFd: From<UdpSocket>;
        UdpSocket: FromRawFd;
        UdpSocket: IntoRawFd;
        UdpSocket: Send;
        UdpSocket: Sync;
        UdpSocket: Unpin;
        UdpSocket: UnwindSafe;
        UdpSocket: RefUnwindSafe;
        UnixStream: AsFd;
        UnixStream: AsRawFd;
        UnixStream: Debug;
        UnixStream: From<OwnedFd>;
        OwnedFd: From<UnixStream>;
        UnixStream: FromRawFd;
        UnixStream: IntoRawFd;
        UnixStream: Read;
        &UnixStream: Read;
        UnixStream: Write;
        &UnixStream: Write;
        UnixStream: Send;
        UnixStream: Sync;
        UnixStream: Unpin;
        UnixStream: UnwindSafe;
        UnixStream: RefUnwindSafe;
        UnixListener: AsFd;
        UnixListener: AsRawFd;
        UnixListener: Debug;
        UnixListener: From<OwnedFd>;
        OwnedFd: From<UnixListener>;
        UnixListener: FromRawFd;
        &UnixListener: IntoIterator<Item = Result<UnixStream>>;
        UnixListener: IntoRawFd;
        UnixListener: Send;
        UnixListener: Sync;
        UnixListener: Unpin;
        UnixListener: UnwindSafe;
        UnixListener: RefUnwindSafe;
        unix::Incoming<'_>: Debug;
        unix::Incoming<'_>: Iterator<Item = Result<UnixStream>>;
        unix::Incoming<'_>: Send;
        unix::Incoming<'_>: Sync;
        unix::Incoming<'_>: Unpin;
        unix::Incoming<'_>: UnwindSafe;
        unix::Incoming<'_>: RefUnwindSafe;
        UnixDatagram: AsFd;
        UnixDatagram: AsRawFd;
        UnixDatagram: Debug;
        UnixDatagram: From<OwnedFd>;
        OwnedFd: From<UnixDatagram>;
        UnixDatagram: FromRawFd;
        UnixDatagram: IntoRawFd;
        UnixDatagram: Send;
        UnixDatagram: Sync;
        UnixDatagram: Unpin;
        UnixDatagram: UnwindSafe;
        UnixDatagram: RefUnwindSafe;
    }
    addresses {
        AddrParseError
        IpAddr
        Ipv4Addr
        Ipv6Addr
        Shutdown
        SocketAddr
        SocketAddrV4
        SocketAddrV6
    }
}

/// The stable items of std that the library lacks, each with the reason.
const NOT_WITH_US: &[(&str, &str)] = &[
    ("TcpStream::set_nonblocking", "the library's own; here and below"),
    ("TcpListener::set_nonblocking", ""),
    ("UdpSocket::set_nonblocking", ""),
    ("UnixStream::set_nonblocking", ""),
    ("UnixListener::set_nonblocking", ""),
    ("UnixDatagram::set_nonblocking", ""),
    (
        "TcpListener::set_only_v6",
        "deprecated, as it is too late for a socket that is bound; `ListenConfig::only_v6`",
    ),
    ("TcpListener::only_v6", "deprecated"),
    ("TcpStream: TcpStreamExt", "its calls are `TcpStream`'s own: the trait is sealed"),
    ("UnixStream: UnixSocketExt", "none of its calls is stable"),
    ("UnixDatagram: UnixSocketExt", "as above"),
];

/// The pages of std's documentation that describe the sockets.
const PAGES: [(&str, &str); 6] = [
    ("TcpStream", "net"),
    ("TcpListener", "net"),
    ("UdpSocket", "net"),
    ("UnixStream", "os/unix/net"),
    ("UnixListener", "os/unix/net"),
    ("UnixDatagram", "os/unix/net"),
];

/// Returns the text without its tags.
fn plain(html: &str) -> String {
    let text: String =
        html.split('<').map(|part| part.split_once('>').map_or(part, |(_tag, text)| text)).collect();
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&#39;", "'")
}

/// Returns the stable calls and traits of a page, in the words of the table.
fn documented(of: &str, page: &str) -> Vec<String> {
    let traits_at = page.find("id=\"trait-implementations-list\"").expect("the traits");
    let auto_at = page.find("id=\"synthetic-implementations-list\"").expect("the auto traits");
    let blanket_at = page.find("id=\"blanket-implementations-list\"").expect("the rest");
    let mut found = Vec::new();
    // The name of each item is followed by its remarks, and then by its text.
    let is_here = |after: &str| {
        let said = after.split_once("</summary>").map_or(after, |(said, _)| said);
        !said.contains("stab unstable") && !said.contains("Windows")
    };
    for part in page[..traits_at].split("<section id=\"method.").skip(1) {
        let name = part.split('"').next().unwrap();
        if is_here(part) {
            found.push(format!("{of}::{name}"));
        }
    }
    for part in page[traits_at..blanket_at].split("<section id=\"impl-").skip(1) {
        let header = part.split_once("<h3 class=\"code-header\">").expect("a header").1;
        let header = plain(header.split("</h3>").next().unwrap()).replace("<'a>", "").replace("'a ", "");
        let (of_what, who) =
            header.strip_prefix("impl ").expect("an impl").split_once(" for ").expect("a trait");
        // These traits are the compiler's, and no program can name them.
        if is_here(part) && of_what != "Freeze" && of_what != "UnsafeUnpin" {
            found.push(format!("{who}: {of_what}"));
        }
    }
    assert!(traits_at < auto_at && found.len() > 20, "another form than it was: {found:?}");
    found
}

/// Fails to compile when a call is missing or has another signature, or a trait or an address is missing.
#[test]
fn what_std_has_is_there() {
    of_std::methods::<&str, &str>();
    of_std::traits();
    of_std::addresses();
    of_gmp::methods::<&str, &str>();
    of_gmp::traits();
    of_gmp::addresses();
    assert_eq!(of_std::METHODS, of_gmp::METHODS);
    assert_eq!((of_std::TRAITS, of_std::ADDRESSES), (of_gmp::TRAITS, of_gmp::ADDRESSES));
}

/// Fails when std has a call, a trait or an address that is neither in the table nor in the list of missing items, or when std
/// lacks the item of a row.
#[test]
fn the_table_is_whole() {
    let tell = |args: &[&str]| {
        let output = Command::new("rustc").args(args).output().ok()?;
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    // A later std may have more items than the std with which the library promises to keep up.
    let (version, promised) = (tell(&["--version"]).unwrap_or_default(), env!("CARGO_PKG_RUST_VERSION"));
    let std = tell(&["--print", "sysroot"]).unwrap_or_default() + "/share/doc/rust/html/std";
    if !version.starts_with(&format!("rustc {promised}")) || !fs::exists(format!("{std}/net")).unwrap() {
        common::skipped(format_args!("no documentation of std {promised}"));
        return;
    }
    let mut found = BTreeSet::new();
    for (of, folder) in PAGES {
        let page = fs::read_to_string(format!("{std}/{folder}/struct.{of}.html")).unwrap();
        found.extend(documented(of, &page));
    }
    let index = fs::read_to_string(format!("{std}/net/index.html")).unwrap();
    for item in index.split("<dt>").skip(1) {
        if !item.split("</dt>").next().unwrap().contains("stab unstable") {
            let name = item.split_once("href=\"").unwrap().1.split('.').nth(1).unwrap();
            found.insert(name.to_owned());
        }
    }
    // Other rows compare these with both.
    for name in ["TcpStream", "TcpListener", "UdpSocket", "Incoming", "ToSocketAddrs"] {
        assert!(found.remove(name), "{name}");
    }

    let mut known: BTreeSet<_> =
        of_std::METHODS.iter().chain(of_std::ADDRESSES).map(|name| (*name).to_owned()).collect();
    for row in of_std::TRAITS.iter().filter(|row| !row.contains("Incoming")) {
        // The page has the type of an iterator's items in another place.
        known.insert(row.split("<Item").next().unwrap().to_owned());
    }
    known.extend(NOT_WITH_US.iter().map(|(name, _)| (*name).to_owned()));
    // These are calls of a trait, and are on that trait's page.
    known.retain(|name| !name.ends_with("quickack"));
    let missing: Vec<_> = found.difference(&known).collect();
    let unknown: Vec<_> = known.difference(&found).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "std has {missing:#?}, the table {unknown:#?}");
}
