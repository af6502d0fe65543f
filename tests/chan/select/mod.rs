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

/// Returns the share of each of `takers` in each crew, so that all shares sum up to `total`.
fn share(total: usize, takers: usize) -> usize {
    random::rounds(total / 2 / CREWS / takers)
}
