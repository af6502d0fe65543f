//! The registrations of a socket: one for each runtime whose poller watches it, made by the first operation there
//! that has to wait.

use super::Socket;
use crate::host::{Active, Interest, Poll};
use crate::net::desc::{Direction, PollDesc};
use crate::prim::hooks::*;
use crate::prim::{Acquire, Arc, AtomicPtr, Relaxed, Release, Weak};
use crate::sched::Sched;
use crate::sched::watch::told::Refusal;
use crate::wait::task::{self, Discarded};
use gmp_netpoll::Key;
use std::io;
use std::os::fd::{AsFd, RawFd};

/// Whether events are marked for tasks from the first event on.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Marks {
    Yes,
    No,
}

/// Whether this call has made the registration: if so, the poller reports what is there already.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Fresh {
    Yes,
    No,
}

/// The entry in which the goroutines of a runtime find the socket's pollDesc.
pub(super) struct Registration {
    /// The runtime's scheduler; compared, never dereferenced. A caller compares it with its own runtime, which lives,
    /// so an equal address is that runtime's.
    pub(super) sched: AtomicPtr<Sched<Active>>,
    pub(super) desc: Arc<PollDesc<Active>>,
    pub(super) next: *mut Registration,
}

/// A registration as the closer and the setter of a deadline see it, from any runtime or thread, under the lock.
pub(super) struct Watch {
    /// Keeps the address in `entry` from being used again.
    pub(super) sched: Weak<Sched<Active>>,
    /// The poller's key; `None` once the descriptor is not watched any more.
    pub(super) key: Option<Key>,
    /// The number under which the descriptor was added. Another library's value is not asked for the number again: that value
    /// may have closed the descriptor meanwhile, and might panic.
    fd: RawFd,
    pub(super) entry: *const Registration,
}

// SAFETY: `entry` points to a registration, which is shared and lives as long as the socket.
unsafe impl Send for Watch {}

/// A runtime that has not ended, and the socket's pollDesc there.
type Live = (Arc<Sched<Active>>, Arc<PollDesc<Active>>);

impl<S: AsFd> Socket<S> {
    pub(super) fn registered(&self, sched: &Sched<Active>) -> Option<&PollDesc<Active>> {
        // Acquire: the entry is complete before the list has it: partner `register`. No model has the two: loom does not model
        // memory that does not exist yet.
        let mut at = self.registrations.load(Acquire);
        // SAFETY: entries live until the socket is dropped.
        while let Some(entry) = unsafe { at.as_ref() } {
            // Acquire: the pollDesc was emptied before the entry changed hands: partner `register`. No model has the two, as no
            // model has a socket that goes from one runtime to another.
            if std::ptr::eq(entry.sched.load(Acquire), sched) {
                return Some(&entry.desc);
            }
            at = entry.next;
        }
        None
    }

