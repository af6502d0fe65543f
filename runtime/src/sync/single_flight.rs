//! One call for all callers that ask for the same key at the same time.

use crate::goroutine::own_frame::{caught, throw_again};
use crate::goroutine::panic_text;
use crate::impls::opaque;
use crate::prim::{Arc, AtomicU32, Relaxed};
use crate::sync::mutex::Mutex;
use crate::sync::once_lock::OnceLock;
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::is_interrupt;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// How a call ended.
enum Outcome<V> {
    Value(V),
    /// The call panicked, with this text.
    Panicked(String),
    /// The caller that ran the call was ended from outside.
    Ended,
}

struct Call<V> {
    outcome: OnceLock<Outcome<V>>,
    /// The number of other callers that wait for the outcome. Increased under the lock of the calls.
    waiting: AtomicU32,
}

/// The caller that does the work. If that caller is left behind by its runtime, the waiting callers begin a call of their own.
#[repr(C)]
struct Flies<'a, V> {
    hook: StandingHook,
    call: &'a Call<V>,
}

impl<V> Flies<'_, V> {
    /// # Safety
    /// `hook` is the hook of a `Flies`.
    unsafe fn is_left(hook: *const AbandonHook) {
        // Without the lock: the next caller removes a call that has an outcome. SAFETY: by this function's contract. The
        // goroutine's stack stays, and with it its share of the call. This thread gets no value.
        let _set = unsafe { &*hook.cast::<Self>() }.call.outcome.set(Outcome::Ended);
    }
}

impl<V> Drop for Flies<'_, V> {
    fn drop(&mut self) {
        // SAFETY: the hook was noted, and is still there.
        unsafe { StandingHook::take_back(&raw const self.hook) };
    }
}

/// A caller that waits for another's call. The drop takes that caller off the count.
struct Waits<'a, V>(&'a Call<V>);

impl<V> Drop for Waits<'_, V> {
    fn drop(&mut self) {
        // Relaxed: the count orders nothing. Without the lock: the drop also runs while the goroutine unwinds, and must not
        // park.
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// Lets one of the callers that ask for the same key at the same time do the work, and gives all of them the value.
/// (Go's `golang.org/x/sync/singleflight`.)
///
/// ```
/// use gmp::{go, sync::SingleFlight};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let pages = Arc::new(SingleFlight::new());
///         let readers: Vec<_> = (0..10)
///             .map(|_| {
///                 let pages = Arc::clone(&pages);
///                 go(move || pages.work(&"index", || "its text".to_owned()).0)
///             })
///             .collect();
///         for reader in readers {
///             assert_eq!(reader.join().unwrap(), "its text");
///         }
///     })
/// }
/// ```
pub struct SingleFlight<K, V> {
    /// A mutex that parks: user code compares and hashes keys under it.
    calls: Mutex<HashMap<K, Arc<Call<V>>>>,
}

impl<K: Hash + Eq, V: Clone> SingleFlight<K, V> {
    /// Makes a `SingleFlight` without calls under way.
    #[must_use]
    pub fn new() -> Self {
        SingleFlight { calls: Mutex::new(HashMap::new()) }
    }

    /// Runs `f`, unless a call for this key is under way: then blocks the calling goroutine, or the plain thread, until that
    /// call is over. Returns the value, and `true` if another caller waited for the same value when the call ended. (A caller
    /// that was unwound out of its wait before does not count.) Deadlocks if `f` asks for the same key.
    ///
    /// The key can have any borrowed form whose `to_owned` is the key: a `&str` for a `String`. Only the caller that runs `f`
    /// makes a key of its own.
    ///
    /// ```
    /// use gmp::sync::SingleFlight;
    ///
    /// let pages = SingleFlight::<String, usize>::new();
    /// let path = "/index.html";
    /// assert_eq!(pages.work(path, || path.len()), (11, false));
    /// pages.forget(path);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// If `f` panics, the panic propagates in the caller that ran `f`; callers that waited panic with the same text. If the
    /// caller that runs `f` is ended from outside, or is left behind by the end of its runtime, the waiting callers begin
    /// again, with closures of their own. The key of a call that was left behind stays until the next call with that key.
    #[track_caller]
    pub fn work<Q>(&self, key: &Q, f: impl FnOnce() -> V) -> (V, bool)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        loop {
            let mut calls = self.calls.lock();
            let call = match calls.get(key) {
                Some(call) if call.outcome.get().is_none() => Arc::clone(call),
                // This call is over: its caller was left behind, or the key's own code panicked when the caller removed the
                // call.
                Some(_) => {
                    let over = calls.remove_entry(key);
                    drop(calls);
                    // User code drops the key and the value, after the lock. No caller waits for this call, and it has no
                    // successor yet.
                    drop(over);
                    continue;
                }
                None => {
                    let call = Arc::new(Call { outcome: OnceLock::new(), waiting: AtomicU32::new(0) });
                    calls.insert(key.to_owned(), Arc::clone(&call));
                    drop(calls);
                    return self.fly(key, &call, f);
                }
            };
            // Relaxed: the lock orders this addition before the look in `fly`.
            call.waiting.fetch_add(1, Relaxed);
            drop(calls);
            let _waits = Waits(&call);
            match call.outcome.wait() {
                Outcome::Value(value) => return (value.clone(), true),
                Outcome::Panicked(text) => panic!("SingleFlight: the call panicked: {text}"),
                Outcome::Ended => {}
            }
        }
    }

    fn fly<Q>(&self, key: &Q, call: &Arc<Call<V>>, f: impl FnOnce() -> V) -> (V, bool)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let flies = Flies { hook: StandingHook::new(Flies::<V>::is_left), call };
        // SAFETY: the hook is the first field of `flies`, which is not moved, and whose drop takes it back.
        unsafe { StandingHook::note((&raw const flies).cast()) };
        // A panic of the clone, which is user code, is caught too.
        let result = caught(|| {
            let value = f();
            (value.clone(), value)
        });
        let (outcome, result) = match result {
            Ok((copy, value)) => (Outcome::Value(copy), Ok(value)),
            Err(payload) if is_interrupt(&*payload) => (Outcome::Ended, Err(payload)),
            Err(payload) => {
                (Outcome::Panicked(panic_text(&*payload).unwrap_or("no text").to_owned()), Err(payload))
            }
        };
        // The outcome is set, and the entry removed, under one lock: a later caller begins a new call.
        let mut calls = self.calls.lock_surely();
        // Read before the outcome is set, which wakes callers that then leave. Relaxed: the lock orders the callers that came;
        // with or without a caller that is just leaving, the count is right.
        let shared = call.waiting.load(Relaxed) > 0;
        let set = call.outcome.set(outcome);
        debug_assert!(set.is_ok(), "fly: a call has one outcome");
        let mine = calls.get(key).is_some_and(|other| Arc::ptr_eq(other, call));
        let entry = if mine { calls.remove_entry(key) } else { None };
        drop(calls);
        drop(entry);
        match result {
            Ok(value) => (value, shared),
            Err(payload) => throw_again(payload),
        }
    }

    /// Forgets the call for this key: a later caller begins a new one, even while the old one is under way. Blocks the
    /// calling goroutine, or the plain thread, while another caller looks up a key.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let forgotten = self.calls.lock().remove_entry(key);
        // The entry is dropped here, after the lock, as the key's `drop` is user code.
        drop(forgotten);
    }
}

impl<K: Hash + Eq, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

opaque!([K, V] SingleFlight<K, V>);
