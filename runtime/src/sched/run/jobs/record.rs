//! The record of a fork, which lies on the forker's stack, and how the forker learns that its job is done.
//!
//! ```text
//!   forker                                         taker (an M; then the goroutine that the M has made)
//!
//!   F1  puts the record in (S1 to S3)
//!   F2  runs `a`
//!   F3  withdraws the record: X2 wins?             X2  wins
//!       runs `b`, or drops it; no other            Y1  makes a goroutine, which runs `b`,
//!       has seen the record                            and writes the result
//!   F4  else: DONE, or BACK?  goes on              Y2  exchange: DONE in place of OPEN or WAITING
//!   F5  opens a wait, notes its number             Y3  it was WAITING?  wakes the forker
//!   F6  parks; the commit hook: OPEN → WAITING,
//!       or refuses
//! ```
//! F6 and Y2 are exchanges of one word. Either Y2 finds WAITING, and Y3 wakes the forker; or F6 finds DONE or BACK, refuses,
//! and the forker goes back to F4. Between X2 and Y2 the record belongs to the taker, and the forker does not return: it passes
//! F4 only with DONE or BACK. After a Y2 that has found OPEN the taker no longer touches the record. After a Y2 that has found
//! WAITING the forker sleeps until Y3, and Y3 reads the wait's number out of the record before it wakes the forker.
//!
//! *A taker gives the record back*, by BACK instead of DONE, in three cases: it can make no goroutine; the goroutine never
//! runs; or the runtime ends (`sched/stop.rs`). Then the forker runs `b` itself, after `a`. At the end of the runtime a forker
//! might never come to the end of `a`. That forker is left behind: its record is no longer in any slot, and its frame stays,
//! with all that `b` borrows.
//!
//! *Whichever way `a` ends*, by a value, a panic, an interrupt or `goexit`, the forker comes to F3: it catches an unwinding,
//! and raises it again when the record is the forker's alone. No interrupt ends the wait at F6, as none ends that of a scope's
//! parent (`OnInterrupt::WithOthers`): `b` borrows from the forker's frames.
//!
//! Checked by `models/jobs.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::jobs::Slot;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Relaxed, Release, UnsafeCell};
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::{self, Interrupt, OnInterrupt, Thrown};
use crate::wait::status::WaitNumber;
use crate::wait::waiter::{How, Wait, Waiter};
use std::any::Any;
use std::mem::MaybeUninit;
use std::panic::{Location, resume_unwind};
use std::ptr::NonNull;

const OPEN: u32 = 0;
const WAITING: u32 = 1;
const DONE: u32 = 2;
const BACK: u32 = 3;

/// How a taker has settled a record.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
enum Settled {
    /// The job has run; the result is in the record.
    Done,
    /// The job has not run.
    Back,
}

/// The payload of an unwinding.
type Payload = Box<dyn Any + Send>;

/// The part of a record to which slots point, the same for all closures.
pub(crate) struct Job<H: Host> {
    /// Runs the job, and settles the record.
    run: unsafe fn(NonNull<Job<H>>),
    /// The forker; the goroutine that is made of the job gets a stack of the same size. `None` for a thread that is no
    /// goroutine, whose record stands in no slot.
    forker: Option<GRef<H>>,
    pub(super) site: &'static Location<'static>,
    state: AtomicU32,
    /// The number of the forker's wait, from WAITING on.
    number: UnsafeCell<MaybeUninit<WaitNumber>>,
}

impl<H: Host> Job<H> {
    /// Returns how many bytes of stack the goroutine of the job gets. `default` is the runtime's setting.
    pub(super) fn stack_size(&self, default: u32) -> u32 {
        self.forker.map_or(default, |forker| forker.with_birth(|birth| birth.stack_size))
    }

    /// Returns the class of the goroutine of the job, which is the forker's.
    pub(super) fn class(&self) -> Priority {
        self.forker.map_or(Priority::Normal, |forker| forker.class())
    }

