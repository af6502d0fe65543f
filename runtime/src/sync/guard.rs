//! The parts that all guards share: a guard dereferences to the value, prints the value, can be narrowed to a part of the
//! value, and can let others in meanwhile.

use crate::goroutine::own_frame::{caught, throw_again};
use crate::sync::raw_rwlock::RawRwLock;

/// Runs `f` between an unlock and a lock. A panic of `f` propagates with the lock held.
pub(super) fn unlocked<U>(unlock: impl FnOnce(), f: impl FnOnce() -> U, lock: impl FnOnce()) -> U {
    unlock();
    // The lock is not taken in a destructor, as a goroutine does not park while unwinding (`gmp::migration`).
    let result = caught(f);
    lock();
    result.unwrap_or_else(|payload| throw_again(payload))
}

/// The methods by which a guard of an `RwLock` lets others in, for good or meanwhile. Each unlock of an `RwLock` is fair.
macro_rules! lets_others_in {
    ($guard:ident $(<$lifetime:lifetime>)?, $take:ident, $kind:ident, $unlock:ident) => {
        impl<T: ?Sized> $guard<$($lifetime,)? T> {
            /// Unlocks. As each unlock is fair, this is the drop of the guard.
            pub fn unlock_fair(s: Self) {
                drop(s);
            }

            /// Unlocks, runs `f`, and locks again. The last step blocks as
            #[doc = concat!("[`RwLock::", stringify!($take), "`](crate::sync::RwLock::", stringify!($take), ") does,")]
            /// and nothing interrupts it. A panic of `f` propagates with the lock held.
            ///
            /// # Unwinds
            /// When a wait of `f` is ended from outside, with the lock held again; see
            /// [`migration`](crate::migration#what-may-unwind). The wait for the lock itself does not unwind.
            ///
            /// ```
            #[doc = concat!("use gmp::sync::{", stringify!($guard), ", RwLock};")]
            /// use std::sync::Arc;
            ///
            /// let lock = Arc::new(RwLock::new(1));
            #[doc = concat!("let mut guard = lock.", stringify!($take), "();")]
            #[doc = concat!(stringify!($guard), "::unlocked(&mut guard, || *lock.try_write().unwrap() += 1);")]
            /// assert_eq!(*guard, 2);
            /// assert!(lock.try_write().is_none());
            /// ```
            pub fn unlocked<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
                let raw = &s.lock.raw;
                let locks = || _ = raw.lock_surely(Kind::$kind, None);
                $crate::sync::guard::unlocked(|| raw.$unlock(), f, locks)
            }

            /// Does the same as [`unlocked`](Self::unlocked), as each unlock is fair.
            ///
            /// # Unwinds
            /// As [`unlocked`](Self::unlocked).
            pub fn unlocked_fair<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
                Self::unlocked(s, f)
            }

            /// Unlocks, which lets the waiters in, and locks again behind them: blocks as
            #[doc = concat!("[`RwLock::", stringify!($take), "`](crate::sync::RwLock::", stringify!($take), ") does.")]
            ///
            /// # Unwinds
            /// Never: nothing interrupts the wait for the lock.
            pub fn bump(s: &mut Self) {
                Self::unlocked(s, || ());
            }
        }
    };
}
pub(super) use lets_others_in;

/// Its drop makes the writer the upgradable reader again.
pub(super) struct Downgrades<'a>(pub(super) &'a RawRwLock);

impl Drop for Downgrades<'_> {
    fn drop(&mut self) {
        self.0.downgrade_to_upgradable();
    }
}

