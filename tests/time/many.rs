//! What the ends of many contexts cost.

use common::cpu::cost;
use gmp::context::{Cancel, Context};
use std::time::Duration;

/// Fails by a time that grows with the square of the depth, if each end goes down to contexts that are done.
#[test]
fn a_chain_that_is_ended_from_below_costs_as_one_that_is_ended_from_above() {
    let chain = || {
        let mut chain = vec![Context::background().with_cancel()];
        for above in 0..3_000 {
            chain.push(chain[above].0.with_cancel());
        }
        chain
    };
    let (one, other) = (chain(), chain());
    let cancel = |(_, cancel): &(Context, Cancel)| cancel.cancel();
    let (from_above, from_below) =
        (cost(|| one.iter().for_each(cancel)), cost(|| other.iter().rev().for_each(cancel)));
    assert!(one.iter().chain(&other).all(|(context, _)| context.err().is_some()));
    assert!(
        from_below < 20 * from_above + Duration::from_millis(20),
        "{from_below:?} from below, {from_above:?} from above"
    );
}
