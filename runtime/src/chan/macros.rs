//! `select!` and `select_biased!`: what they expand to, and the functions that they call.
//!
//! An expansion binds the channels in source order; runs the select, with the arms in an array that is dropped before any arm's
//! code runs; and goes to the chosen arm, where the message is evaluated or received. The code of an arm becomes part of the
//! caller's function, so that `return`, `break` and `?` work there.

/// Waits until one of several channel operations is ready, and performs it. Go's `select`, in crossbeam-channel's
/// syntax.
///
/// ```text
/// select! {
///     recv(receiver) -> result => code,           // result: Result<T, RecvError>
///     send(sender, message) -> result => code,    // result: Result<(), SendError<T>>
///     default => code,                            // nothing is ready; or `default(timeout)`
/// }
/// ```
/// Blocks the goroutine, or the plain thread, until an arm is ready, chooses one of the ready arms, each with the same
/// probability, performs that arm's operation, and evaluates that arm's code, whose value is the value of the macro. With
/// `default` the macro does not block (but for the exception that [`Receiver::try_recv`](crate::chan::Receiver::try_recv)
/// describes); with `default(timeout)` it blocks for at most that long. An operation on a closed channel is ready, and fails.
/// `-> result` can be left out.
///
/// * The outcome is that of one snapshot of all channels: the chosen arm was ready then, and `default` is taken only if no arm
///   was. While other threads fill and empty the channels, the probability of each arm depends on them, too.
/// * The channel expressions are evaluated once, on entry, in source order; a message only after its arm was chosen. If the
///   evaluation of a message panics, nothing is sent, and the receiver for which the send was chosen continues to wait in its
///   place.
/// * While a message is evaluated, the receiver waits for that message and for no other. The receiver's limit or context can
///   end that wait; then the send waits for another receiver as a plain send does, on this arm alone. If the select has a
///   `default`, the send waits at most until that timeout, and then `result` is an error with the message, although the channel
///   is not closed. A goroutine that its runtime leaves behind in the middle of an evaluation sends nothing, and the receiver
///   continues to wait in its place.
/// * A channel can be closed while a message is evaluated. If the last receiver has gone, `result` is an error with the
///   message. After a [`close`](crate::chan::Sender::close) that leaves receivers, the message can still be received, before
///   the receives fail.
/// * A channel can be in several arms, also in both directions; each ready arm is as likely as any other.
/// * [`never`](crate::chan::never) and [`never_sender`](crate::chan::never_sender) disable an arm.
/// * A message is evaluated as the argument of [`send`](crate::chan::Sender::send) is: the message has the channel's
///   type, or coerces to that type.
/// * There can be 32 arms beside `default`. For more, raise the crate's `recursion_limit` by three for each, or use a
///   [`Select`](crate::chan::Select), which has no bound.
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
///
/// # Panics
/// Without any arm.
///
/// ```
/// use gmp::{chan, select};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (numbers, from) = chan::bounded(0);
///         let (stop, stopped) = chan::bounded::<()>(0);
///         let source = gmp::go(move || {
///             let mut next = 0;
///             loop {
///                 select! {
///                     send(numbers, next) -> sent => match sent {
///                         Ok(()) => next += 1,
///                         Err(_) => return next,
///                     },
///                     recv(stopped) -> _ => return next,
///                 }
///             }
///         });
///         assert_eq!(from.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
///         select! {
///             recv(chan::never::<u32>()) -> _ => unreachable!(),
///             default(Duration::from_millis(1)) => drop(stop),
///         }
///         assert_eq!(source.join().unwrap(), 3);
///     })
/// }
/// ```
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => { $crate::__select!(@parse false; [] []; $($arms)*) };
}