    /// Y2 and Y3.
    ///
    /// # Safety
    /// The caller has taken the record, and does not touch it afterwards.
    unsafe fn settle(this: NonNull<Self>, to: u32) {
        // SAFETY: by this function's contract: the forker waits for this.
        let (forker, state) = unsafe { (this.as_ref().forker, &this.as_ref().state) };
        // Acquire: the number, partner F6. Release: the result, partner F4.
        if state.swap(to, both(Acquire.unless(JobSettleLooksRelaxed), Release.unless(JobSettleRelaxed)))
            == WAITING
        {
            // SAFETY: the forker, which wrote the number before WAITING, sleeps until this wakes it.
            let number = unsafe { this.as_ref().number.with(|number| (*number).assume_init()) };
            let forker = forker.expect("settle: a forker that waits is a goroutine");
            mutant!(JobSettledInSilence: return);
            // Does nothing if the runtime has left the forker behind.
            Waiter::G(forker, number).wake();
        }
    }

    /// Gives the record back to its forker, which runs the job itself.
    ///
    /// # Safety
    /// As `settle`.
    pub(super) unsafe fn give_back(this: NonNull<Self>) {
        mutant!(JobKeptFromItsForker: return);
        // SAFETY: by this function's contract.
        unsafe { Self::settle(this, BACK) }
    }

    /// Runs the job, on a goroutine that was made for it.
    ///
    /// # Safety
    /// As `settle`; and all that the job borrows outlives the forker's call.
    pub(super) unsafe fn run(this: NonNull<Self>) {
        // SAFETY: `run` is that of the record's type; and by this function's contract.
        unsafe { (this.as_ref().run)(this) }
    }

    /// F4 to F6, for a forker whose record a taker has. Blocks the goroutine.
    #[cold]
    fn wait(&self) -> Settled {
        loop {
            // Acquire: the result, partner Y2.
            match self.state.load(Acquire.unless(JobEndLooksRelaxed)) {
                DONE => return Settled::Done,
                BACK => return Settled::Back,
                _ => {}
            }
            let mut wait = Wait::<H>::begin();
            let (_, number) = wait.goroutine().expect("wait: a forker is a goroutine");
            // SAFETY: the taker reads the number only after WAITING, which is not stored yet.
            self.number.with_mut(|at| unsafe { (*at).write(number) });
            let _settled = wait.park(How::new(WaitReason::Fork).ends(OnInterrupt::WithOthers), || {
                mutant!(JobWaitsBlindly: self.state.store(WAITING, Release); return Commit::Park);
                // Release: publishes the number to Y3, the partner. Relaxed on failure: the forker looks again.
                let ordering = Release.unless(JobWaitRelaxed);
                match self.state.compare_exchange(OPEN, WAITING, ordering, Relaxed) {
                    Ok(_) => Commit::Park,
                    Err(_) => Commit::Refuse,
                }
            });
        }
    }
}

/// A record with its closure, and its result.
#[repr(C)]
pub(crate) struct Record<H: Host, F, R> {
    job: Job<H>,
    f: UnsafeCell<MaybeUninit<F>>,
    result: UnsafeCell<MaybeUninit<Result<R, Payload>>>,
}

impl<H: Host, F: FnOnce() -> R, R> Record<H, F, R> {
    /// Returns a record of `f`, of which no other thread knows. Without a forker the record stays with the caller.
    #[inline(always)]
    pub(crate) fn new(forker: Option<GRef<H>>, site: &'static Location<'static>, f: F) -> Self {
        let state = AtomicU32::new(if forker.is_some() { OPEN } else { BACK });
        let number = UnsafeCell::new(MaybeUninit::uninit());
        let record = Record {
            job: Job { run: Self::run, forker, site, state, number },
            f: UnsafeCell::new(MaybeUninit::uninit()),
            result: UnsafeCell::new(MaybeUninit::uninit()),
        };
        // No other thread has the record.
        record.f.with_mut(|at| {
            // SAFETY: as above.
            unsafe { (*at).write(f) };
        });
        record
    }

