//! Stacks that were not needed for a while go back to the kernel.
//!
//! Stacks come back in bursts and are taken last in, first out. So if a list never got shorter than some length during a
//! whole period, that many stacks at its front were not needed: they are **cold**.
//!
//! ```text
//!   age        the fewest that there were since the last time: so many are cold, from the front
//!   trim_some  cold ones are put to rest, in their slabs · a slab with such: all its stacks at rest? unmapped; else their
//!              pages are given back, and the slots stay
//! ```
//! If the kernel refuses more memory, all free stacks go back at once: a slab serves one size only, and the memory may be
//! enough for another size. An M that needs a stack meanwhile finds each stack in one of those places: all is done under the
//! pool's lock, a little at a time. A slab that holds a reservation's slot, or that the panic hook may need, stays mapped.

use super::slab::Slab;
use super::{Inner, StackPool};

/// Stacks put to rest at a time.
const CHUNK: usize = 1024;

impl StackPool {
    /// Ends a period. Returns `false` if no free stack has pages and there is nothing to trim.
    pub(crate) fn age(&self) -> bool {
        let inner = &mut *self.inner.lock();
        for stock in &mut inner.stocks {
            stock.cold = stock.cold.max(stock.low);
            stock.low = stock.free.len();
        }
        inner.list_slabs_that_may_go();
        !inner.listed.is_empty() || inner.stocks.iter().any(|stock| !stock.free.is_empty())
    }

    /// Gives all free stacks back to the kernel, without waiting for a period.
    pub(super) fn trim_all(&self) {
        let mut inner = self.inner.lock();
        inner.stocks.iter_mut().for_each(|stock| stock.cold = stock.free.len());
        inner.list_slabs_that_may_go();
        drop(inner);
        while self.trim_some() {}
    }

    /// Trims a little of what is cold. Returns `false` if that was all.
    pub(crate) fn trim_some(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.rest_some() {
            return true;
        }
        let Some(index) = inner.listed.pop() else { return false };
        inner.slab(index).listed = false;
        if let Some(slab) = inner.let_go(index) {
            drop(inner);
            // SAFETY: no stack of the slab was out, and `let_go` has taken the slab out of the pool.
            unsafe { slab.unmap() };
        } else if inner.slab(index).return_pages() {
            inner.list(index);
        }
        true
    }
}

impl Inner {
    /// Puts some of the cold stacks to rest. Returns `false` if there was none.
    fn rest_some(&mut self) -> bool {
        let Some(stock) = self.stocks.iter_mut().find(|stock| stock.cold > 0) else { return false };
        let count = stock.cold.min(CHUNK);
        let cold: Vec<_> = stock.free.drain(..count).collect();
        stock.cold -= count;
        stock.low = stock.low.saturating_sub(count);
        stock.resting += count;
        if stock.cold == 0 {
            stock.free.shrink_to(2 * stock.free.len());
        }
        for stack in cold {
            let index = stack.slab as usize;
            let from = &mut self.stocks[stack.class.index()].rests_from;
            *from = (*from).min(index);
            self.slab(index).rest(stack);
            self.list(index);
        }
        true
    }

    /// Lists the slabs that may go: reservations may have come back since a slab was looked at.
    fn list_slabs_that_may_go(&mut self) {
        for index in 0..self.slabs.len() {
            if self.slabs[index].as_ref().is_some_and(|slab| self.may_go(slab)) {
                self.list(index);
            }
        }
    }

    /// Returns `true` if no stack of the slab is in use, and neither reservations nor `keep` need the slab.
    fn may_go(&self, slab: &Slab) -> bool {
        let stock = &self.stocks[slab.class.index()];
        slab.is_at_rest() && stock.assured.saturating_sub(slab.assured) >= stock.reserved.max(stock.kept)
    }

    /// Takes a slab out of the pool, if the slab may go.
    fn let_go(&mut self, index: usize) -> Option<Slab> {
        self.slabs[index].as_ref().filter(|slab| self.may_go(slab))?;
        let slab = self.slabs[index].take()?;
        let stock = &mut self.stocks[slab.class.index()];
        stock.assured -= slab.assured;
        stock.resting -= slab.resting();
        stock.fresh.retain(|&fresh| fresh != index);
        Some(slab)
    }

    fn list(&mut self, index: usize) {
        if !std::mem::replace(&mut self.slab(index).listed, true) {
            self.listed.push(index);
        }
    }
}