/// As [`select!`](crate::select), but chooses the first of several ready arms.
///
/// ```
/// let (sender, receiver) = gmp::chan::unbounded();
/// let (urgent, alarms) = gmp::chan::unbounded();
/// sender.send("work").unwrap();
/// urgent.send("fire").unwrap();
/// let first = gmp::select_biased! {
///     recv(alarms) -> alarm => alarm.unwrap(),
///     recv(receiver) -> message => message.unwrap(),
/// };
/// assert_eq!(first, "fire");
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($arms:tt)*) => { $crate::__select!(@parse true; [] []; $($arms)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // One arm at each step: (recv (channel) () (pattern, _) (code)), (send (channel) (message) (pattern, _) (code)); `(_)` if
    // no pattern is given. The code is a block, or an expression and a comma, or the last expression. With one step to parse an
    // arm, one to bind its channel, and one to go to its code, 40 arms take 125 of the compiler's 128 levels.
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; recv($chan:expr $(,)?) $(-> $result:pat)? => $code:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; [$($arm)* (recv ($chan) () ($($result,)? _) ($code))] $default; $($($rest)*)?)
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; recv($chan:expr $(,)?) $(-> $result:pat)? => $code:block $($rest:tt)+) => {
        $crate::__select!(@parse $biased; [$($arm)* (recv ($chan) () ($($result,)? _) ($code))] $default; $($rest)+)
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; recv($chan:expr $(,)?) $(-> $result:pat)? => $code:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; [$($arm)* (recv ($chan) () ($($result,)? _) ($code))] $default; $($($rest)*)?)
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; send($chan:expr, $message:expr $(,)?) $(-> $result:pat)? => $code:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; [$($arm)* (send ($chan) ($message) ($($result,)? _) ($code))] $default; $($($rest)*)?)
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; send($chan:expr, $message:expr $(,)?) $(-> $result:pat)? => $code:block $($rest:tt)+) => {
        $crate::__select!(@parse $biased; [$($arm)* (send ($chan) ($message) ($($result,)? _) ($code))] $default; $($rest)+)
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt; send($chan:expr, $message:expr $(,)?) $(-> $result:pat)? => $code:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; [$($arm)* (send ($chan) ($message) ($($result,)? _) ($code))] $default; $($($rest)*)?)
    };
    (@parse $biased:tt; $arms:tt []; default($($timeout:expr)? $(,)?) => $code:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; $arms [($($timeout)?) ($code)]; $($($rest)*)?)
    };
    (@parse $biased:tt; $arms:tt []; default($($timeout:expr)? $(,)?) => $code:block $($rest:tt)+) => {
        $crate::__select!(@parse $biased; $arms [($($timeout)?) ($code)]; $($rest)+)
    };
    (@parse $biased:tt; $arms:tt []; default($($timeout:expr)? $(,)?) => $code:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; $arms [($($timeout)?) ($code)]; $($($rest)*)?)
    };
    (@parse $biased:tt; $arms:tt []; default => $code:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; $arms [() ($code)]; $($($rest)*)?)
    };
    (@parse $biased:tt; $arms:tt []; default => $code:block $($rest:tt)+) => {
        $crate::__select!(@parse $biased; $arms [() ($code)]; $($rest)+)
    };
    (@parse $biased:tt; $arms:tt []; default => $code:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@parse $biased; $arms [() ($code)]; $($($rest)*)?)
    };
    (@parse $biased:tt; $arms:tt [$($default:tt)+]; default $($rest:tt)+) => {
        ::core::compile_error!("select!: there is more than one `default`")
    };
    (@parse $biased:tt; [$($arm:tt)*] $default:tt;) => {
        $crate::__select!(@bind $biased; [] $default; $($arm)*)
    };
    (@parse $biased:tt; $arms:tt $default:tt; $($rest:tt)+) => {
        ::core::compile_error!(::core::concat!(
            "select!: expected `recv(channel) -> result => code`, `send(channel, message) -> result => code`, ",
            "`default => code` or `default(timeout) => code`, found `", ::core::stringify!($($rest)+), "`"
        ))
    };

    // Each channel is evaluated once, in the order of the arms.
    (@bind $biased:tt; [$($bound:tt)*] $default:tt; (recv ($chan:expr) $message:tt $result:tt $code:tt) $($rest:tt)*) => {
        match &$chan {
            chan => {
                let chan: &$crate::chan::Receiver<_> = chan;
                $crate::__select!(@bind $biased; [$($bound)* (recv chan $message $result $code)] $default; $($rest)*)
            }
        }
    };
    (@bind $biased:tt; [$($bound:tt)*] $default:tt; (send ($chan:expr) $message:tt $result:tt $code:tt) $($rest:tt)*) => {
        match &$chan {
            chan => {
                let chan: &$crate::chan::Sender<_> = chan;
                $crate::__select!(@bind $biased; [$($bound)* (send chan $message $result $code)] $default; $($rest)*)
            }
        }
    };
    (@bind $biased:tt; [$(($kind:ident $chan:ident $message:tt $result:tt $code:tt))*] [];) => {{
        let mut space = $crate::chan::internal::Space::empty();
        let chosen = match &mut [$($crate::chan::internal::$kind($chan)),*] {
            // SAFETY: the arms are new; no other code can name the chosen operation, so it is completed or dropped in this
            // frame.
            arms => unsafe { $crate::chan::internal::select(&mut space, arms, $biased) },
        };
        let index = chosen.index();
        $crate::__select!(@go chosen index (0); $(($kind $chan $message $result $code))*)
    }};
    (@bind $biased:tt; [$(($kind:ident $chan:ident $message:tt $result:tt $code:tt))*] [() ($default:expr)];) => {{
        // Bound first, so that the array, which borrows the channels, is dropped before an arm's code runs.
        let mut space = $crate::chan::internal::Space::empty();
        let chosen = match &mut [$($crate::chan::internal::$kind($chan)),*] {
            // SAFETY: as above.
            arms => unsafe { $crate::chan::internal::try_select(&mut space, arms, $biased) },
        };
        $crate::__select!(@or chosen ($default); $(($kind $chan $message $result $code))*)
    }};
    (@bind $biased:tt; [$(($kind:ident $chan:ident $message:tt $result:tt $code:tt))*] [($timeout:expr) ($default:expr)];) => {{
        let mut space = $crate::chan::internal::Space::empty();
        let chosen = match (&mut [$($crate::chan::internal::$kind($chan)),*], $crate::chan::internal::timeout($timeout)) {
            // SAFETY: as above.
            (arms, timeout) => unsafe {
                $crate::chan::internal::select_timeout(&mut space, arms, $biased, timeout)
            },
        };
        $crate::__select!(@or chosen ($default); $(($kind $chan $message $result $code))*)
    }};

    (@or $chosen:ident ($default:expr); $($arms:tt)*) => {{
        // Each branch moves the result, so that no borrow of a channel is left in the arms.
        let index = $chosen.index();
        if index == $crate::chan::internal::Selected::NONE {
            ::core::mem::drop($chosen);
            $default
        } else {
            $crate::__select!(@go $chosen index (0); $($arms)*)
        }
    }};

    (@go $chosen:ident $index:ident ($number:expr); (recv $chan:ident () ($result:pat $(, _)?) ($code:expr)) $($rest:tt)*) => {
        if $index == $number {
            let $result = $chosen.recv($chan);
            $code
        } else {
            $crate::__select!(@go $chosen $index ($number + 1); $($rest)*)
        }
    };
    (@go $chosen:ident $index:ident ($number:expr); (send $chan:ident ($message:expr) ($result:pat $(, _)?) ($code:expr)) $($rest:tt)*) => {
        if $index == $number {
            // The message is bound first: if its expression unwinds, the operation is cancelled.
            let message = $crate::chan::internal::message($chan, $message);
            let $result = $chosen.send($chan, message);
            $code
        } else {
            $crate::__select!(@go $chosen $index ($number + 1); $($rest)*)
        }
    };
    (@go $chosen:ident $index:ident ($number:expr);) => {{
        let _ = ($chosen, $index);
        ::core::unreachable!("select!: an arm that does not exist was chosen")
    }};
}

