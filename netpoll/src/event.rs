//! The kernel's reports about descriptors: which descriptor an event belongs to, and what it makes ready.
//!
//! A [`Key`] is the number that the kernel hands back with each event. Records of descriptors are reused, and
//! events that another thread has already fetched cannot be called back; so a key carries the record's
//! generation, and an event whose generation is not the record's any more is stale and dropped.
//!
//! A [`Readiness`] is what happened since the last report. On a stream, data and the stream's end come as *one* edge. A read
//! that filled less than the buffer usually proves the socket drained, which saves a second read for `EAGAIN`; but when the
//! peer's end is already there, only that second read returns the end, and no further edge will prompt that read. So the bits
//! [`Readiness::STICKY`] stay set for a descriptor once they were seen.
//!
//! Order for the poller: first add the event's sticky bits to the descriptor, then [unblock](crate::Slot::unblock) its slots.
//! So an owner that consumes the event sees the bits; an owner whose read was earlier finds the event in its slot the next
//! time.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Names one use of one record of a descriptor.
///
/// ```
/// use gmp_netpoll::Key;
///
/// let first = Key { index: 3, generation: 1 };
/// let next = Key { generation: 2, ..first };
/// // An event of the first use of the record is told from those of the next.
/// assert_ne!(first, next);
/// assert_eq!(Key::from_bits(first.to_bits()), first);
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Key {
    /// The number of the record. [`u32::MAX`] is the poller's own.
    pub index: u32,
    /// The number of the record's use. The owner of the records raises it for each new use; after 2³² uses the
    /// numbers repeat.
    pub generation: u32,
}

impl Key {
    /// Returns the number that the kernel keeps with the descriptor.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the key from the number that the kernel handed back.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A set of things that happened to a descriptor.
///
/// ```
/// use gmp_netpoll::Readiness;
///
/// let both = Readiness::READABLE | Readiness::READ_HUP;
/// assert!(both.contains(Readiness::READABLE) && both.wakes_reader());
/// // The data can be read once, the end of the stream stays.
/// assert_eq!(both.sticky(), Readiness::READ_HUP);
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// Nothing.
    pub const EMPTY: Self = Self(0);
    /// A read, or an accept, may find something.
    pub const READABLE: Self = Self(1);
    /// A write may find room, or a connect has ended.
    pub const WRITABLE: Self = Self(1 << 1);
    /// The peer writes no more: after the data that is still there comes the end (`EPOLLRDHUP`).
    pub const READ_HUP: Self = Self(1 << 2);
    /// Both directions have ended (`EPOLLHUP`).
    pub const HUP: Self = Self(1 << 3);
    /// An error waits to be fetched, such as a reset (`EPOLLERR`).
    pub const ERROR: Self = Self(1 << 4);
    /// Urgent data has come (`EPOLLPRI`): a read stops at its mark, however much follows.
    pub const URGENT: Self = Self(1 << 5);
    /// The bits that stay true of a descriptor once they were seen.
    pub const STICKY: Self = Self(Self::READ_HUP.0 | Self::HUP.0 | Self::ERROR.0 | Self::URGENT.0);

    /// Returns the set as a number, for an atomic of its owner.
    #[inline]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns the set from its number; bits that mean nothing are dropped.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & (Self::READABLE.0 | Self::WRITABLE.0 | Self::STICKY.0))
    }

    /// Returns `true` if all of `other` is in the set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns `true` if any of `other` is in the set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns `true` if a waiting reader has to try again. The end of the stream and an error are news for a reader,
    /// too.
    #[inline]
    pub const fn wakes_reader(self) -> bool {
        self.intersects(Self(Self::READABLE.0 | Self::STICKY.0))
    }

    /// Returns `true` if a waiting writer has to try again. If the peer has only stopped writing, that is no news for a writer.
    #[inline]
    pub const fn wakes_writer(self) -> bool {
        self.intersects(Self(Self::WRITABLE.0 | Self::HUP.0 | Self::ERROR.0))
    }

    /// Returns the part that the descriptor keeps.
    #[inline]
    pub const fn sticky(self) -> Self {
        Self(self.0 & Self::STICKY.0)
    }

    /// Returns `true` if, on TCP, a read that filled less than its buffer proves the socket drained. `self` is the set that the
    /// descriptor has kept, loaded after the read.
    #[inline]
    pub const fn short_read_drains(self) -> bool {
        !self.intersects(Self::STICKY)
    }
}

impl BitOr for Readiness {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Readiness {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["READABLE", "WRITABLE", "READ_HUP", "HUP", "ERROR", "URGENT"];
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0);
        let mut parts = names.map(|(_, name)| *name).peekable();
        if parts.peek().is_none() {
            return f.write_str("EMPTY");
        }
        parts.enumerate().try_for_each(|(i, name)| {
            f.write_str(if i == 0 { "" } else { "|" })?;
            f.write_str(name)
        })
    }
}

/// One report about one descriptor.
///
/// ```
/// use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
/// use std::os::{fd::AsFd, unix::net::UnixStream};
///
/// let (poller, mut events) = (Poller::new()?, Events::with_capacity(8));
/// let (near, _far) = UnixStream::pair()?;
/// let key = Key { index: 3, generation: 1 };
/// poller.add(near.as_fd(), key)?;
/// assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
/// for event in events.iter() {
///     assert_eq!((event.key, event.readiness), (key, Readiness::WRITABLE));
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Event {
    /// The key with which the descriptor was added; may be stale.
    pub key: Key,
    /// The readiness that the poller reports.
    pub readiness: Readiness,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_way_through_the_kernel() {
        for index in [0, 1, u32::MAX] {
            for generation in [0, 1, u32::MAX] {
                let key = Key { index, generation };
                assert_eq!(Key::from_bits(key.to_bits()), key);
            }
        }
    }

    #[test]
    fn another_generation_is_another_number() {
        let old = Key { index: 3, generation: 9 };
        assert_ne!(old.to_bits(), Key { generation: 10, ..old }.to_bits());
    }

    #[test]
    fn each_bit_wakes_the_directions_that_it_concerns() {
        type R = Readiness;
        let table = [
            (R::EMPTY, false, false, true),
            (R::READABLE, true, false, true),
            (R::WRITABLE, false, true, true),
            (R::READ_HUP, true, false, false),
            (R::HUP, true, true, false),
            (R::ERROR, true, true, false),
            (R::READABLE | R::URGENT, true, false, false),
            (R::READABLE | R::WRITABLE, true, true, true),
            (R::READABLE | R::READ_HUP, true, false, false),
        ];
        for (readiness, reader, writer, drains) in table {
            assert_eq!(readiness.wakes_reader(), reader, "{readiness:?}");
            assert_eq!(readiness.wakes_writer(), writer, "{readiness:?}");
            assert_eq!(readiness.short_read_drains(), drains, "{readiness:?}");
        }
    }

    #[test]
    fn only_the_ends_stay() {
        for bits in 0..=u8::MAX {
            let all = Readiness::from_bits(bits);
            let kept = all.sticky();
            assert_eq!(kept.to_bits(), bits & 0b111100);
            assert!(all.contains(kept) && !kept.intersects(Readiness::READABLE | Readiness::WRITABLE));
            assert_eq!(all.to_bits(), bits & 0b111111);
        }
    }

    #[test]
    fn debug_prints_names() {
        let mut seen = Readiness::READABLE;
        seen |= Readiness::READ_HUP;
        assert_eq!(format!("{seen:?} {:?}", Readiness::EMPTY), "READABLE|READ_HUP EMPTY");
    }
}
