//! Messages of Unix sockets: descriptors, credentials, and what stands behind them.

use super::unix::{abstract_name, bind_to, call_with};
use common::crew::everyone;
use common::everywhere;
use gmp::net::{TcpStream, UnixDatagram, UnixListener, UnixStream};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// Sends by the system call alone, which neither parks nor takes an event.
fn put(far: &impl AsRawFd, bytes: &[u8], flags: libc::c_int) -> io::Result<()> {
    let (at, flags) = (bytes.as_ptr().cast(), flags | libc::MSG_NOSIGNAL);
    // SAFETY: the bytes live through the call.
    let sent = unsafe { libc::send(far.as_raw_fd(), at, bytes.len(), flags) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(part) => panic!("{part} of {} bytes fit", bytes.len()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Checks that data which the kernel does not join is read in several short reads, though there is only one event. `send` puts
/// "one", a separator, and "two" into the stream.
fn both_are_read<S: Sync>(near: S, far: OwnedFd, send: impl Fn(&OwnedFd))
where
    for<'a> &'a S: Read,
{
    let read = || {
        let mut buffer = [0; 64];
        let len = (&near).read(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let waits_for = |text: &'static str| {
        gmp::scope(|scope| {
            let waits = scope.go(read);
            gmp::yield_now();
            put(&far, text.as_bytes(), 0).unwrap();
            assert_eq!(waits.join().unwrap(), text);
        });
    };
    // The stream is in the poller from now on, and has been drained.
    waits_for("first");
    send(&far);
    // The poller has taken all events of the data that was sent: the event of this stream came later.
    let (here, there) = UnixStream::pair().unwrap();
    gmp::scope(|scope| {
        let passed = scope.go(|| (&here).read(&mut [0; 1]).unwrap());
        gmp::yield_now();
        put(&there, b"!", 0).unwrap();
        assert_eq!(passed.join().unwrap(), 1);
    });
    assert_eq!([read(), read()], ["one", "two"]);
    waits_for("last");
}

/// Fails by a hang when a read that ends at the message with the descriptor, and so is short, counts as the last.
#[test]
fn a_message_with_a_descriptor_hides_nothing_behind_it() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            both_are_read(near, far.into(), |far| {
                let sender = UnixStream::from(far.try_clone().unwrap());
                sender.send_with_fds(&[IoSlice::new(b"one")], &[io::stderr().as_fd()]).unwrap();
                put(far, b"two", 0).unwrap();
            });
        });
    });
}

/// On a socket that asks for the senders' credentials, the kernel does not join the data of two processes. Fails by a hang.
#[test]
fn another_sender_hides_nothing_behind_the_first() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            set_option(&near, libc::SO_PASSCRED).unwrap();
            both_are_read(near, far.into(), |far| {
                put(far, b"one", 0).unwrap();
                let output = Stdio::from(far.try_clone().unwrap());
                assert!(Command::new("printf").arg("two").stdout(output).status().unwrap().success());
            });
        });
    });
}

/// A read stops short at the urgent byte. Fails by a hang.
#[test]
fn an_urgent_byte_hides_nothing_behind_it() {
    let (here, _there) = UnixStream::pair().unwrap();
    if put(&here, b"?", libc::MSG_OOB).is_err() {
        common::skipped("this kernel knows no urgent data on Unix sockets");
        return;
    }
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            both_are_read(near, far.into(), |far| {
                put(far, b"one", 0).unwrap();
                put(far, b"!", libc::MSG_OOB).unwrap();
                put(far, b"two", 0).unwrap();
            });
        });
    });
}

