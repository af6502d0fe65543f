//! `run_locked`: a thread of the program runs one goroutine, which is bound to this thread for good.
//!
//! The thread gets an M's record, and sleeps until a finder brings the goroutine (`locked.rs`): the goroutine is queued
//! like any other, and the M that finds it hands it to this thread, with a P. When the goroutine has ended, the thread
//! gives the P away and the record back, and returns to the program. Attached threads do not count towards
//! `max_threads`; otherwise they could use up the limit, and leave no worker for other goroutines.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::sched::Sched;

impl<H: Host> Sched<H> {
    /// Runs `g`, which was made and not queued, on the calling thread, which is no M. Returns when `g` has ended; when the
    /// runtime ends first, `g` is left, or dropped unrun.
    pub(crate) fn run_here(&self, g: GRef<H>) {
        let mut central = self.central.lock();
        let (m, _) = self.take_record(&mut central);
        central.alive += 1;
        central.attached += 1;
        drop(central);
        // SAFETY: Ms live as long as their scheduler, whose `alive` has just counted this thread.
        let m = unsafe { m.as_ref() };
        m.attached.set(true);
        g.ties.attach(m.id);
        M::set_current(Some(m));
        self.thread_begins(m);
        self.inject(GList::one(g));
        while self.await_bound(m, g) {
            // Without a stack `g` waits for one, and is brought again when there is one.
            if self.provide_stack(m, g) {
                m.set_g(Some(g));
                // SAFETY: `g` has just suspended itself with this word, and stays suspended until this thread resumes it.
                let said = unsafe { self.resume(m, g).read() };
                let _gone = self.attend(m, g, said);
                break;
            }
        }
        // `run_locked` has the guards.
        self.mexit(m, None);
        if self.is_stopping() {
            self.drop_set_aside();
        }
    }
}
