//! Implementations that many of the public types share, as macros.
//!
//! A type with parameters comes after those of the `impl`: `[T] Recv<'_, T>` is `impl<T> .. for Recv<'_, T>`.

/// A `Debug` that shows a type's name, where the fields tell its user nothing, or may not be looked at.
macro_rules! opaque {
    ($($([$($declared:tt)*])? $name:ident $(<$($used:tt),+>)?),+) => {
        $(
            impl<$($($declared)*)?> ::std::fmt::Debug for $name $(<$($used),+>)? {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.pad(concat!(stringify!($name), " { .. }"))
                }
            }
        )+
    };
}
pub(crate) use opaque;

/// For types that guard no data of the user's, which an unwinding could leave half changed.
macro_rules! unwind_safe {
    ($($([$($declared:tt)*])? $name:ident $(<$($used:tt),+>)?),+) => {
        $(
            impl<$($($declared)*)?> ::std::panic::UnwindSafe for $name $(<$($used),+>)? {}
            impl<$($($declared)*)?> ::std::panic::RefUnwindSafe for $name $(<$($used),+>)? {}
        )+
    };
}
pub(crate) use unwind_safe;

/// `Display` and `Error`, for an error that says by its variant what has happened.
macro_rules! error {
    ($name:ident, $($variant:pat => $text:expr;)+) => {
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($variant => f.write_str($text),)+
                }
            }
        }
        impl ::std::error::Error for $name {}
    };
}
pub(crate) use error;

/// As `error`, for an error that gives a message back, with a `Debug` that needs none of the message.
macro_rules! error_with_message {
    ($name:ident, $($variant:pat => $debug:literal, $text:expr;)+) => {
        impl<T> ::std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($variant => f.write_str($debug),)+
                }
            }
        }
        impl<T> ::std::fmt::Display for $name<T> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($variant => f.write_str($text),)+
                }
            }
        }
        impl<T> ::std::error::Error for $name<T> {}
    };
}
pub(crate) use error_with_message;

/// A future with a name: what it waits for, and the wait, which the drop ends by `leave`. `$of` is what the wait is polled
/// with, and `$take` what comes of its end.
macro_rules! future {
    (
        $(#[$doc:meta])*
        $([$($declared:tt)*])? $name:ident $(<$($used:tt),+>)? { $owner:ty, $wait:ty } -> $output:ty,
        |$it:ident| $of:expr $(, $take:expr)?
    ) => {
        $(#[$doc])*
        #[must_use = "a future does nothing unless it is polled"]
        pub struct $name<$($($declared)*)?> {
            owner: $owner,
            wait: $wait,
        }

        impl<$($($declared)*)?> $name $(<$($used),+>)? {
            pub(super) fn new(owner: $owner, wait: $wait) -> Self {
                $name { owner, wait }
            }

            fn parts(self: ::std::pin::Pin<&mut Self>) -> (&$owner, ::std::pin::Pin<&mut $wait>) {
                // SAFETY: `wait` is pinned with the future; nothing moves it.
                unsafe {
                    let this = self.get_unchecked_mut();
                    (&this.owner, ::std::pin::Pin::new_unchecked(&mut this.wait))
                }
            }
        }

        impl<$($($declared)*)?> ::std::future::Future for $name $(<$($used),+>)? {
            type Output = $output;

            fn poll(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<$output> {
                let ($it, wait) = self.parts();
                wait.poll($of, cx)$(.map($take))?
            }
        }

        impl<$($($declared)*)?> Drop for $name $(<$($used),+>)? {
            fn drop(&mut self) {
                // SAFETY: the future is dropped where it was pinned, if polled, and is not moved any more.
                let ($it, wait) = unsafe { ::std::pin::Pin::new_unchecked(self) }.parts();
                wait.leave($of);
            }
        }

        $crate::impls::opaque!($([$($declared)*])? $name $(<$($used),+>)?);
    };
}
pub(crate) use future;