    /// Returns `false` if no other thread can ever know of the record.
    pub(crate) fn has_forker(&self) -> bool {
        self.job.forker.is_some()
    }

    /// Returns the address of the record, for slots, valid for the whole record.
    #[inline(always)]
    pub(crate) fn name(&self) -> NonNull<Job<H>> {
        NonNull::from(self).cast()
    }

    /// Y1 to Y3.
    ///
    /// # Safety
    /// As `Job::run`; `job` belongs to a record of this type.
    unsafe fn run(job: NonNull<Job<H>>) {
        // SAFETY: by this function's contract the record belongs to the caller until settled.
        let record = unsafe { job.cast::<Self>().as_ref() };
        // SAFETY: as above; a job runs once.
        let f = unsafe { record.take() };
        let mut value = None;
        let ran = H::catch(|| value = Some(f()));
        let result = ran.map(|()| value.expect("run: it has returned"));
        // SAFETY: as above.
        record.result.with_mut(|at| unsafe { (*at).write(result) });
        // SAFETY: by this function's contract.
        unsafe { Job::settle(job, DONE) }
    }

    /// Moves the closure out.
    ///
    /// # Safety
    /// The record belongs to the caller, and the closure was not moved out before.
    #[inline(always)]
    unsafe fn take(&self) -> F {
        // SAFETY: by this function's contract.
        self.f.with_mut(|f| unsafe { (*f).assume_init_read() })
    }

    /// Moves the result out.
    ///
    /// # Safety
    /// The record is settled, as done, and this is the only call.
    unsafe fn result(&self) -> Result<R, Payload> {
        // SAFETY: by this function's contract.
        self.result.with_mut(|result| unsafe { (*result).assume_init_read() })
    }

    /// F3, for the forker. `slot` is the slot into which the record was put; `None` if a goroutine was made of it at once.
    /// Returns the closure if no taker has the record.
    ///
    /// # Safety
    /// Called once for each record, and no call but `settled` follows.
    #[inline(always)]
    pub(crate) unsafe fn withdraw(&self, slot: Option<&Slot<H>>) -> Option<F> {
        let mine = slot.is_some_and(|slot| slot.withdraw(self.name()));
        // SAFETY: no taker has the record, or ever will.
        mine.then(|| unsafe { self.take() })
    }

    /// F4 to F6, after `withdraw` has returned `None`: waits until the record is settled, and returns the result, or the
    /// closure if that has not run.
    ///
    /// # Safety
    /// Called once, after `withdraw`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn settled(&self) -> Result<Result<R, Payload>, F> {
        match self.job.wait() {
            // SAFETY: the record is settled, and by this function's contract.
            Settled::Done => Ok(unsafe { self.result() }),
            // SAFETY: as above.
            Settled::Back => Err(unsafe { self.take() }),
        }
    }
}

/// Unwinds the forker by the payload by which the job has unwound on its goroutine. An interrupt of that goroutine becomes an
/// interrupt of the forker.
#[cold]
pub(crate) fn pass_on<H: Host>(payload: Payload) -> ! {
    match payload.downcast_ref::<Thrown>().map(|thrown| thrown.target) {
        Some(Interrupt::Exit) => {
            let forker = M::<H>::current().and_then(M::g).expect("pass_on: a forker is a goroutine");
            forker.exits.set(true);
            Interrupt::Exit.throw_unseen::<H>()
        }
        Some(Interrupt::Shutdown) => {
            interrupt::end_here::<H>();
            if H::is_panicking() {
                // A destructor that runs during an unwinding must not throw. The goroutine is left behind, like others that
                // can't be unwound.
                Wait::<H>::begin().stay()
            }
        }
        Some(Interrupt::Context(_)) | None => {}
    }
    resume_unwind(payload)
}

/// Called when a job came back to its forker: if the runtime ends, the job does not run, because the forker is to be unwound.
#[cold]
pub(crate) fn end_if_ending<H: Host>() {
    if Sched::<H>::current().is_some_and(Sched::is_ending) {
        interrupt::end_here::<H>();
    }
}