/// The methods by which a guard of an upgradable read writes meanwhile.
macro_rules! writes_meanwhile {
    ($guard:ident $(<$lifetime:lifetime>)?, $take:ident) => {
        impl<T: ?Sized> $guard<$($lifetime,)? T> {
            /// Makes the read a write while `f` runs, which may change the value, and returns the value of `f`. No other writer
            /// gets the lock before `f` runs or directly afterwards: the guard continues to read. Blocks the calling goroutine,
            /// or the plain thread, until the other readers have gone. A panic of `f` propagates; the guard continues to read
            /// then, too.
            ///
            /// # Unwinds
            /// When the wait is ended from outside, before `f` runs; see [`migration`](crate::migration#what-may-unwind).
            ///
            /// ```
            /// use gmp::sync::RwLock;
            /// use std::sync::Arc;
            ///
            /// let names = Arc::new(RwLock::new(vec!["g"]));
            #[doc = concat!("let mut looks = names.", stringify!($take), "();")]
            /// if !looks.contains(&"m") {
            ///     looks.with_upgraded(|names| names.push("m"));
            /// }
            /// assert_eq!(names.try_read().unwrap().len(), looks.len());
            /// ```
            pub fn with_upgraded<U>(&mut self, f: impl FnOnce(&mut T) -> U) -> U {
                self.lock.raw.lock(Kind::Upgrade, None);
                self.write(f)
            }

            /// As [`with_upgraded`](Self::with_upgraded), if there is no other reader; returns `None` otherwise. Does not
            /// block.
            pub fn try_with_upgraded<U>(&mut self, f: impl FnOnce(&mut T) -> U) -> Option<U> {
                self.lock.raw.try_lock_in_line(Kind::Upgrade).then(|| self.write(f))
            }

            /// As [`with_upgraded`](Self::with_upgraded); returns `None` if another reader is still there after `timeout`.
            ///
            /// # Unwinds
            /// As [`with_upgraded`](Self::with_upgraded).
            pub fn try_with_upgraded_for<U>(
                &mut self,
                timeout: Duration,
                f: impl FnOnce(&mut T) -> U,
            ) -> Option<U> {
                self.lock.raw.lock(Kind::Upgrade, Some(Active::after(timeout))).then(|| self.write(f))
            }

            /// As [`with_upgraded`](Self::with_upgraded); returns `None` if another reader is still there at `timeout`.
            ///
            /// # Unwinds
            /// As [`with_upgraded`](Self::with_upgraded).
            pub fn try_with_upgraded_until<U>(
                &mut self,
                timeout: Instant,
                f: impl FnOnce(&mut T) -> U,
            ) -> Option<U> {
                self.lock.raw.lock(Kind::Upgrade, Some(Active::nanos(timeout))).then(|| self.write(f))
            }

            /// Runs `f` as the writer, after the upgrade was granted.
            fn write<U>(&mut self, f: impl FnOnce(&mut T) -> U) -> U {
                let _downgrades = $crate::sync::guard::Downgrades(&self.lock.raw);
                // SAFETY: the lock is held for writing until the line above is dropped, and `&mut self` is the only guard.
                let value = self.lock.value.with_mut(|value| unsafe { &mut *value });
                $crate::goroutine::own_frame::in_own_frame(|| f(value))
            }
        }
    };
}
pub(super) use writes_meanwhile;

