//! Methods that several socket types share: `close`, the limits of each direction, the options of IP, reading and writing.

use std::sync::atomic::{Ordering, compiler_fence};

/// Returns `result`. Keeps the caller's last call from becoming a tail call in an optimised build: after a tail call a dump
/// would show the library's inner function instead of the caller, which is the function that the user has called. Costs no
/// instruction.
#[inline(always)]
pub(crate) fn with_a_frame<T>(result: T) -> T {
    // SeqCst: for the compiler, without a partner.
    compiler_fence(Ordering::SeqCst);
    result
}

/// Implements `close`. The literals are parts of its documentation: what is closed, and in further lines what becomes of it.
macro_rules! closes {
    ([$($of:tt)*] $name:ty, $what:literal, $($then:literal),+) => {
        impl<$($of)*> $name {
            #[doc = concat!("Closes ", $what, ". Every call that waits, on any goroutine or thread, and every later call returns")]
            /// an error for which [`is_closed`](crate::net::is_closed) returns `true`.
            $(#[doc = $then])+
            ///
            /// # Unwinds
            /// Never: an interrupt does not end the wait.
            ///
            /// # Errors
            #[doc = concat!("If ", $what, " was closed before, as every call after that: one of several calls returns `Ok`.")]
            pub fn close(&self) -> std::io::Result<()> {
                self.0.close()
            }
        }
    };
}

/// Implements the limits of reads.
macro_rules! read_limits {
    ([$($of:tt)*] $name:ty) => {
        impl<$($of)*> $name {
            /// Sets until when reads wait; `None` for ever. The deadline holds for every call that takes data out, or peeks,
            /// until the next deadline is set, also for calls that wait already. After the deadline they return `TimedOut`,
            /// even if there is data; a read of a stream into an empty buffer, which takes nothing out, returns `Ok(0)` then,
            /// too. With a [timeout](Self::set_read_timeout) as well, the earlier end counts.
            ///
            /// # Errors
            /// If this is closed.
            pub fn set_read_deadline(&self, at: Option<std::time::Instant>) -> std::io::Result<()> {
                self.0.set_deadline(Direction::Read, at)
            }

            /// Sets how long a read waits, from the beginning of the read; `None` for ever. The timeout counts for reads that
            /// begin after this call, and includes the time spent behind other readers of the same handle. The timeout only
            /// ends waits: a read whose turn has come returns data that is there, however late. Another handle, as `try_clone`
            /// makes, has timeouts of its own.
            ///
            /// # Errors
            /// `InvalidInput` for zero, as with std; and if this is closed.
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.0.set_timeout(Direction::Read, timeout)
            }

            /// Returns the read timeout.
            ///
            /// # Errors
            /// If this is closed.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                self.0.timeout(Direction::Read)
            }
        }
    };
}

/// Implements the limits of writes.
macro_rules! write_limits {
    ([$($of:tt)*] $name:ty) => {
        impl<$($of)*> $name {
            /// Sets until when writes wait; `None` for ever. The deadline holds for every call that writes, until the next
            /// deadline is set, also for calls that wait already. After the deadline they return `TimedOut`, even if there is
            /// room. With a [timeout](Self::set_write_timeout) as well, the earlier end counts. A call that writes in several
            /// steps, as `write_all` of a stream, may have written a part when it times out.
            ///
            /// # Errors
            /// If this is closed.
            pub fn set_write_deadline(&self, at: Option<std::time::Instant>) -> std::io::Result<()> {
                self.0.set_deadline(Direction::Write, at)
            }

            /// Sets how long a write waits, from the beginning of the write; `None` for ever. The timeout counts for writes
            /// that begin after this call, and includes the time spent behind other writers of the same handle. The timeout
            /// only ends waits: a write whose turn has come, and that finds room, writes, however late. Another handle, as
            /// `try_clone` makes, has timeouts of its own.
            ///
            /// # Errors
            /// `InvalidInput` for zero, as with std; and if this is closed.
            pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.0.set_timeout(Direction::Write, timeout)
            }

            /// Returns the write timeout.
            ///
            /// # Errors
            /// If this is closed.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                self.0.timeout(Direction::Write)
            }
        }
    };
}

