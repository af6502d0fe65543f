//! The ends of a copy: what can be copied from and to.

use crate::net::desc::Direction;
use crate::os::fs;
use crate::os::io::{Stdin, Watched};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A source for [`copy`](super::copy): this library's streams and reading ends of pipes, std's files and
/// [`fs::File`](crate::fs::File), [`Stdin`], and [`Watched`] values; references, boxes and `Arc`s of these. No other type can
/// be one.
pub trait Source: sealed::Source {}

/// A sink for [`copy`](super::copy): this library's streams and writing ends of pipes, std's files and
/// [`fs::File`](crate::fs::File), and [`Watched`] values; references, boxes and `Arc`s of these. No other type can be one.
pub trait Sink: sealed::Sink {}

/// A connection with two halves, for [`copy_bidirectional`](super::copy_bidirectional): this library's streams. No other type
/// can be one.
pub trait Duplex: Source + Sink + sealed::Duplex + Sync {}

impl<T: sealed::Source + ?Sized> Source for T {}
impl<T: sealed::Sink + ?Sized> Sink for T {}
impl<T: sealed::Source + sealed::Sink + sealed::Duplex + Sync + ?Sized> Duplex for T {}

/// How the kernel moves bytes from and to an end.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Form {
    /// A stream socket, which never blocks.
    Socket,
    /// An end of a pipe, which never blocks.
    Pipe,
    /// A file in std's sense; calls on it may block the thread.
    File,
    /// A descriptor of which nothing is known.
    Other,
}

/// A system call on the end's descriptor, which returns how many bytes were moved.
pub type Call<'a> = dyn FnMut(BorrowedFd<'_>) -> io::Result<usize> + 'a;

/// An end of a copy: a descriptor, and how goroutines wait for it.
pub trait End {
    fn form(&self) -> Form;

