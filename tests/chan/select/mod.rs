//! `select!`, `select_biased!` and `Select`: one of several operations, each equally likely, is done, and no part of the
//! others.

mod arms;
mod dynamic;
mod ended;
mod fair;
mod macros;
mod meet;
mod unwound;

use common::crew::CREWS;
use common::random;

/// What each of `takers` has to do in each crew, so that it is `total` in all.
fn share(total: usize, takers: usize) -> usize {
    random::rounds(total / 2 / CREWS / takers)
}
