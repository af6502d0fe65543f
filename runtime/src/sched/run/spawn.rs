//! New goroutines: with a handle or without, queued or kept by their maker.
//!
//! A goroutine that is made has a reserved stack, a number and a closure, and is counted; the ender's snapshots contain it, but
//! the ender leaves it alone until its maker has queued it. A runtime that ends (E1 of `sched/stop.rs`) takes each goroutine
//! and runs none: the closure is dropped at once, and the joiner gets an error. A spawner that looked before the end began
//! queues the goroutine; then an M (step 1), or the spawner or the ender (step 2), finds it there, and drops the closure.
//!
//! `place.rs` says where a new goroutine stands, `wake.rs` which M runs it. Checked by `models/shutdown.rs`.

use crate::g::pool::GPool;
use crate::g::{self, Birth, GRef};
use crate::host::{Host, MIN_STACK};
use crate::m::{Inside, M};
use crate::prim::Relaxed;
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::run::place::Place;
use std::io;

/// Returns an error if a closure of this type, or its value, can't lie on the goroutine's stack, onto which both are moved. For
/// most types the compiler knows that they can. How much more room they need, for copies and for what the closure calls, is not
/// known here: that depends on the build.
#[inline(always)]
fn check_size<F: FnOnce() -> T, T>(birth: &Birth) -> io::Result<()> {
    let (closure, value) = const { (size_of::<F>(), size_of::<T>()) };
    if closure >= MIN_STACK || value >= MIN_STACK {
        // As the pool rounds the size.
        let stack = (birth.stack_size as usize).next_power_of_two();
        if closure >= stack || value >= stack {
            return Err(too_large(closure, value, stack));
        }
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn too_large(closure: usize, value: usize, stack: usize) -> io::Error {
    let text = format!(
        "the closure has {closure} bytes and its value {value} bytes, too many for a stack of {} KiB: box what is large, or \
         ask for a larger stack",
        stack >> 10
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl<H: Host> Sched<H> {
    /// Makes a goroutine of `f` and queues it. If the runtime is already ending, drops `f` here, and the goroutine's joiner
    /// learns that the runtime ended.
    ///
    /// # Errors
    /// If no stack can be reserved, with the limit that was met; if the closure or its value is too large for the stack.
    ///
    /// # Safety
    /// All that `f` borrows outlives the goroutine.
    #[doc(alias = "newproc")]
    pub(crate) unsafe fn spawn<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> io::Result<GRef<H>> {
        // SAFETY: by this function's contract.
        unsafe { self.spawn_at(birth, Place::Next, f) }
    }

    /// As `spawn_at`, for a goroutine without a handle. `make` returns the closure, and is called once there is a goroutine for
    /// it; `make` neither unwinds nor parks, and is dropped uncalled if the spawn is refused.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`, for the closure that `make` returns.
    pub(crate) unsafe fn spawn_detached<F: FnOnce()>(
        &self,
        birth: Birth,
        place: Place,
        make: impl FnOnce() -> F,
    ) -> io::Result<()> {
        if self.is_ending() {
            // SAFETY: by this function's contract.
            g::drop_handle(unsafe { self.spawn_unrun(birth, make()) });
            return Ok(());
        }
        check_size::<F, ()>(&birth)?;
        let m = M::current_of(self);
        let g = self.blank(m, true, birth)?;
        // SAFETY: as in `spawn_at`.
        unsafe { g.task.load(make()) };
        g.begin_detached();
        self.submit_fresh(m, g, place);
        Ok(())
    }

    /// As `spawn`, at a place that the spawner chooses. Only the move of the closure depends on the closure's type; the code
    /// before and after it is compiled once.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    #[inline(always)]
    pub(crate) unsafe fn spawn_at<F: FnOnce() -> T, T>(
        &self,
        birth: Birth,
        place: Place,
        f: F,
    ) -> io::Result<GRef<H>> {
        if self.is_ending() {
            // SAFETY: by this function's contract.
            return Ok(unsafe { self.spawn_unrun(birth, f) });
        }
        check_size::<F, T>(&birth)?;
        let m = M::current_of(self);
        let g = self.blank(m, true, birth)?;
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        self.submit_fresh(m, g, place);
        Ok(g)
    }

    /// S1 to S3 for a goroutine that was just made, and has its closure. `m` is the caller's M, if it belongs to this runtime.
    #[inline(never)]
    fn submit_fresh(&self, m: Option<&M<H>>, g: GRef<H>, place: Place) {
        g.word.spawn();
        match m {
            Some(m) => {
                unless!(SpawnedCountsLate, m.count_live(1));
                self.submit_at(m, g, place);
                mutant!(SpawnedCountsLate: m.count_live(1));
            }
            None => {
                self.inject_fresh(g, place);
            }
        }
        if self.is_stopping().unless(LateSpawnKeepsItsClosure) {
            self.drop_set_aside();
        }
    }

    /// S1 to S3 for a goroutine that was just made, on a thread that is no M of this runtime. From E1 on (`sched/stop.rs`) the
    /// goroutine is not queued, and its closure is dropped here: the ender can't see this thread, and might have found the
    /// runtime quiet since the caller looked at the flag. The goroutine is counted in the critical section that queues it.
    /// Counted earlier, a goroutine that is about to be dropped would be among those that the ender reports as left.
    fn inject_fresh(&self, g: GRef<H>, place: Place) {
        let mut central = self.central.lock();
        if self.is_ending().unless(SpawnLooksOnce) {
            drop(central);
            return self.drop_beside_the_end(g);
        }
        unless!(SpawnedOutsideCountsLate, self.count_live_outside(1));
        self.put_at(&mut central, g, place);
        drop(central);
        mutant!(SpawnOutsideWakesNobody: return);
        self.wakep();
        mutant!(SpawnedOutsideCountsLate: self.count_live_outside(1));
    }

    /// For a runtime that ends: makes a goroutine that never runs, is not counted, and has no stack reserved.
    ///
    /// # Safety
    /// As `spawn`.
    #[cold]
    #[inline(never)]
    unsafe fn spawn_unrun<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> GRef<H> {
        let g = self.blank_unrun(birth);
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        self.drop_fresh(g);
        g
    }

    /// Returns a goroutine that has no closure yet, and no stack reserved.
    #[cold]
    #[inline(never)]
    fn blank_unrun(&self, birth: Birth) -> GRef<H> {
        let g = self.blank_reserved(M::current_of(self).and_then(M::look_in), false);
        g.set_birth(birth);
        g
    }

    /// Drops the closure of `g`, which was just loaded. `g` is not counted.
    #[cold]
    #[inline(never)]
    fn drop_fresh(&self, g: GRef<H>) {
        g.word.spawn();
        match M::current_of(self) {
            // The calling goroutine goes on, and its M alarms the ender later.
            Some(_) => g::drop_unrun(g),
            None => self.drop_beside_the_end(g),
        }
    }

    /// Drops the closure of `g`, which was just made and is not counted, on a thread that is no M. The ender might have seen
    /// `g` among the live goroutines, and be asleep: so this function alarms the ender.
    fn drop_beside_the_end(&self, g: GRef<H>) {
        mutant!(UnrunIsCounted: self.count_live_outside(1));
        g::drop_unrun(g);
        mutant!(UnrunIsCounted: self.count_live_outside(-1));
        mutant!(UnrunNotTold: return);
        self.tell_the_end();
    }

    /// Makes a goroutine of `f`, runnable and in no queue yet.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn make<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> io::Result<GRef<H>> {
        check_size::<F, T>(&birth)?;
        let m = M::current_of(self);
        let g = self.blank(m, true, birth)?;
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        self.begin_made(m, g, 1);
        Ok(g)
    }

    /// As `make`, for a goroutine without a handle, which can be the library's own: if `counts` is `false`, `num_goroutines`
    /// does not count the goroutine.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn make_detached<F: FnOnce()>(
        &self,
        counts: bool,
        birth: Birth,
        f: F,
    ) -> io::Result<GRef<H>> {
        let m = M::current_of(self);
        let g = self.blank(m, counts, birth)?;
        // SAFETY: as in `make`.
        unsafe { g.task.load(f) };
        g.begin_detached();
        self.begin_made(m, g, i64::from(counts));
        Ok(g)
    }

    /// Begins `g`, which has its closure, and adds `live` to the number of live goroutines. `m` is the caller's M, if it
    /// belongs to this runtime.
    fn begin_made(&self, m: Option<&M<H>>, g: GRef<H>, live: i64) {
        g.word.spawn();
        m.map_or_else(|| self.count_live_outside(live), |m| m.count_live(live));
    }

    /// Returns a goroutine that has no closure yet. The caller loads one, calls `StatusWord::spawn`, and counts the goroutine
    /// as live. `m` is the caller's M, if it belongs to this runtime. The birth goes from the spawner's registers straight to
    /// its place.
    ///
    /// # Errors
    /// As `spawn`.
    #[inline(always)]
    fn blank(&self, m: Option<&M<H>>, counts: bool, birth: Birth) -> io::Result<GRef<H>> {
        let g = self.unborn(m, counts, birth.stack_size)?;
        g.set_birth(birth);
        Ok(g)
    }

    /// As `blank`, without a birth.
    ///
    /// # Errors
    /// As `spawn`.
    #[inline(never)]
    fn unborn(&self, m: Option<&M<H>>, counts: bool, stack_size: u32) -> io::Result<GRef<H>> {
        let inside = m.and_then(|m| m.look_in().or_else(|| self.come_back_to_spawn(m)));
        // After a refusal the thread leaves the runtime (drops `inside`) before the closure is dropped.
        self.reserve_stack(inside.as_ref().map(|inside| inside.p), stack_size as usize)?;
        Ok(self.blank_reserved(inside, counts))
    }

    /// As `unborn`, once a stack is reserved.
    #[inline(always)]
    fn blank_reserved(&self, inside: Option<Inside<'_, H>>, counts: bool) -> GRef<H> {
        let (id, g) = match &inside {
            Some(inside) => {
                inside.p.owner.touch();
                // SAFETY: the pool is closed when the scheduler is dropped.
                (inside.p.next_id(&self.next_id), unsafe { inside.p.free_gs.get(self.pool) })
            }
            // Relaxed: a unique number, which orders nothing.
            // SAFETY: the pool is closed when the scheduler is dropped.
            None => (self.next_id.fetch_add(1, Relaxed), unsafe { GPool::get(self.pool) }),
        };
        drop(inside);
        g.begin(id, counts, self.config.knobs.migrate);
        g
    }

    /// Adds to the number of live goroutines, for a thread that is no M, or a goroutine that no M runs.
    pub(crate) fn count_live_outside(&self, by: i64) {
        // Relaxed: a count. A reader that needs an exact count was told of the goroutine, or holds the lock under which the
        // goroutine was queued.
        self.live.fetch_add(by, Relaxed);
    }
}