fn pair_of_messages() -> [OwnedFd; 2] {
    let (mut fds, kind) = ([0; 2], libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC);
    // SAFETY: room for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) };
    assert_eq!(made, 0);
    // SAFETY: both descriptors are new, and nothing else owns them.
    fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn one_and_two(far: &OwnedFd) {
    put(far, b"one", 0).unwrap();
    put(far, b"two", 0).unwrap();
}

/// A stream may be made of a descriptor that is no stream: then each read ends with a message. Fails by a hang.
#[test]
fn messages_of_another_kind_of_socket_hide_nothing() {
    everywhere(|rt| {
        rt.run(|| {
            for clone in [false, true] {
                let [near, far] = pair_of_messages();
                let near = UnixStream::from(near);
                let near = if clone { near.try_clone().unwrap() } else { near };
                both_are_read(near, far, one_and_two);
            }
            let [near, far] = pair_of_messages();
            both_are_read(TcpStream::from(near), far, one_and_two);
        });
    });
}

/// The same with connections of a listener that was made in that way.
#[test]
fn messages_of_what_such_a_listener_accepts_hide_nothing() {
    everywhere(|rt| {
        rt.run(|| {
            let address = abstract_name();
            let make = || {
                // SAFETY: no pointers.
                let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
                assert!(fd >= 0);
                // SAFETY: the descriptor is new, and nothing else owns it.
                unsafe { OwnedFd::from_raw_fd(fd) }
            };
            let (listens, far) = (make(), make());
            bind_to(&listens, &address);
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::listen(listens.as_raw_fd(), 8) }, 0);
            let listener = UnixListener::from(listens);
            call_with(&far, &address, libc::connect);
            let (near, _) = listener.accept().unwrap();
            both_are_read(near, far, one_and_two);
        });
    });
}

fn set_option(socket: &impl AsRawFd, name: libc::c_int) -> io::Result<()> {
    let on = 1_i32;
    let (at, len) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
    // SAFETY: the option's value lives through the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, at, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// libc has no names for these options.
const SO_PASSPIDFD: libc::c_int = 76;

const SO_TIMESTAMPNS: libc::c_int = 35;

/// Fails when there is no room for descriptors beside the sender's credentials, or when a loss is reported although there is
/// none.
#[test]
fn the_most_descriptors_come_beside_the_senders_name() {
    for others in [&[][..], &[SO_PASSPIDFD], &[SO_PASSPIDFD, SO_TIMESTAMPNS]] {
        everyone(|crew| {
            crew.run(move || {
                let (near, far) = UnixDatagram::pair().unwrap();
                set_option(&far, libc::SO_PASSCRED).unwrap();
                if others.iter().any(|&name| set_option(&far, name).is_err()) {
                    common::skipped("this kernel knows less of senders");
                    return;
                }
                let file = io::stderr();
                near.send_with_fds(&[IoSlice::new(b"many")], &[file.as_fd(); 253]).unwrap();
                let (mut bytes, mut fds) = ([0; 16], Vec::new());
                let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
                assert_eq!((got.len(), fds.len(), got.lost_fds()), (4, 253, false));
            });
        });
    }
}

/// On a socket that asks for it, each message brings a descriptor of the sender's process. Fails when such a descriptor has no
/// owner and stays open.
#[test]
fn a_descriptor_of_the_senders_process_is_closed() {
    if !common::child::is_child() {
        common::child::passes("a_descriptor_of_the_senders_process_is_closed", &[]);
        return;
    }
    everyone(|crew| {
        let (near, far) = UnixStream::pair().unwrap();
        if let Err(refused) = set_option(&far, SO_PASSPIDFD) {
            common::skipped(refused);
            return;
        }
        crew.run(move || {
            for _ in 0..4 {
                near.send_with_fds(&[IoSlice::new(b"one")], &[io::stderr().as_fd()]).unwrap();
                let (mut bytes, mut fds) = ([0; 3], Vec::new());
                let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
                assert_eq!((got.len(), fds.len(), got.lost_fds()), (3, 1, false));
                drop(fds);
                put(&near, b"two", 0).unwrap();
                assert_eq!((&far).read(&mut bytes).unwrap(), 3);
            }
            let links = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = links.filter_map(|fd| fd.ok()?.path().read_link().ok());
            assert_eq!(links.filter(|link| link.to_string_lossy().contains("pidfd")).count(), 0);
        });
    });
}