/// Implements the limits of both directions.
macro_rules! both_limits {
    ([$($of:tt)*] $name:ty) => {
        crate::net::methods::read_limits!([$($of)*] $name);
        crate::net::methods::write_limits!([$($of)*] $name);
        impl<$($of)*> $name {
            /// Sets both deadlines.
            ///
            /// # Errors
            /// If this is closed.
            pub fn set_deadline(&self, at: Option<std::time::Instant>) -> std::io::Result<()> {
                self.0.set_deadline(Direction::Read, at)?;
                self.0.set_deadline(Direction::Write, at)
            }
        }
    };
}

/// Implements `close`, and the limits of both directions, for a socket.
macro_rules! limits {
    ($name:ident) => {
        crate::net::methods::closes!(
            [] $name, "the socket",
            "A duplicate, made by `try_clone`, lives on; the peer of a stream sees the end when the last handle is closed or",
            "dropped. Blocks the goroutine, or the plain thread, until system calls of other goroutines on this socket have",
            "returned; then the descriptor's number is free, unless the descriptor was lent out by `AsFd`."
        );
        crate::net::methods::both_limits!([] $name);
    };
}

/// Implements `take_error`.
macro_rules! error_option {
    ($name:ident) => {
        impl $name {
            /// Takes the socket's pending error.
            ///
            /// # Errors
            /// As with std.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.with(|socket| socket.take_error())
            }
        }
    };
}

/// Implements the getter and the setter of each option.
macro_rules! options {
    ($name:ident: $($option:literal: $get:ident $set:ident $of:ty),+ $(,)?) => {
        impl $name {
            $(
                #[doc = concat!("Returns the value of `", $option, "`.")]
                ///
                /// # Errors
                /// As with std.
                pub fn $get(&self) -> std::io::Result<$of> {
                    self.0.with(|socket| socket.$get())
                }

                #[doc = concat!("Sets `", $option, "`.")]
                ///
                /// # Errors
                /// As with std.
                pub fn $set(&self, value: $of) -> std::io::Result<()> {
                    self.0.with(|socket| socket.$set(value))
                }
            )+
        }
    };
}

/// Implements the options that an IP socket has whether it listens, is connected, or neither.
macro_rules! ip_options {
    ($name:ident) => {
        crate::net::methods::options!($name: "IP_TTL": ttl set_ttl u32);
        crate::net::methods::error_option!($name);
    };
}

/// Implements the deadline, the address and the duplicate of a listener.
macro_rules! listens {
    ($name:ident, $inner:ty, $addr:ty) => {
        impl $name {
            /// Sets until when [`accept`](Self::accept) waits; `None` for ever. The deadline holds for all calls until the next
            /// one is set, also for calls that wait already. After the deadline `accept` returns `TimedOut`, even if there is a
            /// connection to accept.
            ///
            /// # Errors
            /// If the listener is closed.
            pub fn set_deadline(&self, at: Option<std::time::Instant>) -> std::io::Result<()> {
                self.0.set_deadline(Direction::Read, at)
            }

            /// Returns the address on which the listener listens.
            ///
            /// # Errors
            /// As with std.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                self.0.with(|socket| socket.local_addr())
            }

            /// Makes a second handle to the same socket.
            ///
            /// # Errors
            /// If the table of descriptors is full.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                Ok($name(self.0.try_clone(<$inner>::try_clone)?))
            }
        }
    };
}

