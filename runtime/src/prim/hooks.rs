//! The annotations by which shipped code carries its mutants, which prove that loom finds each of them.
//!
//! * `mutant!(X: statements)` is a line of its own. A reader of the protocol skips that line: the function without it is what
//!   ships. If the mutant `X` is on, the statements run there: mostly `return`, or a step that comes too early. A variable gets
//!   another value by `mutant!(X: let name = value)`, and `mutant!(X: keep name = value)` makes an `Option` that a later line
//!   of the same mutant uses.
//! * `Release.unless(X)` is the ordering before the dot, and `Relaxed` if `X` is on. `fence` with `Relaxed` is no fence.
//!   `both(Acquire.unless(X), Release.unless(Y))` is `AcqRel`. A condition with `.unless(X)` is false if `X` is on.
//! * `unless!(X, statement)` is the statement, and nothing if `X` is on. For a statement that no `mutant!` before it can skip.
//!
//! All mutants are in one build, with the cfg `gmp_loom`; the environment of the process says which one is on. Without the
//! cfg `mutant!` and `unless!` name their mutant in a constant, which becomes no code: a misspelt name fails to compile,
//! and a variant that no annotation names is reported as dead code. An annotation is one line: a longer mutation is a
//! function in the folder's module `mutants`, which only the models have.

pub(crate) use super::Mutant::{self, *};
use super::Ordering;

/// Weakens a value if a mutant is on.
pub(crate) trait Unless: Sized {
    /// The value itself, unless `mutant` is on.
    fn unless(self, mutant: Mutant) -> Self;
}

#[cfg(not(gmp_loom))]
mod native {
    use super::{Mutant, Ordering, Unless};

    impl Unless for Ordering {
        #[inline(always)]
        fn unless(self, _: Mutant) -> Self {
            self
        }
    }

    impl Unless for bool {
        #[inline(always)]
        fn unless(self, _: Mutant) -> Self {
            self
        }
    }

    /// Acquire and Release.
    #[inline(always)]
    pub(crate) const fn both(_acquire: Ordering, _release: Ordering) -> Ordering {
        Ordering::AcqRel
    }

    macro_rules! mutant {
        ($mutant:ident: $($mutation:tt)*) => {
            const _: $crate::prim::Mutant = $crate::prim::Mutant::$mutant;
        };
    }

    macro_rules! unless {
        ($mutant:ident, $shipped:expr) => {{
            const _: $crate::prim::Mutant = $crate::prim::Mutant::$mutant;
            $shipped
        }};
    }

    pub(crate) use {mutant, unless};
}
#[cfg(not(gmp_loom))]
pub(crate) use native::*;

#[cfg(gmp_loom)]
mod model {
    use super::{Mutant, Ordering, Unless};

    pub(crate) use super::super::relax;

    /// Returns the mutant of this process, which the environment names as its variant is spelt.
    fn chosen() -> Option<&'static str> {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        CHOSEN.get_or_init(|| std::env::var("GMP_MUTANT").ok()).as_deref()
    }

    /// Called by the macros alone: elsewhere a mutation has one of the forms above.
    pub(crate) fn mutated(mutant: Mutant) -> bool {
        chosen().is_some_and(|name| name == format!("{mutant:?}"))
    }

    impl Unless for Ordering {
        fn unless(self, mutant: Mutant) -> Self {
            if mutated(mutant) { Ordering::Relaxed } else { self }
        }
    }

    impl Unless for bool {
        fn unless(self, mutant: Mutant) -> Self {
            self && !mutated(mutant)
        }
    }

    pub(crate) fn both(acquire: Ordering, release: Ordering) -> Ordering {
        match (acquire, release) {
            (Ordering::Relaxed, _) => release,
            (_, Ordering::Relaxed) => acquire,
            _ => Ordering::AcqRel,
        }
    }

    macro_rules! mutant {
        ($mutant:ident: let $name:ident = $value:expr) => {
            let $name =
                if $crate::prim::hooks::mutated($crate::prim::Mutant::$mutant) { $value } else { $name };
        };
        ($mutant:ident: keep $name:ident = $value:expr) => {
            let $name = $crate::prim::hooks::mutated($crate::prim::Mutant::$mutant).then(|| $value);
        };
        ($mutant:ident: $($statements:tt)*) => {
            if $crate::prim::hooks::mutated($crate::prim::Mutant::$mutant) {
                $($statements)*
            }
        };
    }

    macro_rules! unless {
        ($mutant:ident, $shipped:expr) => {
            if !$crate::prim::hooks::mutated($crate::prim::Mutant::$mutant) {
                $shipped
            }
        };
    }

    pub(crate) use {mutant, unless};
}
#[cfg(gmp_loom)]
pub(crate) use model::*;
