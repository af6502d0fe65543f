//! What all guards share: a guard dereferences to the value, prints the value, and can be narrowed to a part of the
//! value.

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

/// A guard of a part of what another guard guards, and its `map`, `try_map` and `try_map_or_err`.
macro_rules! mapped {
    ($(#[$doc:meta])* $guard:ident, $raw:ty, $unlock:ident, $pointer:ident, ($($mutability:tt)?), $bound:ident) => {
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

            /// Returns a guard of a part of the guarded value. A function, not a method, as a method would hide one of
            /// `T`'s.
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
