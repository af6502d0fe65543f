#![cfg(not(gmp_loom))]
//! `select!`, `select_biased!` and `Select`: one of several operations, each equally likely, and nothing of the others.

#[path = "../common/bolt.rs"]
mod bolt;
#[path = "../common/watch.rs"]
mod common;
#[path = "../common/crew.rs"]
mod crew;
#[path = "../common/gate.rs"]
mod gate;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/waits.rs"]
mod waits;

mod arms;
mod dynamic;
mod ended;
mod fair;
mod macros;
mod meet;
mod unwound;

use crew::CREWS;

/// What each of `takers` has to do in each crew, so that it is `total` in all.
fn share(total: usize, takers: usize) -> usize {
    random::rounds(total / 2 / CREWS / takers)
}
