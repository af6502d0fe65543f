//! The record of a fork: what lies on the forker's stack, and how the forker learns that its job is done.
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
//! F6 and Y2 are exchanges of one word: either Y2 finds WAITING, and Y3 wakes; or F6 finds the end, and the forker looks
//! again. Between X2 and Y2 the record is the taker's, and the forker does not return: it passes F4 only with DONE or BACK.
//! After a Y2 that has found OPEN the taker no longer touches the record. After a Y2 that has found WAITING the forker sleeps
//! until Y3, and Y3 reads the wait's number out of the record before it wakes the forker.
//!
//! *A taker gives the record back*, by BACK in place of DONE, where it can make no goroutine, where the goroutine never runs,
//! and where the runtime ends (`sched/stop.rs`). Then the forker runs `b` itself, when it comes to the end of `a`. The end of
//! the runtime leaves a forker that never comes there: its record is in no slot any more, and its frame stays, with all that
//! `b` borrows.
//!
//! *Whichever way `a` ends*, by a value, a panic, an interrupt or `goexit`, the forker comes to F3: what unwinds is caught,
//! and raised again when the record is the forker's alone. No interrupt ends the wait at F6, as none ends that of a scope's
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

/// What a taker has made of a record.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Settled {
    /// The job was run; the result is in the record.
    Done,
    /// The job was not run.
    Back,
}

/// What an unwinding carries.
type Payload = Box<dyn Any + Send>;

/// The part of a record that slots name, the same for all closures.
pub(crate) struct Job<H: Host> {
    /// Runs the job, and settles the record.
    run: unsafe fn(NonNull<Job<H>>),
    /// The forker: its stack's size is that of the goroutine that is made of the job. `None` for a thread that is no
    /// goroutine, whose record stands in no slot.
    forker: Option<GRef<H>>,
    pub(super) site: &'static Location<'static>,
    state: AtomicU32,
    /// The forker's wait, from WAITING on.
    number: UnsafeCell<MaybeUninit<WaitNumber>>,
}

impl<H: Host> Job<H> {
    /// Bytes of stack for the goroutine of the job. `default` is the runtime's.
    pub(super) fn stack_size(&self, default: u32) -> u32 {
        self.forker.map_or(default, |forker| forker.with_birth(|birth| birth.stack_size))
    }

    /// The class of the goroutine of the job: the forker's.
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
            // SAFETY: the forker, which has noted the number before WAITING, sleeps until it is woken here.
            let number = unsafe { this.as_ref().number.with(|number| (*number).assume_init()) };
            let forker = forker.expect("settle: a forker that waits is a goroutine");
            mutant!(JobSettledInSilence: return);
            // Not if the runtime has left the forker behind.
            Waiter::G(forker, number).wake();
        }
    }

    /// The record goes back to its forker, which runs the job itself.
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
    /// As `settle`; and what the job borrows outlives the forker's call.
    pub(super) unsafe fn run(this: NonNull<Self>) {
        // SAFETY: `run` is of the record's type, and by this function's contract.
        unsafe { (this.as_ref().run)(this) }
    }

    /// F4 to F6, for a forker whose record another has taken. Blocks the goroutine.
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
            // SAFETY: the taker reads the number only behind WAITING, which is not stored yet.
            self.number.with_mut(|at| unsafe { (*at).write(number) });
            let _settled = wait.park(How::new(WaitReason::Fork).ends(OnInterrupt::WithOthers), || {
                mutant!(JobWaitsBlindly: self.state.store(WAITING, Release); return Commit::Park);
                // Release: the number is published to Y3, its partner. Relaxed: the forker looks again.
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
    /// A record of `f` that no other thread knows of. Without a forker it stays with the caller.
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

    /// Returns `false` if no other thread ever knew of the record.
    pub(crate) fn has_forker(&self) -> bool {
        self.job.forker.is_some()
    }

    /// The name of the record, for slots. Good for all of it.
    #[inline(always)]
    pub(crate) fn name(&self) -> NonNull<Job<H>> {
        NonNull::from(self).cast()
    }

    /// Y1 to Y3.
    ///
    /// # Safety
    /// As `Job::run`; `job` is of a record of this type.
    unsafe fn run(job: NonNull<Job<H>>) {
        // SAFETY: by this function's contract: the record is the caller's until it is settled.
        let record = unsafe { job.cast::<Self>().as_ref() };
        // SAFETY: as above; a job is run once.
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
    /// The record is the caller's, and the closure was not moved out before.
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

    /// F3, for the forker: `slot` is where the record was put in; `None` where a goroutine was made of it at once. Returns
    /// the closure if the record is the forker's.
    ///
    /// # Safety
    /// Once for each record, and no other call but `settled` after it.
    #[inline(always)]
    pub(crate) unsafe fn withdraw(&self, slot: Option<&Slot<H>>) -> Option<F> {
        let mine = slot.is_some_and(|slot| slot.withdraw(self.name()));
        // SAFETY: no taker has the record, or will.
        mine.then(|| unsafe { self.take() })
    }

    /// F4 to F6, where `withdraw` has returned `None`: waits until the record is settled, and returns the result, or the
    /// closure if that was not run.
    ///
    /// # Safety
    /// Once, after `withdraw`.
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

/// A job has unwound on the goroutine that was made for it, and its forker unwinds by the same payload. An interrupt of that
/// goroutine becomes an interrupt of the forker.
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
                // A destructor that runs under an unwinding may throw nothing. The goroutine is left behind, as others that
                // can't be unwound.
                Wait::<H>::begin().stay()
            }
        }
        Some(Interrupt::Context(_)) | None => {}
    }
    resume_unwind(payload)
}

/// A job came back to its forker: it is not run where the runtime ends, as the forker is to be unwound.
#[cold]
pub(crate) fn end_if_ending<H: Host>() {
    if Sched::<H>::current().is_some_and(Sched::is_ending) {
        interrupt::end_here::<H>();
    }
}
