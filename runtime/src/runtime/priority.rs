//! [`Priority`], the class of a goroutine, and [`ClassLoad`], in the public interface.

use std::fmt;

/// The class of a goroutine, which says which goroutines go first. A goroutine is [`Normal`](Self::Normal) unless its spawner
/// says otherwise, by [`Builder::priority`](crate::Builder::priority) or
/// [`Context::with_priority`](crate::context::Context::with_priority).
///
/// A class decides which of the ready goroutines runs next; no goroutine is stopped for another. `docs/priorities.md` says how
/// long each class may wait, and what a class costs; `docs/choosing.md` says when a class is worth that.
///
/// ```
/// use gmp::{Builder, Priority};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let urgent = Builder::new().priority(Priority::High).go(gmp::priority)?;
///         assert_eq!(urgent.join().unwrap(), Priority::High);
///         assert_eq!(gmp::priority(), Priority::Normal);
///         assert!(Priority::High > Priority::Normal);
///         Ok::<_, std::io::Error>(())
///     })?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Priority {
    /// Runs when its P finds no other ready goroutine. There is no bound on how long such a goroutine waits: while it holds a
    /// lock, others may wait for that lock as long.
    Background,
    /// Runs when its P finds no ready `Normal` or `High` goroutine, and has one turn in
    /// [`low_share`](crate::RuntimeBuilder::low_share) beside them.
    Low,
    /// The default class of a goroutine.
    #[default]
    Normal,
    /// Runs before all other ready goroutines: as soon as one of the Ps takes its next goroutine.
    High,
}

impl Priority {
    /// Returns the code for the bits of a word; zero for `Normal`.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Priority::Normal => 0,
            Priority::High => 1,
            Priority::Low => 2,
            Priority::Background => 3,
        }
    }

    /// Returns the class for a value of `code`.
    pub(crate) const fn of_code(code: u32) -> Self {
        match code {
            1 => Priority::High,
            2 => Priority::Low,
            3 => Priority::Background,
            _ => Priority::Normal,
        }
    }
}

/// Writes `high`, `normal`, `low` or `background`.
impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
            Priority::Background => "background",
        })
    }
}

/// The load of a class, as [`Handle::class_load`](crate::Handle::class_load) returns it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClassLoad {
    /// How many goroutines of the class are ready and wait for their turn, in any queue, without those that
    /// [`go_lifo`](crate::go_lifo) has put aside.
    pub waiting: usize,
    /// How often a goroutine was taken out of the queue of the class for a turn since the runtime began. `None` for `Normal`,
    /// whose turns are not counted: the count would cost programs without classes.
    pub turns: Option<u64>,
}
