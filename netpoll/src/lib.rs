//! The network poller of `gmp`: descriptors in, waiting tokens out.
//!
//! Two parts that do not know each other, nor timers, nor goroutines, and a third for both the poller and the runtime:
//! - [`Poller`] reports what happened to which descriptor ([`Event`]: a [`Key`] and a [`Readiness`]), once for each change.
//!   Threads share it by reference: one thread may block in [`wait`](Poller::wait) while others look.
//! - [`Slot`] is the meeting point of an event and the one goroutine that waits for it, Go's pollDesc: pure
//!   transitions, which the runtime applies to its atomic words.
//! - [`ProcessMark`] tells a process from its forked children.
//!
//! ```
//! use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
//! use std::io::Write;
//! use std::os::{fd::AsFd, unix::net::UnixStream};
//!
//! let poller = Poller::new()?;
//! let (near, mut far) = UnixStream::pair()?;
//! let key = Key { index: 0, generation: 1 };
//! poller.add(near.as_fd(), key)?;
//! far.write_all(b"ping")?;
//!
//! let mut events = Events::with_capacity(64);
//! assert_eq!(poller.wait(&mut events, Timeout::Forever)?, Woken::No);
//! let event = events.iter().next().expect("near is ready");
//! assert_eq!(event.key, key);
//! assert!(event.readiness.contains(Readiness::READABLE | Readiness::WRITABLE));
//!
//! // An edge is reported once, whether the data was read or not.
//! assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
//! assert!(events.is_empty());
//! poller.remove(near.as_fd())?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod desc;
mod event;
mod events;
mod forks;
mod poller;
mod refused;

pub use desc::{Block, Cause, Commit, Leave, Slot, Ticket, Unblock};
pub use event::{Event, Key, Readiness};
pub use events::Events;
pub use forks::ProcessMark;
pub use poller::{Poller, Timeout, WaitCall, Woken};
