//! The report of a wait: the kernel's entries, read as [`Event`]s.

use std::fmt;
use std::io;

use crate::event::{Event, Key, Readiness};
use crate::poller::Woken;

/// The waker's key. Its index belongs to no descriptor ([`Key::index`]).
pub(crate) const WAKER: Key = Key { index: u32::MAX, generation: u32::MAX };

/// epoll's bits and ours.
const BITS: [(i32, Readiness); 6] = [
    (libc::EPOLLIN, Readiness::READABLE),
    (libc::EPOLLOUT, Readiness::WRITABLE),
    (libc::EPOLLRDHUP, Readiness::READ_HUP),
    (libc::EPOLLHUP, Readiness::HUP),
    (libc::EPOLLERR, Readiness::ERROR),
    (libc::EPOLLPRI, Readiness::URGENT),
];

/// The buffer that a wait fills; made once and used for every wait of its thread.
///
/// ```
/// use gmp_netpoll::{Events, Key, Poller, Timeout, Woken};
/// use std::os::{fd::AsFd, unix::net::UnixStream};
///
/// let (poller, mut events) = (Poller::new()?, Events::with_capacity(1));
/// let (near, far) = UnixStream::pair()?;
/// poller.add(near.as_fd(), Key { index: 0, generation: 1 })?;
/// poller.add(far.as_fd(), Key { index: 1, generation: 1 })?;
/// // Both can be written to. What does not fit into the buffer is reported by the next wait.
/// let mut seen = [false; 2];
/// for _ in 0..2 {
///     assert_eq!(poller.wait(&mut events, Timeout::Forever)?, Woken::No);
///     seen[events.iter().next().unwrap().key.index as usize] = true;
/// }
/// assert_eq!(seen, [true; 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Events {
    raw: Vec<libc::epoll_event>,
}

impl Events {
    /// Makes a buffer for `capacity` events. The next waits report, in turn, the events that do not fit.
    ///
    /// # Panics
    /// If `capacity` is zero, or more than the kernel takes.
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        let most = i32::MAX as usize / size_of::<libc::epoll_event>();
        assert!((1..=most).contains(&capacity), "Events::with_capacity: {capacity} is not in 1..={most}");
        Self { raw: Vec::with_capacity(capacity) }
    }

    /// Returns the events that the last wait reported, without the waker's.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> {
        self.raw.iter().map(|raw| {
            let happened = raw.events as i32;
            let seen = BITS.iter().filter(|(epoll, _)| happened & epoll != 0);
            let readiness = seen.fold(Readiness::EMPTY, |all, (_, one)| all | *one);
            Event { key: Key::from_bits(raw.u64), readiness }
        })
    }

    /// Returns `true` if the last wait reported nothing, the waker's event aside.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.raw.clear();
    }

    /// `wait` gets the empty buffer and its room, and returns how many entries it has filled, or -1 with
    /// `errno` set.
    pub(crate) fn fill_by(
        &mut self,
        wait: impl FnOnce(*mut libc::epoll_event, libc::c_int) -> libc::c_int,
    ) -> io::Result<()> {
        let room = self.raw.capacity() as libc::c_int;
        match wait(self.raw.as_mut_ptr(), room) {
            filled @ 0.. => {
                assert!(filled <= room, "Events::fill_by: {filled} events in a buffer of {room}");
                // SAFETY: the kernel has written that many entries, and they fit (asserted).
                unsafe { self.raw.set_len(filled as usize) };
                Ok(())
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn take_waker(&mut self) -> Woken {
        let reported = self.raw.len();
        // There are two if the spare eventfd has been registered as well.
        self.raw.retain(|raw| raw.u64 != WAKER.to_bits());
        if self.raw.len() < reported { Woken::Yes } else { Woken::No }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of a wait for which these have happened.
    fn report(happened: impl Iterator<Item = Event>) -> Events {
        let raw = happened.map(|Event { key, readiness }| {
            let bits = BITS.iter().filter(|(_, one)| readiness.contains(*one)).map(|(epoll, _)| *epoll);
            libc::epoll_event { events: bits.sum::<i32>() as u32, u64: key.to_bits() }
        });
        Events { raw: raw.collect() }
    }

    /// Fails by a bit that one direction of the table drops or mixes up.
    #[test]
    fn every_readiness_has_its_own_bit_of_epoll() {
        let all = (0..32).map(|bits| Event {
            key: Key { index: u32::from(bits), generation: 5 },
            readiness: Readiness::from_bits(bits),
        });
        let events = report(all.clone());
        assert!(events.iter().eq(all), "{events:?}");
    }

    #[test]
    fn the_wakers_event_is_told_apart_and_taken_out() {
        let event = |index| Event { key: Key { index, generation: 0 }, readiness: Readiness::READABLE };
        let waker = Event { key: WAKER, ..event(0) };
        let mut events = report([event(1), waker, event(2)].into_iter());
        assert_eq!(events.take_waker(), Woken::Yes);
        assert!(events.iter().eq([event(1), event(2)]), "{events:?}");
        assert_eq!(events.take_waker(), Woken::No);
    }
}