/// The functions that the macros call. The chosen operation lies in the caller's frame, and the goroutine's list of hooks may
/// have its address: a caller that forgot the operation would leave a dangling address there.
///
/// ```compile_fail,E0133
/// use gmp::chan::internal::{Space, select, send};
///
/// let (sender, _receiver) = gmp::chan::bounded(1);
/// let mut space = Space::empty();
/// std::mem::forget(select(&mut space, &mut [send::<u32>(&sender)], false));
/// ```
///
/// The unsafe code is in the expansion, not in the program:
///
/// ```
/// #![forbid(unsafe_code)]
/// #![deny(warnings)]
///
/// use std::time::Duration;
///
/// let (sender, receiver) = gmp::chan::bounded(1);
/// gmp::select! {
///     send(sender, 1) -> sent => sent.unwrap(),
/// }
/// gmp::select_biased! {
///     send(sender, 2) => unreachable!(),
///     default => {}
/// }
/// gmp::select! {
///     recv(receiver) -> message => assert_eq!(message, Ok(1)),
///     default(Duration::ZERO) => unreachable!(),
/// }
/// ```
#[allow(missing_docs, reason = "not for users, who see the macros")]
pub mod internal {
    use crate::chan::select::{self, Choice, Direction, Limit, Operation};
    pub use crate::chan::select::{Arm, Selected, Space};
    use crate::chan::{Receiver, Sender};
    use crate::host::{Active, Clock};
    use std::time::Duration;

    #[inline]
    pub fn recv<T>(receiver: &Receiver<T>) -> Arm<'_> {
        Arm::new(Operation::new(Direction::Receive, receiver.chan()))
    }

    #[inline]
    pub fn send<T>(sender: &Sender<T>) -> Arm<'_> {
        Arm::new(Operation::new(Direction::Send, sender.chan()))
    }

    /// Returns the message, which is evaluated as an argument, and so has the type that the channel requires.
    #[inline(always)]
    pub fn message<T>(_sender: &Sender<T>, message: T) -> T {
        message
    }

    /// Returns the timeout, which is evaluated as an argument, outside of the unsafe call.
    #[inline(always)]
    pub fn timeout(timeout: Duration) -> Duration {
        timeout
    }

    #[inline]
    fn choice(biased: bool) -> Choice {
        if biased { Choice::InOrder } else { Choice::Uniform }
    }

    /// # Safety
    /// The arms are new, and are in no other call. The goroutine that has called this completes or drops the `Selected` before
    /// the space is reused or goes out of scope: until then the goroutine's list of hooks may refer to the space.
    #[inline]
    #[track_caller]
    pub unsafe fn select<'a>(space: &'a mut Space, arms: &mut [Arm<'a>], biased: bool) -> Selected<'a> {
        assert!(!arms.is_empty(), "no operations have been added to `select!`");
        select::select(space, arms, Limit::Until(None), choice(biased))
    }

    /// # Safety
    /// As `select`.
    #[inline]
    pub unsafe fn try_select<'a>(space: &'a mut Space, arms: &mut [Arm<'a>], biased: bool) -> Selected<'a> {
        select::select(space, arms, Limit::Now, choice(biased))
    }

    /// # Safety
    /// As `select`.
    pub unsafe fn select_timeout<'a>(
        space: &'a mut Space,
        arms: &mut [Arm<'a>],
        biased: bool,
        timeout: Duration,
    ) -> Selected<'a> {
        select::select(space, arms, Limit::Until(Some(Active::after(timeout))), choice(biased))
    }
}