    /// Makes a call that reads, and again after each wait while it would block. `len` is the length of the call's buffer, if a
    /// short read may say that there is no more.
    fn read(&self, len: Option<usize>, call: &mut Call<'_>) -> io::Result<usize>;

    /// Makes a call that writes, and again after each wait while it would block.
    fn write(&self, call: &mut Call<'_>) -> io::Result<usize>;

    /// Takes the bytes that were read from the descriptor before, and that come first.
    fn take_buffered(&self) -> Vec<u8> {
        Vec::new()
    }
}

pub mod sealed {
    use super::{End, io};

    pub trait Source {
        fn source(&self) -> &dyn End;
    }

    pub trait Sink {
        fn sink(&self) -> &dyn End;
    }

    pub trait Duplex {
        /// Ends the writes, which tells the peer that no more bytes come.
        fn end_writes(&self) -> io::Result<()>;

        /// Returns `true` if the stream's writes have ended.
        fn has_ended_writes(&self) -> bool;

        /// Returns `true` if the connection is over, and no call will report the error that was the reason, if there was one.
        fn is_over_and_told(&self) -> bool;
    }
}

/// Implements the traits of an end for a type around a `Socket`.
macro_rules! copy_end {
    ($name:ident, $form:ident, $rest:ident: $($role:ident)*) => {
        impl crate::os::io::copy::end::End for $name {
            fn form(&self) -> crate::os::io::copy::end::Form {
                crate::os::io::copy::end::Form::$form
            }

            fn read(
                &self,
                len: Option<usize>,
                call: &mut crate::os::io::copy::end::Call<'_>,
            ) -> std::io::Result<usize> {
                let mut call = |inner: &_| call(std::os::fd::AsFd::as_fd(inner));
                match len {
                    Some(len) => {
                        self.0.run_read(len, |inner| crate::net::socket::Rest::$rest.after(call(inner)))
                    }
                    None => self.0.run(crate::net::desc::Direction::Read, call),
                }
            }

            fn write(&self, call: &mut crate::os::io::copy::end::Call<'_>) -> std::io::Result<usize> {
                self.0.run(crate::net::desc::Direction::Write, |inner| call(std::os::fd::AsFd::as_fd(inner)))
            }
        }
        $(crate::os::io::copy::end::role!([] $name: $role);)*
    };
}
pub(crate) use copy_end;

/// Implements one of the sealed traits.
macro_rules! role {
    ([$($of:tt)*] $name:ty: Source) => {
        impl<$($of)*> crate::os::io::copy::end::sealed::Source for $name {
            fn source(&self) -> &dyn crate::os::io::copy::end::End {
                self
            }
        }
    };
    ([$($of:tt)*] $name:ty: Sink) => {
        impl<$($of)*> crate::os::io::copy::end::sealed::Sink for $name {
            fn sink(&self) -> &dyn crate::os::io::copy::end::End {
                self
            }
        }
    };
}
pub(crate) use role;

/// Implements `Duplex` for a stream. The expressions ask whether its writes have ended, and whether it is over.
macro_rules! duplex_end {
    ($name:ident, $has_ended_writes:expr, $is_over_and_told:expr) => {
        impl crate::os::io::copy::end::sealed::Duplex for $name {
            fn end_writes(&self) -> std::io::Result<()> {
                self.shutdown(std::net::Shutdown::Write)
            }

            fn has_ended_writes(&self) -> bool {
                self.0.with($has_ended_writes).is_ok_and(|ended| ended)
            }

            fn is_over_and_told(&self) -> bool {
                self.0.with($is_over_and_told).is_ok_and(|is_over| is_over)
            }
        }
    };
}
pub(crate) use duplex_end;

impl End for File {
    fn form(&self) -> Form {
        Form::File
    }

    fn read(&self, _: Option<usize>, call: &mut Call<'_>) -> io::Result<usize> {
        uninterrupted(self, call)
    }

    fn write(&self, call: &mut Call<'_>) -> io::Result<usize> {
        uninterrupted(self, call)
    }
}

/// Makes a call on a file, again after a signal.
fn uninterrupted(file: &File, call: &mut Call<'_>) -> io::Result<usize> {
    loop {
        match call(file.as_fd()) {
            Err(again) if again.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

role!([] File: Source);
role!([] File: Sink);

impl End for fs::File {
    fn form(&self) -> Form {
        Form::File
    }

    fn read(&self, _: Option<usize>, call: &mut Call<'_>) -> io::Result<usize> {
        self.copies(|file| uninterrupted(file, call))
    }

    fn write(&self, call: &mut Call<'_>) -> io::Result<usize> {
        self.copies(|file| uninterrupted(file, call))
    }
}
role!([] fs::File: Source);
role!([] fs::File: Sink);

impl<T: AsFd> End for Watched<T> {
    fn form(&self) -> Form {
        Form::Other
    }

    fn read(&self, _: Option<usize>, call: &mut Call<'_>) -> io::Result<usize> {
        self.call(Direction::Read, |inner| call(inner.as_fd()))
    }

    fn write(&self, call: &mut Call<'_>) -> io::Result<usize> {
        self.call(Direction::Write, |inner| call(inner.as_fd()))
    }
}
role!([T: AsFd] Watched<T>: Source);
role!([T: AsFd] Watched<T>: Sink);

impl End for Stdin {
    fn form(&self) -> Form {
        self.watched().form()
    }

    fn read(&self, len: Option<usize>, call: &mut Call<'_>) -> io::Result<usize> {
        End::read(self.watched(), len, call)
    }

    fn write(&self, call: &mut Call<'_>) -> io::Result<usize> {
        End::write(self.watched(), call)
    }

    fn take_buffered(&self) -> Vec<u8> {
        Stdin::take_buffered(self)
    }
}
role!([] Stdin: Source);

/// A pointer is a source, a sink or a stream if what it points to is one.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: sealed::Source + ?Sized> sealed::Source for $pointer {
            fn source(&self) -> &dyn End {
                (**self).source()
            }
        }

        impl<T: sealed::Sink + ?Sized> sealed::Sink for $pointer {
            fn sink(&self) -> &dyn End {
                (**self).sink()
            }
        }

        impl<T: sealed::Duplex + ?Sized> sealed::Duplex for $pointer {
            fn end_writes(&self) -> io::Result<()> {
                (**self).end_writes()
            }

            fn has_ended_writes(&self) -> bool {
                (**self).has_ended_writes()
            }

            fn is_over_and_told(&self) -> bool {
                (**self).is_over_and_told()
            }
        }
    )*};
}
pointers!(&T, Box<T>, Arc<T>);
