//! A pool of values for reuse.

use crate::host::Active;
use crate::m::M;
use crate::prim::capacity::POOL_SHARDS;
use crate::prim::{AtomicU32, CachePadded, Mutex, Rank, Relaxed};
use std::fmt;

/// The most values that a shard keeps.
const KEEPS: usize = 32;

struct Shard<T> {
    values: Mutex<Vec<T>>,
    /// The number of values. A hint for callers from other shards.
    len: AtomicU32,
}

impl<T> Shard<T> {
    fn pop(&self) -> Option<T> {
        let mut values = self.values.lock();
        let value = values.pop();
        self.len.store(values.len() as u32, Relaxed);
        value
    }

    /// Returns the value as the error if there is no room.
    fn push(&self, value: T) -> Result<(), T> {
        let mut values = self.values.lock();
        if values.len() == KEEPS {
            return Err(value);
        }
        values.push(value);
        self.len.store(values.len() as u32, Relaxed);
        Ok(())
    }
}

/// Keeps values that are expensive to make, for reuse. (The idea of Go's `sync.Pool`.)
///
/// Each P has its own shard, as a value that was put there may still be in that core's cache; a caller whose shard is empty
/// takes a value from the others. A plain thread uses the first shard. Calls block for short locks only.
///
/// Memory is bounded: there are 32 shards of at most 32 values, and [`put`](Self::put) drops a value for which there
/// is no room. Other values live until they are taken or the pool is dropped: there is no garbage collector that
/// would drop them earlier.
///
/// ```
/// use gmp::sync::Pool;
///
/// let buffers = Pool::new(|| Vec::<u8>::with_capacity(1 << 16));
/// let mut buffer = buffers.get();
/// buffer.extend(b"hello");
/// buffer.clear();
/// buffers.put(buffer);
/// assert_eq!(buffers.get().capacity(), 1 << 16);
/// ```
pub struct Pool<T> {
    shards: Box<[CachePadded<Shard<T>>]>,
    make: Box<dyn Fn() -> T + Send + Sync>,
}

impl<T> Pool<T> {
    /// Makes an empty pool. `make` makes a value when `get` finds none.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let shard = || {
            CachePadded::new(Shard {
                values: Mutex::new(Rank::PoolShard, Vec::new()),
                len: AtomicU32::new(0),
            })
        };
        Pool { shards: (0..POOL_SHARDS).map(|_| shard()).collect(), make: Box::new(make) }
    }

    /// Returns the number of the caller's shard. A goroutine may be on another P the next moment.
    fn home(&self) -> usize {
        let inside = M::<Active>::current().and_then(M::look_in);
        inside.map_or(0, |inside| inside.p.id as usize) % POOL_SHARDS
    }

    /// Returns a value that was put into the pool, or a new one. The closure of `new` runs without a lock. Does not block,
    /// unless the closure does.
    pub fn get(&self) -> T {
        let home = self.home();
        let others = (home + 1..home + POOL_SHARDS).map(|number| number % POOL_SHARDS);
        // Relaxed: a hint; a caller that misses a value makes a new one.
        let mut others = others.filter(|&number| self.shards[number].len.load(Relaxed) > 0);
        self.shards[home]
            .pop()
            .or_else(|| others.find_map(|number| self.shards[number].pop()))
            .unwrap_or_else(|| (self.make)())
    }

    /// Puts a value into the pool, or drops the value if the shard is full. Does not block, unless the value's `drop`
    /// does.
    pub fn put(&self, value: T) {
        // A value without room is dropped here, after the lock.
        drop(self.shards[self.home()].push(value));
    }
}

impl<T: Default + 'static> Default for Pool<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: u32 = self.shards.iter().map(|shard| shard.len.load(Relaxed)).sum();
        f.debug_struct("Pool").field("kept", &kept).finish_non_exhaustive()
    }
}
