//! The order in which a select locks its channels: a chain through its arms, sorted by place, and by number if places are
//! equal.

use std::ops::Range;

/// Up to this many arms are sorted by insertion: a select has a handful of arms, and they are often nearly in order.
const FEW: usize = 16;

/// An element of a chain.
pub(super) trait Link {
    fn place(&self) -> usize;

    /// Returns the number of the next element. The last element has the count of all elements here, which is no element's
    /// number.
    fn next(&mut self) -> &mut usize;
}

/// Chains the elements of a range in order, and returns the number of the first.
#[inline(always)]
pub(super) fn chain(all: &mut [impl Link], these: Range<usize>) -> usize {
    if these.len() > FEW {
        return chain_many(all, these);
    }
    let (mut first, none) = (all.len(), all.len());
    for index in these.rev() {
        first = put_in(all, index, first, none);
    }
    first
}

/// Sorts by merging halves.
#[cold]
fn chain_many(all: &mut [impl Link], these: Range<usize>) -> usize {
    let (none, middle) = (all.len(), these.start.midpoint(these.end));
    let mut lower = chain(all, these.start..middle);
    let mut first = chain(all, middle..these.end);
    let mut before = none;
    while lower != none {
        let rest = *all[lower].next();
        first = put_in(all, lower, first, before);
        (before, lower) = (lower, rest);
    }
    first
}

/// Inserts an element into the chain, behind `before` if there is one, and before the elements with the same place.
#[inline(always)]
fn put_in(all: &mut [impl Link], index: usize, first: usize, mut before: usize) -> usize {
    let (none, place) = (all.len(), all[index].place());
    let mut next = if before == none { first } else { *all[before].next() };
    while next != none && all[next].place() < place {
        (before, next) = (next, *all[next].next());
    }
    *all[index].next() = next;
    if before == none {
        return index;
    }
    *all[before].next() = index;
    first
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::{FEW, Link, chain};
    use std::cell::Cell;

    /// Counts how often the place is asked for.
    struct Placed<'c> {
        place: usize,
        next: usize,
        asked: &'c Cell<usize>,
    }

    impl Link for Placed<'_> {
        fn place(&self) -> usize {
            self.asked.set(self.asked.get() + 1);
            self.place
        }
        fn next(&mut self) -> &mut usize {
            &mut self.next
        }
    }

    /// Returns the numbers in chain order, and how often a place was asked for.
    fn chained(places: &[usize]) -> (Vec<usize>, usize) {
        let asked = &Cell::new(0);
        let mut all: Vec<_> = places.iter().map(|&place| Placed { place, next: 0, asked }).collect();
        let mut at = chain(&mut all, 0..places.len());
        let mut order = Vec::new();
        while let Some(link) = all.get(at) {
            order.push(at);
            assert!(order.len() <= places.len(), "the chain has no end");
            at = link.next;
        }
        assert_eq!(at, places.len(), "the end is a number that is none's");
        (order, asked.get())
    }

    /// The same ones in each run.
    fn random(most: usize) -> impl FnMut(usize) -> usize {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        move |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as usize % most
        }
    }

    #[test]
    fn the_chain_is_by_place_and_then_by_number() {
        for count in 0..6 * FEW {
            for most in [1, 2, 7, 1000] {
                let places: Vec<_> = (0..count).map(random(most)).collect();
                let mut expected: Vec<_> = (0..count).collect();
                expected.sort_by_key(|&number| places[number]);
                assert_eq!(chained(&places).0, expected, "{places:?}");
            }
        }
    }

    /// If the number of looks were quadratic in the number of arms, this would exceed the bound by some 50 million.
    #[test]
    fn many_are_in_order_after_a_few_looks_at_each() {
        const MANY: usize = 10_000;
        let most = MANY * 2 * (MANY.ilog2() as usize + FEW);
        let orders: [(&str, Vec<usize>); 4] = [
            ("ascending", (0..MANY).collect()),
            ("descending", (0..MANY).rev().collect()),
            ("at random", (0..MANY).map(random(MANY)).collect()),
            (
                "in turn from both ends",
                (0..MANY).map(|at| if at % 2 == 0 { at } else { MANY - at }).collect(),
            ),
        ];
        for (order, places) in orders {
            let (_, asked) = chained(&places);
            assert!(asked <= most, "{order}: {asked} questions, at most {most} are allowed");
        }
    }
}
