//! The traits of descriptors, which all socket types implement alike.

/// Implements `Debug`, and the traits of descriptors that sockets and the ends of pipes have alike.
macro_rules! handle_traits {
    ($name:ident, $std:ty) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl AsRawFd for $name {
            /// Returns the descriptor, or -1 if the handle is closed.
            fn as_raw_fd(&self) -> RawFd {
                self.0.raw_fd()
            }
        }

        impl IntoRawFd for $name {
            /// The descriptor stays in non-blocking mode.
            ///
            /// # Panics
            /// If the handle is closed.
            fn into_raw_fd(self) -> RawFd {
                self.0.into_inner().into_raw_fd()
            }
        }

        impl From<OwnedFd> for $name {
            /// Takes the descriptor for one of this kind, and puts it into non-blocking mode. A descriptor of another kind is
            /// not refused here: the system calls that it does not support return their errors.
            ///
            /// # Panics
            /// If the kernel refuses that, as it does for a descriptor of `O_PATH`; for none that can be read or written.
            fn from(fd: OwnedFd) -> Self {
                <$std>::from(fd).into()
            }
        }

        impl From<$name> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            ///
            /// # Panics
            /// If the handle is closed.
            fn from(handle: $name) -> OwnedFd {
                handle.0.into_inner().into()
            }
        }
    };
}

/// Implements these, and the conversions from and to std's type, for a socket. `$of_kind` returns `true` if a
/// descriptor that was made outside is a socket of this kind: only then does a short read say that nothing is left.
macro_rules! socket_traits {
    ($name:ident, $std:ty, $of_kind:expr) => {
        crate::net::traits::handle_traits!($name, $std);

        impl AsFd for $name {
            /// A descriptor that was lent out keeps its number as long as the socket lives: `close` puts a dead socket, of
            /// which the process has one from the first loan on, in the descriptor's place. If no descriptor was left for the
            /// dead socket, the descriptor stays open until the socket is dropped, and `close` shuts the connection down, for
            /// duplicates of the borrowed descriptor too. But `close` does not shut down a connection that may have other
            /// descriptors (after a `try_clone`, or made from a descriptor of unknown origin); the peer then sees the end when
            /// the socket is dropped.
            ///
            /// # Panics
            /// If the socket is closed.
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl FromRawFd for $name {
            /// # Safety
            /// As [`FromRawFd::from_raw_fd`].
            ///
            /// # Panics
            /// If the descriptor is not open, or was opened with `O_PATH`.
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: by this function's contract.
                unsafe { <$std>::from_raw_fd(fd) }.into()
            }
        }

        impl From<$std> for $name {
            /// Puts std's socket into non-blocking mode. This handle takes over its timeouts (`SO_RCVTIMEO`, `SO_SNDTIMEO`); a
            /// listener's timeout holds for each `accept`.
            ///
            /// # Panics
            /// If the kernel refuses that, as it does for a descriptor of `O_PATH`; for none that can be read or written.
            fn from(inner: $std) -> Self {
                inner.set_nonblocking(true).expect("from: the descriptor's mode can't be changed");
                let known = $of_kind(inner.as_fd());
                let timeouts = crate::net::sys::timeouts(inner.as_fd());
                $name(Socket::of_outside(inner, known).with_timeouts(timeouts))
            }
        }

        impl From<$name> for $std {
            /// Puts the socket back into blocking mode. That is the mode of the connection, not of the handle: a `try_clone`
            /// that goroutines still use would block their threads. The kernel's timeouts are those that the socket had before
            /// it came here: the timeouts of this handle are the library's, and end with the handle.
            ///
            /// # Panics
            /// If the descriptor's mode can't be changed, and if the socket is closed.
            fn from(socket: $name) -> Self {
                let inner = socket.0.into_inner();
                inner.set_nonblocking(false).expect("from: the descriptor's mode can't be changed");
                inner
            }
        }
    };
}

pub(crate) use {handle_traits, socket_traits};