/// Implements `incoming` of a listener, and the iterator.
macro_rules! incoming {
    ($incoming:ident of $listener:ident gives $stream:ident, $(#[$doc:meta])*) => {
        impl $listener {
            /// Returns an iterator over the connections, until the listener is closed or the context under which the caller
            /// runs is done, even if connections wait; an error that says so comes last. Each step is an
            /// [`accept`](Self::accept), and may unwind as that does.
            pub fn incoming(&self) -> $incoming<'_> {
                $incoming { listener: self, ended: false, canceled: false }
            }
        }

        $(#[$doc])*
        #[derive(Debug)]
        pub struct $incoming<'a> {
            listener: &'a $listener,
            ended: bool,
            /// The last step was ended by a context.
            canceled: bool,
        }

        impl Iterator for $incoming<'_> {
            type Item = std::io::Result<$stream>;

            fn next(&mut self) -> Option<Self::Item> {
                // Asked here because a context ends `accept` only where the call waits, and under load each call finds a
                // connection. The first step under a context that is done returns the error, and the next step the end: the
                // first may have had a context of its own.
                let canceled = crate::net::check_contexts().err();
                self.ended |= self.canceled && canceled.is_some();
                if self.ended {
                    return None;
                }
                if let Some(error) = canceled {
                    self.canceled = true;
                    return Some(Err(error));
                }
                let accepted = self.listener.accept().map(|(stream, _)| stream);
                self.ended = accepted.as_ref().is_err_and(crate::net::is_closed);
                self.canceled = accepted.as_ref().is_err_and(crate::net::is_canceled);
                Some(accepted)
            }
        }

        impl std::iter::FusedIterator for $incoming<'_> {}

        impl<'a> IntoIterator for &'a $listener {
            type Item = std::io::Result<$stream>;
            type IntoIter = $incoming<'a>;

            fn into_iter(self) -> $incoming<'a> {
                self.incoming()
            }
        }
    };
}

/// Implements `Read` for the reference, and by means of that for the value. `$read` and `$read_vectored` make the system calls.
macro_rules! reads {
    ($name:ident, $read:expr, $read_vectored:expr) => {
        impl std::io::Read for &$name {
            /// Blocks the goroutine, or the plain thread, until there is data or the end of the stream; at most until the
            /// read deadline or timeout.
            ///
            /// # Unwinds
            /// When the wait is ended from outside, except by a context, which gives an error here; see
            /// [`migration`](crate::migration#what-may-unwind).
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                crate::net::methods::with_a_frame(self.0.run_read(buf.len(), |stream| $read(stream, buf)))
            }

            /// Blocks the goroutine, or the plain thread, as [`read`](std::io::Read::read).
            ///
            /// # Unwinds
            /// When the wait is ended from outside, except by a context, which gives an error here; see
            /// [`migration`](crate::migration#what-may-unwind).
            fn read_vectored(&mut self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                let len = crate::net::sys::len_of_call(bufs);
                crate::net::methods::with_a_frame(self.0.run_read(len, |stream| $read_vectored(stream, bufs)))
            }
        }

        impl std::io::Read for $name {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }
    };
}

