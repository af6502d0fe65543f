//! Which receivers listen for which signals, and the thread that tells them.
//!
//! The thread is there as long as there are listeners. It is started by the first, under the lock; and it ends under the
//! lock, in the critical section in which it finds none. The listeners to be told are collected under the lock, and
//! called without it.

use super::action::{Action, Mask, handles, pending, replace_default};
use super::number::{SIGQUIT, Signal, each_of, set_of};
use crate::host::{Active, Process, Threads};
use crate::sched::watch::deadlock::Listens;
use std::collections::BTreeMap;
use std::io;
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
    /// By signal, as far as there is something to undo.
    actions: BTreeMap<Signal, Action>,
    thread: bool,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { listeners: BTreeMap::new(), next_key: 0, actions: BTreeMap::new(), thread: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().expect("nobody panics under the lock")
}

/// A listener's place. The drop takes it out.
pub(crate) struct Registration(u64);

impl Registry {
    /// The signals for which a receiver listens.
    fn listened(&self) -> u64 {
        self.listeners.values().fold(0, |all, listener| all | listener.signals)
    }

    fn action(&mut self, signal: Signal) -> &mut Action {
        self.actions.entry(signal).or_insert_with(|| Action::of(signal))
    }

    /// Takes a listener out; the caller drops it, without the lock.
    fn remove(&mut self, key: u64) -> Option<Listener> {
        let gone = self.listeners.remove(&key)?;
        for signal in each_of(gone.signals & !self.listened()) {
            if self.action(signal).release(signal) {
                self.actions.remove(&signal);
            }
        }
        pending().stir();
        Some(gone)
    }

    /// Has no receiver listen for `signals`. The caller drops those that are left without any, without the lock.
    fn silence(&mut self, signals: u64) -> Vec<Listener> {
        self.listeners.values_mut().for_each(|listener| listener.signals &= !signals);
        let gone = self.listeners.extract_if(.., |_, listener| listener.signals == 0);
        let gone = gone.map(|(_, listener)| listener).collect();
        pending().stir();
        gone
    }
}

/// The set of `signals`, for the function `of`.
///
/// # Errors
/// One of them is not for programs to handle, or there is none.
pub(crate) fn set_to_hear(of: &str, signals: &[Signal]) -> io::Result<u64> {
    match set_of(of, signals)? {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{of}: for no signal"))),
        set => Ok(set),
    }
}

/// Has `tell` called, on the thread for all listeners, for each of the signals that comes.
///
/// # Errors
/// The thread can't be started.
pub(crate) fn listen(
    signals: u64,
    tell: impl Fn(Signal) + Send + Sync + 'static,
) -> io::Result<Registration> {
    let tell: Arc<Tell> = Arc::new(tell);
    let mut registry = registry();
    if !registry.thread {
        // Not asleep from here on, until the thread ends.
        let listens = Listens::begin();
        Active::start("gmp-signals", move || serve(listens))?;
        registry.thread = true;
    }
    let new = signals & !registry.listened();
    let key = registry.next_key;
    registry.next_key += 1;
    registry.listeners.insert(key, Listener { signals, tell });
    each_of(new).for_each(|signal| registry.action(signal).catch(signal));
    // The thread is to unblock them.
    pending().stir();
    Ok(Registration(key))
}

pub(super) fn ignore(signals: u64) -> io::Result<()> {
    let mut registry = registry();
    let gone = registry.silence(signals);
    each_of(signals).for_each(|signal| registry.action(signal).ignore(signal));
    drop(registry);
    drop(gone);
    Ok(())
}

pub(super) fn reset(signals: u64) {
    let mut registry = registry();
    let gone = registry.silence(signals);
    for signal in each_of(signals) {
        if registry.actions.get_mut(&signal).is_some_and(|action| action.reset(signal)) {
            registry.actions.remove(&signal);
        }
    }
    drop(registry);
    drop(gone);
}

/// Has SIGQUIT ask for a dump from now on, unless the program has set the signal's action. The first call decides. Where a
/// listener has the signal, or it is ignored by us, that comes when this is over.
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
            for signal in each_of(signals) {
                // The end of a context drops values of the user's. The panic hook has told of a panic.
                let _panicked = Active::catch(|| tell(signal));
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = registry().remove(self.0);
        drop(gone);
    }
}
