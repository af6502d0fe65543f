//! Which receivers listen for which signals, and the thread that sends to them.
//!
//! The thread lives as long as there are listeners. The first listener starts the thread under the lock; the thread ends under
//! the lock, in the critical section in which it finds no listener. The thread collects the listeners of a signal under the
//! lock, and calls them without the lock.

use super::action::{Action, Mask, SERVER, handles, pending, replace_default};
use super::number::{SIGQUIT, Signal, each_of, set_of};
use crate::host::{Active, Process, Threads};
use crate::sched::watch::deadlock::Listens;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, Once};

type Tell = dyn Fn(Signal) + Send + Sync;

struct Listener {
    /// A set; never empty.
    signals: u64,
    tell: Arc<Tell>,
}

struct Registry {
    listeners: BTreeMap<u64, Listener>,
    next_key: u64,
    /// The actions by signal. There is an entry only if there is something to undo.
    actions: BTreeMap<Signal, Action>,
    thread: bool,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { listeners: BTreeMap::new(), next_key: 0, actions: BTreeMap::new(), thread: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().expect("nobody panics under the lock")
}

/// A listener's place. The drop takes the listener out.
pub(crate) struct Registration(u64);

impl Registry {
    /// Returns the signals for which a receiver listens.
    fn listened(&self) -> u64 {
        self.listeners.values().fold(0, |all, listener| all | listener.signals)
    }

    fn action(&mut self, signal: Signal) -> io::Result<&mut Action> {
        match self.actions.entry(signal) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Action::of(signal)?)),
        }
    }

    /// Sets the handler for `signals`, for which no receiver listens yet.
    ///
    /// # Errors
    /// The kernel refuses, and all is as before.
    fn catch(&mut self, signals: u64) -> io::Result<()> {
        let caught = each_of(signals).try_for_each(|signal| self.action(signal)?.catch(signal));
        if caught.is_err() {
            self.release(signals);
        }
        caught.map_err(|refused| cannot("set the action of a signal", &refused))
    }

    /// No receiver listens for `signals` any more.
    fn release(&mut self, signals: u64) {
        for signal in each_of(signals) {
            if self.actions.get_mut(&signal).is_some_and(|action| action.release(signal)) {
                self.actions.remove(&signal);
            }
        }
    }

    /// A forked child has a copy of the registry, but not the thread, and each of its handlers may have taken itself out (H3).
    /// In the child nothing asks the parent's receivers, and signals that came to the parent are not for the child's.
    fn begin_anew(&mut self) {
        pending().forget(u64::MAX);
        self.release(self.listened());
        // Forgotten: a drop would call the program's code, which may count on threads that only the parent has.
        mem::forget(mem::take(&mut self.listeners));
        self.thread = false;
    }

    /// Takes a listener out; the caller drops it, without the lock.
    fn remove(&mut self, key: u64) -> Option<Listener> {
        let gone = self.listeners.remove(&key)?;
        self.release(gone.signals & !self.listened());
        pending().stir();
        Some(gone)
    }

    /// Takes `signals` away from all listeners. Returns the listeners that are left without any, for the caller to drop without
    /// the lock.
    fn silence(&mut self, signals: u64) -> Vec<Listener> {
        self.listeners.values_mut().for_each(|listener| listener.signals &= !signals);
        let gone = self.listeners.extract_if(.., |_, listener| listener.signals == 0);
        let gone = gone.map(|(_, listener)| listener).collect();
        pending().stir();
        gone
    }
}

/// Returns the error for what the system has refused.
fn cannot(what: &str, refused: &io::Error) -> io::Error {
    io::Error::new(refused.kind(), format!("cannot {what}: {refused}"))
}

/// Returns the set of `signals`, for the function `of`.
///
/// # Errors
/// If one of them is not for programs to handle, or there is none.
pub(crate) fn set_to_hear(of: &str, signals: &[Signal]) -> io::Result<u64> {
    match set_of(of, signals)? {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{of}: no signal is named"))),
        set => Ok(set),
    }
}