/// Implements `Write` for the reference, and by means of that for the value. `$write` and `$write_vectored` make the system
/// calls.
macro_rules! writes {
    ($name:ident, $write:expr, $write_vectored:expr) => {
        impl std::io::Write for &$name {
            /// Blocks the goroutine, or the plain thread, until at least a part of `buf` was taken; at most until the write
            /// deadline or timeout.
            ///
            /// # Unwinds
            /// When the wait is ended from outside, except by a context, which gives an error here; see
            /// [`migration`](crate::migration#what-may-unwind).
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                crate::net::methods::with_a_frame(self.0.run(Direction::Write, |stream| $write(stream, buf)))
            }

            /// Blocks the goroutine, or the plain thread, as [`write`](std::io::Write::write).
            ///
            /// # Unwinds
            /// When the wait is ended from outside, except by a context, which gives an error here; see
            /// [`migration`](crate::migration#what-may-unwind).
            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                crate::net::methods::with_a_frame(
                    self.0.run(Direction::Write, |stream| $write_vectored(stream, bufs)),
                )
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Write for $name {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

/// Implements the polls of a stream. `$recv`, into bytes that may be uninitialised, `$recv_vectored`, `$send` and
/// `$send_vectored` make the system calls.
macro_rules! stream_polls {
    ($name:ident, $recv:expr, $recv_vectored:expr, $send:expr, $send_vectored:expr) => {
        impl $name {
            /// Reads the bytes that have come into `buf`, or has the task woken when there may be some: for a future's `poll`.
            /// Zero bytes are the end of the stream. Never blocks; the deadlines and timeouts of the socket are for calls that
            /// block, and do not end a task's wait.
            ///
            /// The task that was last told `Pending` is woken, one for reads and one for writes of a handle. A goroutine may
            /// wait in `read` meanwhile: both are woken, and the first to come gets the bytes. A future that is dropped between
            /// two polls has taken nothing. The task is woken by the poller of the runtime whose goroutine polls, so poll
            /// within [`block_on`](crate::block_on); a task that is polled by a thread outside of a runtime is woken by the
            /// poller of a runtime whose goroutines have waited for this socket before.
            ///
            /// ```
            #[doc = concat!("use gmp::net::", stringify!($name), ";")]
            /// use std::future::poll_fn;
            /// use std::io;
            ///
            #[doc = concat!("/// Sends back what comes, until the peer has no more.\nasync fn echo(stream: &", stringify!($name), ") -> io::Result<()> {")]
            ///     let mut buf = [0; 512];
            ///     loop {
            ///         let got = poll_fn(|cx| stream.poll_read(cx, &mut buf)).await?;
            ///         if got == 0 {
            ///             return Ok(());
            ///         }
            ///         let mut rest = &buf[..got];
            ///         while !rest.is_empty() {
            ///             let sent = poll_fn(|cx| stream.poll_write(cx, rest)).await?;
            ///             rest = &rest[sent..];
            ///         }
            ///     }
            /// }
            /// # use std::io::{Read, Write};
            /// # // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            /// # unsafe {
            /// #     gmp::run(|| {
            #[doc = crate::net::methods::pair_for_docs!($name)]
            /// #         let echoes = gmp::go(move || gmp::block_on(echo(&far)));
            /// #         near.write_all(b"hello").unwrap();
            /// #         near.shutdown(std::net::Shutdown::Write).unwrap();
            /// #         let mut text = String::new();
            /// #         near.read_to_string(&mut text).unwrap();
            /// #         assert_eq!(text, "hello");
            /// #         echoes.join().unwrap().unwrap();
            /// #     })
            /// # }
            /// ```
            ///
            /// # Errors
            /// As with `read`; `Unsupported` where no runtime can tell the task: on a thread outside, if no runtime that
            /// lives watches the socket.
            pub fn poll_read(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let (start, len) = (buf.as_mut_ptr().cast(), buf.len());
                // SAFETY: the same bytes. The call writes initialised ones alone.
                self.poll_read_uninit(cx, unsafe { std::slice::from_raw_parts_mut(start, len) })
            }

            /// Does the same as [`poll_read`](Self::poll_read), into bytes that need not be initialised: the call initialises
            /// as many as it returns, from the first on.
            ///
            /// # Errors
            /// As [`poll_read`](Self::poll_read).
            pub fn poll_read_uninit(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read(cx, buf.len(), |stream| $recv(stream, buf))
            }

            /// Does the same as [`poll_read`](Self::poll_read), into several buffers, one after the other.
            ///
            /// # Errors
            /// As [`poll_read`](Self::poll_read).
            pub fn poll_read_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let len = crate::net::sys::len_of_call(bufs);
                self.0.poll_read(cx, len, |stream| $recv_vectored(stream, bufs))
            }

            /// Writes `buf`, or the part for which there is room, or has the task woken when there may be room; otherwise as
            /// [`poll_read`](Self::poll_read), where the example is.
            ///
            /// # Errors
            /// As with `write`; `Unsupported` as [`poll_read`](Self::poll_read).
            pub fn poll_write(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll(cx, Direction::Write, |stream| $send(stream, buf))
            }

            /// Does the same as [`poll_write`](Self::poll_write), from several buffers, one after the other.
            ///
            /// # Errors
            /// As [`poll_write`](Self::poll_write).
            pub fn poll_write_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll(cx, Direction::Write, |stream| $send_vectored(stream, bufs))
            }
        }
    };
}

/// The hidden line of an example that makes a connection.
macro_rules! pair_for_docs {
    (TcpStream) => {
        "#         let listener = gmp::net::TcpListener::bind(\"127.0.0.1:0\").unwrap();\n\
         #         let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();\n\
         #         let far = listener.accept().unwrap().0;"
    };
    (UnixStream) => {
        "#         let (mut near, far) = UnixStream::pair().unwrap();"
    };
}

pub(crate) use {
    both_limits, closes, error_option, incoming, ip_options, limits, listens, options, pair_for_docs,
    read_limits, reads, stream_polls, write_limits, writes,
};
