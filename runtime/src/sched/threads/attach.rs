//! `run_locked`: a thread of the program runs one goroutine, which stays bound to that thread.
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
use crate::sched::threads::mexit::Whose;

impl<H: Host> Sched<H> {
    /// Runs `g`, which was made and not queued, on the calling thread, which is no M. Returns when `g` has ended. If the
    /// runtime ends first, `g` is left behind, or dropped unrun.
    pub(crate) fn run_here(&self, g: GRef<H>) {
        let mut central = self.central.lock();
        let (m, _) = self.take_record(&mut central);
        central.alive += 1;
        central.attached += 1;
        drop(central);
        // `alive` has just counted this thread.
        let m = m.get();
        g.ties.attach(m.id);
        M::set_current(Some(m));
        self.thread_begins(m);
        self.inject(GList::one(g));
        while self.await_bound(m, g) {
            // If there is no stack, `g` waits for one, and a finder brings `g` again when there is one.
            if self.provide_stack(m, g) {
                m.set_g(Some(g));
                // SAFETY: `g` has just suspended itself with this word, and stays suspended until this thread resumes it.
                let said = unsafe { self.resume(m, g).read() };
                let _gone = self.attend(m, g, said);
                break;
            }
        }
        // `run_locked` keeps the guards of the user's functions.
        self.mexit(m, Whose::Program);
        if self.is_stopping() {
            self.drop_set_aside();
        }
    }
}