/// The methods by which a guard of an upgradable read becomes `$writes`, a writer's guard. With an example for `upgrade`.
macro_rules! upgrades {
    ($(#[$example:meta])* $guard:ident $(<$lifetime:lifetime>)?, $writes:ident) => {
        impl<$($lifetime,)? T: ?Sized> $guard<$($lifetime,)? T> {
            /// Makes the read a write. Blocks the calling goroutine, or the plain thread, until the other readers have gone. No
            /// writer comes before the upgrade, and no new reader except those of
            /// [`read_recursive`](crate::sync::RwLock::read_recursive), for which the upgrade waits as well.
            ///
            $(#[$example])*
            ///
            /// # Unwinds
            /// When the wait is ended from outside, and the read with it; see
            /// [`migration`](crate::migration#what-may-unwind).
            pub fn upgrade(s: Self) -> $writes<$($lifetime,)? T> {
                s.lock.raw.lock(Kind::Upgrade, None);
                s.upgraded()
            }

            /// Makes the read a write, if there is no other reader. Does not block.
            ///
            /// # Errors
            /// `s`, if there is another reader.
            pub fn try_upgrade(s: Self) -> Result<$writes<$($lifetime,)? T>, Self> {
                if s.lock.raw.try_lock_in_line(Kind::Upgrade) { Ok(s.upgraded()) } else { Err(s) }
            }

            /// As [`upgrade`](Self::upgrade), for at most `timeout`.
            ///
            /// # Unwinds
            /// As [`upgrade`](Self::upgrade).
            ///
            /// # Errors
            /// `s`, if another reader is still there then.
            pub fn try_upgrade_for(s: Self, timeout: Duration) -> Result<$writes<$($lifetime,)? T>, Self> {
                let upgraded = s.lock.raw.lock(Kind::Upgrade, Some(Active::after(timeout)));
                if upgraded { Ok(s.upgraded()) } else { Err(s) }
            }

            /// As [`upgrade`](Self::upgrade), until `timeout` at most.
            ///
            /// # Unwinds
            /// As [`upgrade`](Self::upgrade).
            ///
            /// # Errors
            /// `s`, if another reader is still there then.
            pub fn try_upgrade_until(s: Self, timeout: Instant) -> Result<$writes<$($lifetime,)? T>, Self> {
                let upgraded = s.lock.raw.lock(Kind::Upgrade, Some(Active::nanos(timeout)));
                if upgraded { Ok(s.upgraded()) } else { Err(s) }
            }
        }
    };
}
pub(super) use upgrades;

/// `Deref`, `Debug` and `Display` for a guard with a method `value`.
macro_rules! shows {
    ($guard:ident) => {
        impl<T: ?Sized> std::ops::Deref for $guard<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                self.value()
            }
        }
        impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
        impl<T: ?Sized + std::fmt::Display> std::fmt::Display for $guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}
pub(super) use shows;

/// A guard of a part of the value, with `map`, `try_map` and `try_map_or_err`.
macro_rules! mapped {
    (
        $(#[$doc:meta])*
        $guard:ident, $raw:ty, $unlock:ident, $unlock_fair:ident, $pointer:ident, ($($mutability:tt)?), $bound:ident
    ) => {
        $(#[$doc])*
        #[must_use = "dropped at once it unlocks at once"]
        pub struct $guard<'a, T: ?Sized> {
            raw: &'a $raw,
            value: std::ptr::NonNull<T>,
            borrows: std::marker::PhantomData<&'a $($mutability)? T>,
        }

        // SAFETY: the guard is a reference to the value, and any thread may unlock.
        unsafe impl<T: ?Sized + $bound> Send for $guard<'_, T> {}
        // SAFETY: as for `Send`.
        unsafe impl<T: ?Sized + Sync> Sync for $guard<'_, T> {}

        impl<'a, T: ?Sized> $guard<'a, T> {
            fn value(&self) -> &T {
                // SAFETY: the lock is held by this guard.
                unsafe { self.value.as_ref() }
            }

            fn disarm(self) -> (&'a $raw, std::ptr::NonNull<T>) {
                let it = std::mem::ManuallyDrop::new(self);
                (it.raw, it.value)
            }

            /// Unlocks, and lets in the waiters that have waited longest.
            pub fn unlock_fair(s: Self) {
                let (raw, _part) = s.disarm();
                raw.$unlock_fair();
            }

            /// Returns a guard of a part of the guarded value. A function, not a method, as a method would hide a method of
            /// `T`.
            pub fn map<U: ?Sized>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> &$($mutability)? U,
            ) -> $guard<'a, U> {
                match Self::try_map(s, |value| Some(f(value))) {
                    Ok(guard) => guard,
                    Err(_) => unreachable!("map: the closure gives a part"),
                }
            }

            /// Returns a guard of a part of the guarded value, or `s` again if there is no such part.
            ///
            /// # Errors
            /// `s`, if `f` returns `None`.
            pub fn try_map<U: ?Sized>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> Option<&$($mutability)? U>,
            ) -> Result<$guard<'a, U>, Self> {
                Self::try_map_or_err(s, |value| f(value).ok_or(())).map_err(|(s, ())| s)
            }

            /// Returns a guard of a part of the guarded value, or `s` again with the error of `f` if there is no such
            /// part. Example: [`MutexGuard::try_map_or_err`](crate::sync::MutexGuard::try_map_or_err).
            ///
            /// # Errors
            /// `s` and the error of `f`.
            pub fn try_map_or_err<U: ?Sized, E>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> Result<&$($mutability)? U, E>,
            ) -> Result<$guard<'a, U>, (Self, E)> {
                #[allow(unused_mut)]
                let mut value = s.value;
                // SAFETY: as in `value`; `s` is not used meanwhile, and unlocks if `f` unwinds.
                match f(unsafe { value.$pointer() }) {
                    Err(error) => Err((s, error)),
                    Ok(part) => {
                        let value = std::ptr::NonNull::from(part);
                        let (raw, _whole) = s.disarm();
                        Ok($guard { raw, value, borrows: std::marker::PhantomData })
                    }
                }
            }
        }

        impl<T: ?Sized> Drop for $guard<'_, T> {
            #[inline]
            fn drop(&mut self) {
                self.raw.$unlock();
            }
        }

        $crate::sync::guard::shows!($guard);
    };
}
pub(super) use mapped;

/// `map`, `try_map` and `try_map_or_err` of a guard of a whole value, with an example for the last one. If there is no part,
/// the lock makes the guard again, by `$again`.
macro_rules! maps {
    ($(#[$example:meta])* $guard:ident, $mapped:ident, ($($mutability:tt)?), $lock:ident, $again:ident) => {
        impl<'a, T: ?Sized> $guard<'a, T> {
            /// Returns a guard of a part of the value.
            pub fn map<U: ?Sized>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> &$($mutability)? U,
            ) -> $mapped<'a, U> {
                $mapped::map(s.mapped(), f)
            }

            /// Returns a guard of a part of the value, or `s` again if there is no such part.
            ///
            /// # Errors
            /// `s`, if `f` returns `None`.
            pub fn try_map<U: ?Sized>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> Option<&$($mutability)? U>,
            ) -> Result<$mapped<'a, U>, Self> {
                Self::try_map_or_err(s, |value| f(value).ok_or(())).map_err(|(s, ())| s)
            }

            /// Returns a guard of a part of the value, or `s` again with the error of `f`, which says why there is no such
            /// part.
            ///
            /// # Errors
            /// `s` and the error of `f`; the lock is held throughout.
            ///
            $(#[$example])*
            pub fn try_map_or_err<U: ?Sized, E>(
                s: Self,
                f: impl FnOnce(&$($mutability)? T) -> Result<&$($mutability)? U, E>,
            ) -> Result<$mapped<'a, U>, (Self, E)> {
                let lock = s.$lock;
                $mapped::try_map_or_err(s.mapped(), f).map_err(|(whole, error)| {
                    std::mem::forget(whole);
                    (lock.$again(), error)
                })
            }
        }
    };
}
pub(super) use maps;
