//! Signals by name and number.

use super::action;
use std::error::Error;
use std::fmt;
use std::io;

/// A signal. The constants of this module have the signals' usual names; [`From`] takes any number, for example
/// `libc::SIGRTMIN() + 1`.
///
/// As an [`Error`], a signal is the cause of a context that the signal has ended.
///
/// ```
/// use gmp::signal::{SIGINT, Signal};
///
/// assert_eq!(SIGINT.to_string(), "SIGINT");
/// assert_eq!(SIGINT.as_raw(), libc::SIGINT);
/// assert_eq!(Signal::from(libc::SIGRTMIN() + 1).to_string(), "SIGRTMIN+1");
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Signal(libc::c_int);

/// How many bits a set of signals has; the first one stands for the number 1.
const MOST: libc::c_int = 64;

impl Signal {
    /// Returns the number.
    pub const fn as_raw(self) -> libc::c_int {
        self.0
    }

    /// Returns the signal's bit in a set. `set_of` has accepted the number.
    pub(super) fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }
}

/// Returns the signals of a set, the lowest number first.
pub(super) fn each_of(mut set: u64) -> impl Iterator<Item = Signal> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| Signal(set.trailing_zeros() as libc::c_int + 1));
        set &= set.wrapping_sub(1);
        lowest
    })
}

/// Returns the set of `signals`, for the function `of`.
///
/// # Errors
/// If one of them is not for programs to handle.
pub(super) fn set_of(of: &str, signals: &[Signal]) -> io::Result<u64> {
    let refuse = |why: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{of}: {why}"));
    let mut set = 0;
    for &signal in signals {
        match signal {
            SIGKILL | SIGSTOP => return Err(refuse(format!("{signal} can't be caught or ignored"))),
            SIGSEGV | SIGBUS | SIGFPE | SIGILL => {
                return Err(refuse(format!("{signal} reports a fault of the program itself")));
            }
            Signal(1..=MOST) if action::exists(signal) => set |= signal.bit(),
            _ => return Err(refuse(format!("there is no signal {}", signal.0))),
        }
    }
    Ok(set)
}

impl From<libc::c_int> for Signal {
    fn from(number: libc::c_int) -> Self {
        Signal(number)
    }
}

impl From<Signal> for libc::c_int {
    fn from(signal: Signal) -> Self {
        signal.0
    }
}

impl Error for Signal {}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! signals {
    ($($name:ident: $what:literal;)+) => {
        $(
            #[doc = $what]
            pub const $name: Signal = Signal(libc::$name);
        )+

        impl fmt::Display for Signal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
                match *self {
                    $($name => f.pad(stringify!($name)),)+
                    Signal(number) if number == first => f.pad("SIGRTMIN"),
                    Signal(number) if first < number && number <= last => {
                        f.pad(&format!("SIGRTMIN+{}", number - first))
                    }
                    Signal(number) => f.pad(&format!("signal {number}")),
                }
            }
        }
    };
}

signals! {
    SIGABRT: "The program gives up: `abort`.";
    SIGALRM: "A timer of `alarm` or `setitimer` has come.";
    SIGBUS: "A fault: memory that is not there. Can't have a receiver.";
    SIGCHLD: "A child has ended, or was stopped or continued.";
    SIGCONT: "Go on after a stop.";
    SIGFPE: "A fault: an operation that has no result. Can't have a receiver.";
    SIGHUP: "The terminal is gone; for daemons, mostly: read the configuration anew.";
    SIGILL: "A fault: no instruction. Can't have a receiver.";
    SIGINT: "Ctrl-C.";
    SIGIO: "A descriptor is ready, where that was asked for.";
    SIGKILL: "The end, at once. Can't have a receiver.";
    SIGPIPE: "A write to a pipe or socket that nobody reads. Rust programs ignore it.";
    SIGPROF: "The timer of a profiler.";
    SIGPWR: "The power fails.";
    SIGQUIT: "Ctrl-\\: the end, with a dump. A runtime prints what its goroutines do.";
    SIGSEGV: "A fault: memory that is not the program's. Can't have a receiver.";
    SIGSTKFLT: "Unused.";
    SIGSTOP: "Stop, at once. Can't have a receiver.";
    SIGSYS: "A system call that is not allowed.";
    SIGTERM: "Please end: what `kill` sends.";
    SIGTRAP: "A breakpoint.";
    SIGTSTP: "Ctrl-Z.";
    SIGTTIN: "A read from the terminal by a job in the background.";
    SIGTTOU: "A write to the terminal by a job in the background.";
    SIGURG: "Urgent data on a socket.";
    SIGUSR1: "For the program's own use.";
    SIGUSR2: "For the program's own use.";
    SIGVTALRM: "A timer of the process's own time has come.";
    SIGWINCH: "The terminal has another size.";
    SIGXCPU: "The limit of CPU time is reached.";
    SIGXFSZ: "The limit of a file's size is reached.";
}