    /// Registers the descriptor in the runtime's poller, for the caller's direction at least. The caller holds that
    /// direction's I/O lock and does not rest, or is a user of the descriptor, so the descriptor stays open. With `Marks::Yes`
    /// each event is marked for tasks from then on.
    pub(super) fn register(
        &self,
        sched: &Sched<Active>,
        direction: Direction,
        marks: Marks,
    ) -> io::Result<(&PollDesc<Active>, Fresh)> {
        let weak = Arc::downgrade(&sched.arc().expect("register: a goroutine's runtime is alive"));
        // Not under the lock: this may be the program's code.
        let fd = self.fd();
        // Dropped after the locks.
        let mut stale = Discarded::<Active>::new();
        let mut watches = self.watches.lock();
        if let Some(desc) = self.registered(sched) {
            return Ok((desc, Fresh::No));
        }
        // Reuses the entry of a runtime that has ended: none of that runtime's goroutines runs any more, and the poller
        // is gone.
        let left = watches.iter().position(|watch| watch.sched.strong_count() == 0);
        let desc = match left {
            // SAFETY: entries live until the socket is dropped.
            Some(left) => Arc::clone(&unsafe { &*watches[left].entry }.desc),
            None => Arc::new(PollDesc::new()),
        };
        let interest = match direction {
            Direction::Read => Interest::Reads,
            Direction::Write => Interest::Both,
        };
        stale.add(desc.reset(interest).into_iter().flatten());
        if marks == Marks::Yes {
            desc.mark_from_the_first();
        }
        if self.borrowed {
            sched.descs.heed_numbers();
        }
        let (key, heeded) = sched.descs.insert(Arc::clone(&desc), fd);
        let watch = || sched.host.watch(fd, key, interest);
        if let Err(refused) = if heeded { sched.descs.claim_number(key, watch) } else { watch() } {
            sched.descs.remove(key);
            return Err(match refused.kind() {
                io::ErrorKind::AlreadyExists => is_watched_already(fd),
                _ => refused,
            });
        }
        let this = std::ptr::from_ref(sched).cast_mut();
        let entry: *const Registration = match left {
            Some(left) => {
                let watch = &mut watches[left];
                // Release: partner `registered`, which uses the pollDesc that `reset` has emptied.
                // SAFETY: entries live until the socket is dropped.
                unsafe { &*watch.entry }.sched.store(this, Release);
                // Dropping the old `Weak` allows the old scheduler's address to be used again, so it comes last.
                watch.sched = weak;
                watch.key = Some(key);
                watch.fd = fd;
                watch.entry
            }
            None => {
                let next = self.registrations.load(Relaxed);
                let entry = Box::into_raw(Box::new(Registration { sched: AtomicPtr::new(this), desc, next }));
                watches.push(Watch { sched: weak, key: Some(key), fd, entry });
                // Release: partner `registered`.
                self.registrations.store(entry, Release);
                entry
            }
        };
        drop(watches);
        // SAFETY: entries live until the socket is dropped.
        Ok((unsafe { &(*entry).desc }, Fresh::Yes))
    }

    /// Returns a runtime that has not ended and whose poller watches the descriptor, with its pollDesc, which belongs to no
    /// other runtime as long as the caller has the scheduler. The caller is a user of the descriptor.
    pub(super) fn watched_somewhere(&self) -> Option<(Arc<Sched<Active>>, &PollDesc<Active>)> {
        let watches = self.watches.lock();
        let live = |watch: &Watch| watch.key.and(watch.sched.upgrade()).map(|sched| (sched, watch.entry));
        let live: Vec<_> = watches.iter().filter_map(live).collect();
        drop(watches);
        // Not under the lock: a reference that is dropped here may be the last to a runtime.
        // SAFETY: entries live until the socket is dropped.
        let with_desc = live.into_iter().map(|(sched, entry)| (sched, &*unsafe { &*entry }.desc));
        with_desc.into_iter().find(|(_, desc)| !desc.is_over())
    }

    /// Has the runtime's poller, which watches the descriptor for reads, watch it for writes as well. The caller holds the
    /// write direction's I/O lock and does not rest, or is a user of the descriptor.
    #[cold]
    pub(super) fn watch_writes(&self, sched: &Sched<Active>, desc: &PollDesc<Active>) -> io::Result<()> {
        let watches = self.watches.lock();
        let (key, fd) = watched_as(&watches, desc);
        // Under the lock, as `register`: a task and a goroutine may ask at once.
        if !desc.watches_writes() {
            self.change(sched, key, || sched.host.watch_writes(fd, key)).unwrap_or_else(is_anothers)?;
            desc.note_watched_writes();
        }
        Ok(())
    }