/// Registers a listener: the thread calls `tell` for each of `signals` that comes.
///
/// # Errors
/// The thread can't be started, or an action can't be set.
pub(crate) fn listen(
    signals: u64,
    tell: impl Fn(Signal) + Send + Sync + 'static,
) -> io::Result<Registration> {
    let tell: Arc<Tell> = Arc::new(tell);
    let mut registry = registry();
    if !SERVER.is_of_this_process() {
        registry.begin_anew();
        SERVER.renew();
    }
    if !registry.thread {
        // Not asleep from here on, until the thread ends.
        let listens = Listens::begin();
        Active::start("gmp-signals", move || serve(listens))
            .map_err(|refused| cannot("start the thread that receives signals", &refused))?;
        registry.thread = true;
    }
    // If this is the first listener and its signals can't be caught, the thread finds no listener, and ends.
    let new = signals & !registry.listened();
    registry.catch(new)?;
    let key = registry.next_key;
    registry.next_key += 1;
    registry.listeners.insert(key, Listener { signals, tell });
    // So that the thread unblocks the signals.
    pending().stir();
    Ok(Registration(key))
}

/// Calls `change` for each of `signals`, up to the first error. Receivers get none of the changed signals any more.
fn change_all(
    signals: u64,
    what: &str,
    change: impl Fn(&mut Registry, Signal) -> io::Result<()>,
) -> io::Result<()> {
    let (mut registry, mut changed) = (registry(), 0);
    let done = each_of(signals).try_for_each(|signal| {
        change(&mut registry, signal)?;
        changed |= signal.bit();
        Ok(())
    });
    let gone = registry.silence(changed);
    drop(registry);
    drop(gone);
    done.map_err(|refused| cannot(what, &refused))
}

pub(super) fn ignore(signals: u64) -> io::Result<()> {
    change_all(signals, "ignore a signal", |registry, signal| registry.action(signal)?.ignore(signal))
}

pub(super) fn reset(signals: u64) -> io::Result<()> {
    change_all(signals, "reset a signal", |registry, signal| {
        if let Some(action) = registry.actions.get_mut(&signal)
            && action.reset(signal)?
        {
            registry.actions.remove(&signal);
        }
        Ok(())
    })
}

/// Makes SIGQUIT ask for a dump from now on, unless the program has set the signal's action. Only the first call does that. If
/// a listener has the signal, or `ignore` holds for it, the new action takes effect when that is over.
pub(crate) fn catch_quit<H: Process>() {
    static ONCE: Once = Once::new();
    let Some(handler) = H::quit_handler() else { return };
    ONCE.call_once(|| {
        // Made before the handler can run.
        H::shared();
        let action = handles(handler);
        // Under the lock: a listener may be on its way to catch the signal.
        let mut registry = registry();
        if let Some(undoes) = registry.actions.get_mut(&SIGQUIT) {
            undoes.has_default(&action);
        }
        replace_default(SIGQUIT, &action);
    });
}

/// The thread.
fn serve(_until_it_ends: Listens<Active>) {
    let mask = Mask::of_this_thread();
    loop {
        let mut now = registry();
        if now.listeners.is_empty() {
            now.thread = false;
            return;
        }
        mask.open(now.listened());
        drop(now);
        let came = pending().wait();
        let now = registry();
        let heard = |listener: &Listener| (Arc::clone(&listener.tell), listener.signals & came);
        let told: Vec<_> = now.listeners.values().map(heard).filter(|told| told.1 != 0).collect();
        drop(now);
        for (tell, signals) in told {
            each_of(signals).for_each(|signal| tell_caught(&*tell, signal));
        }
    }
}

/// Tells a listener of a signal. An unwinding out of `tell` ends here; the panic hook has reported a panic.
fn tell_caught(tell: &Tell, signal: Signal) {
    if let Err(payload) = Active::catch(|| tell(signal)) {
        // The drop of the payload might unwind, too.
        mem::forget(payload);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = registry().remove(self.0);
        drop(gone);
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::os::signal::SIGUSR1;
    use std::panic::resume_unwind;

    /// Unwinds as it is dropped.
    struct Unwinds;

    impl Drop for Unwinds {
        fn drop(&mut self) {
            resume_unwind(Box::new(()));
        }
    }

    /// Fails by the unwinding when the payload is dropped where it was caught: that would end the thread.
    #[test]
    fn no_unwinding_leaves_the_call_of_a_listener() {
        tell_caught(&|_| resume_unwind(Box::new(Unwinds)), SIGUSR1);
    }
}
