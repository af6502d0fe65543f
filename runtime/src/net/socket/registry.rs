//! Which runtimes' pollers watch a socket: a registration for each, made by the first operation there that has to wait.

use super::Socket;
use crate::host::{Active, Host};
use crate::net::desc::PollDesc;
use crate::prim::{Acquire, Arc, AtomicPtr, Relaxed, Release, Weak};
use crate::sched::Sched;
use gmp_netpoll::Key;
use std::io;
use std::os::fd::AsFd;

/// Where the goroutines of a runtime find the socket's pollDesc.
pub(super) struct Registration {
    /// Which runtime. Compared only: the one of a running goroutine lives.
    pub(super) sched: AtomicPtr<Sched<Active>>,
    pub(super) desc: Arc<PollDesc<Active>>,
    pub(super) next: *mut Registration,
}

/// The same for those who come from outside, under the lock.
pub(super) struct Watch {
    /// Keeps the address in `entry` from being used again.
    pub(super) sched: Weak<Sched<Active>>,
    /// `None`: not watched any more.
    pub(super) key: Option<Key>,
    pub(super) entry: *const Registration,
}

// SAFETY: an entry is shared, and lives as long as the socket.
unsafe impl Send for Watch {}

impl<S: AsFd> Socket<S> {
    pub(super) fn registered(&self, sched: &Sched<Active>) -> Option<&PollDesc<Active>> {
        // Acquire: the entry is complete before it is in the list: partner `register`.
        let mut at = self.registrations.load(Acquire);
        // SAFETY: entries live until the socket is dropped.
        while let Some(entry) = unsafe { at.as_ref() } {
            // Acquire: the pollDesc was emptied before the entry changed hands: partner `register`.
            if std::ptr::eq(entry.sched.load(Acquire), sched) {
                return Some(&entry.desc);
            }
            at = entry.next;
        }
        None
    }

    /// The caller holds an I/O lock, and is in its system calls.
    pub(super) fn register(&self, sched: &Sched<Active>) -> io::Result<&PollDesc<Active>> {
        let weak = Arc::downgrade(&sched.arc().expect("register: a goroutine's runtime is alive"));
        let mut watches = self.watches.lock();
        if let Some(desc) = self.registered(sched) {
            return Ok(desc);
        }
        // The place of a runtime that is over: none of its goroutines runs any more, and its poller is gone.
        let left = watches.iter().position(|watch| watch.sched.strong_count() == 0);
        let desc = match left {
            // SAFETY: entries live until the socket is dropped.
            Some(left) => Arc::clone(&unsafe { &*watches[left].entry }.desc),
            None => Arc::new(PollDesc::new()),
        };
        desc.reset();
        let key = sched.descs.insert(Arc::clone(&desc));
        if let Err(refused) = sched.host.watch(self.fd(), key) {
            sched.descs.remove(key);
            return Err(refused);
        }
        let this = std::ptr::from_ref(sched).cast_mut();
        let entry: *const Registration = match left {
            Some(left) => {
                let watch = &mut watches[left];
                // Release: partner `registered`, which uses the pollDesc that `reset` has emptied.
                // SAFETY: as above.
                unsafe { &*watch.entry }.sched.store(this, Release);
                // Only now may the old one's address be used again.
                watch.sched = weak;
                watch.key = Some(key);
                watch.entry
            }
            None => {
                let next = self.registrations.load(Relaxed);
                let entry = Box::into_raw(Box::new(Registration { sched: AtomicPtr::new(this), desc, next }));
                watches.push(Watch { sched: weak, key: Some(key), entry });
                // Release: partner `registered`.
                self.registrations.store(entry, Release);
                entry
            }
        };
        drop(watches);
        // SAFETY: as above.
        Ok(unsafe { &(*entry).desc })
    }

    /// No poller watches the descriptor any more. The caller sees to it that nobody registers it now or later.
    pub(super) fn deregister(&self) {
        let mut watches = self.watches.lock();
        let watched: Vec<_> =
            watches.iter_mut().filter_map(|watch| watch.key.take().zip(watch.sched.upgrade())).collect();
        drop(watches);
        // Not under the lock: what is held may be the last of a runtime.
        for (key, sched) in watched {
            // It is open and was added, so this can only fail when the poller itself is broken, and then
            // the next wait says so.
            let _unwatched = sched.host.unwatch(self.fd());
            sched.descs.remove(key);
        }
    }
}
