//! The class of a goroutine, and the hint that names the P that is to run it, in the G's `life`.
//!
//! A G has no byte to spare, and `life` has bits: two of them are the class, zero for `Normal`, and eleven the hint, zero for
//! none. Every party changes `life` by exchanges that keep the other parties' bits, so class and hint need no protocol of their
//! own. A setter of the hint takes the same steps as a setter of the class:
//!
//! ```text
//!   setter, the handle's owner or the goroutine      the M at the end, the ender, a joiner, a handle that is dropped
//!
//!   Q1  DONE?  then it is too late                   (`g/mod.rs`)
//!   Q2  one exchange of the class alone              one exchange of their bits alone, again if it fails
//! ```
//! * *The end*: `finish` looks, and exchanges the value that it has seen. Either Q2 comes before that exchange, which then
//!   fails once if Q2 came after the look; or Q2 finds DONE.
//! * *Being left behind*: as for the end, with `mark_left`.
//! * *Re-use*: the next goroutine's `begin` stores the whole word, with the class `Normal`. A setter is the goroutine itself,
//!   or the M that makes it of a job, while LIVE keeps the G; or the owner of the handle, whose HANDLE keeps the G. So no
//!   setter meets the life of another goroutine.
//! * *An M that has the G to itself*, because the handle is gone, stores without an exchange: then there is no setter.
//!
//! The submitter reads class and hint, Relaxed, when it queues the goroutine: a change that comes at that moment counts from
//! the next time on.
//!
//! Checked by `models/class.rs`.

use super::G;
use super::life::{CLASS, DONE, HINT};
use crate::host::Host;
use crate::prim::Relaxed;
use crate::prim::hooks::*;
use crate::runtime::priority::Priority;

/// Where the class and the hint begin in `life`.
const SHIFT: u32 = CLASS.trailing_zeros();
const HINT_SHIFT: u32 = HINT.trailing_zeros();

impl<H: Host> G<H> {
    /// Returns the class by which the goroutine is queued.
    #[inline]
    pub(crate) fn class(&self) -> Priority {
        // Relaxed: a word by itself, which publishes no other memory.
        Priority::of_code((self.life.load(Relaxed) & CLASS) >> SHIFT)
    }

    /// Q1 and Q2, by the goroutine or by the handle's owner. Returns `false` if the goroutine has ended, or was left.
    pub(crate) fn set_class(&self, class: Priority) -> bool {
        self.set_bits(CLASS, class.code() << SHIFT)
    }

    /// Returns the number of the P in whose mailbox the goroutine is to be queued, wherever it becomes ready.
    #[inline]
    pub(crate) fn hint(&self) -> Option<u32> {
        // Relaxed: as in `class`.
        ((self.life.load(Relaxed) & HINT) >> HINT_SHIFT).checked_sub(1)
    }

    /// As `set_class`, for the hint. A number that no P can have counts as no hint.
    pub(crate) fn set_hint(&self, p: Option<u32>) -> bool {
        let code = p.filter(|&p| p < HINT >> HINT_SHIFT).map_or(0, |p| p + 1);
        self.set_bits(HINT, code << HINT_SHIFT)
    }

    fn set_bits(&self, mask: u32, bits: u32) -> bool {
        // Relaxed: as in `class`. The exchange keeps the bits of the other parties, and continues their release sequences.
        let mut life = self.life.load(Relaxed);
        loop {
            if (life & DONE != 0).unless(ClassAfterTheEnd) {
                return false;
            }
            let next = life & !mask | bits;
            mutant!(ClassByStore: self.life.store(next, Relaxed); return true);
            match self.life.compare_exchange(life, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => life = now,
            }
        }
    }
}