    /// Makes the poller of the caller's runtime watch the file that the descriptor's number names now, if the poller watches
    /// the descriptor, and does not watch the file already. Called before a wait for a descriptor under whose number others may
    /// have put another file: the kernel watches files, and knows nothing of the new one. As when a descriptor is added, the
    /// kernel reports what is ready. The caller holds an I/O lock and does not rest.
    #[cold]
    pub(crate) fn watch_again(&self) -> io::Result<()> {
        let Some(sched) = Sched::<Active>::current() else { return Ok(()) };
        let Some(desc) = self.registered(sched) else { return Ok(()) };
        // A poller that is refused watches nothing, and its runtime looks at all descriptors now and then.
        if sched.was_refused(Refusal::Poll) {
            return Ok(());
        }
        let watches = self.watches.lock();
        let (key, fd) = watched_as(&watches, desc);
        let interest = if desc.watches_writes() { Interest::Both } else { Interest::Reads };
        match self.change(sched, key, || sched.host.watch(fd, key, interest)).unwrap_or_else(is_anothers) {
            Err(same) if same.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            watched => watched,
        }
    }

    /// Calls `change`, which changes what the poller does with the descriptor's number, unless another library's value has
    /// closed the descriptor and the number now belongs to another descriptor.
    fn change<R>(&self, sched: &Sched<Active>, key: Key, change: impl FnOnce() -> R) -> Option<R> {
        if self.borrowed { sched.descs.if_its_own(key, change) } else { Some(change()) }
    }

    /// Returns the runtimes that have not ended and whose pollers may watch the descriptor, with its pollDescs there.
    pub(super) fn live(&self) -> Vec<Live> {
        let watches = self.watches.lock();
        // SAFETY: entries live as long as the socket.
        let live = |watch: &Watch| Some((watch.sched.upgrade()?, Arc::clone(&unsafe { &*watch.entry }.desc)));
        // The caller drops them, not under the lock: an upgraded reference may be the last to a runtime.
        watches.iter().filter_map(live).collect()
    }

    /// Removes the descriptor from all pollers. The caller ensures that no registration is made meanwhile or later.
    pub(super) fn deregister(&self) {
        let mut watches = self.watches.lock();
        let live = |watch: &mut Watch| Some((watch.key.take()?, watch.fd, watch.sched.upgrade()?));
        let watched: Vec<_> = watches.iter_mut().filter_map(live).collect();
        drop(watches);
        // Not under the lock: the upgraded reference may be the last to a runtime.
        for (key, fd, sched) in watched {
            // Fails if the poller itself is broken, which the next wait reports; or if another library's value has closed its
            // descriptor, which the kernel has then taken out of the set.
            let _unwatched = self.change(&sched, key, || sched.host.unwatch(fd));
            sched.descs.remove(key);
        }
    }

    /// Wakes the tasks that wait, each of which then finds the socket closed; calls no foreign code. The caller has marked the
    /// socket closed, and has waited for its users.
    pub(super) fn wake_tasks(&self) {
        mutant!(TaskCloseTellsNobody: return);
        // Acquire: partner `register`, as in `registered`.
        let mut at = self.registrations.load(Acquire);
        // SAFETY: entries live until the socket is dropped.
        while let Some(entry) = unsafe { at.as_ref() } {
            entry.desc.take_wakers().into_iter().flatten().for_each(task::wake_elsewhere::<Active>);
            at = entry.next;
        }
    }
}

/// Returns the key and the number under which a poller watches the descriptor that has `desc` there. The caller keeps the
/// descriptor open.
fn watched_as(watches: &[Watch], desc: &PollDesc<Active>) -> (Key, RawFd) {
    // SAFETY: entries live until the socket is dropped.
    let of_desc = |watch: &&Watch| std::ptr::eq(&*unsafe { &*watch.entry }.desc, desc);
    let watch = watches.iter().find(of_desc).expect("watched_as: the pollDesc is the socket's");
    (watch.key.expect("watched_as: a holder's descriptor is watched"), watch.fd)
}

#[cold]
fn is_anothers() -> io::Result<()> {
    let why = "the descriptor was closed underneath, and its number is another one's";
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

#[cold]
fn is_watched_already(fd: RawFd) -> io::Error {
    let why = format!(
        "descriptor {fd} is watched already in this runtime, for another value that has it; duplicate it"
    );
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}
