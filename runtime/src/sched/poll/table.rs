//! The descriptors that a runtime's poller watches.
//!
//! A key names an entry, and the kernel hands it back with each event: the entry's index, and how often that entry was used
//! before. So the table distinguishes an event of a descriptor that is gone from an event of its successor in the same entry.
//! The table has a lock of its own, which an M that polls takes once for all events of a look. The M claims each wait under
//! that lock (`net/desc.rs`), and queues the goroutines that become ready after the unlock.
//!
//! *Numbers that others close.* The program, or a C library, can close a descriptor that is watched, and the kernel gives the
//! number to the next descriptor. So once a descriptor that others can close was inserted, the table knows to which entry a
//! number belongs: a caller makes the poller watch or forget a number under the lock, and only for that entry.

use crate::g::list::GList;
use crate::host::Host;
use crate::net::desc::PollDesc;
use crate::prim::{Arc, AtomicBool, AtomicU64, CachePadded, Mutex, MutexGuard, Rank, Relaxed};
use gmp_netpoll::{Key, Readiness};
use std::collections::{HashMap, hash_map};
use std::io;
use std::os::fd::RawFd;
use std::task::Waker;

struct Entry<H: Host> {
    generation: u32,
    /// The number under which the descriptor is watched.
    fd: RawFd,
    desc: Option<Arc<PollDesc<H>>>,
}

pub(crate) struct Entries<H: Host> {
    all: Vec<Entry<H>>,
    free: Vec<u32>,
    /// The entries by their number, the latest one last; `None` until `heed_numbers`. A number has several entries if a
    /// descriptor was closed underneath: the kernel has given its number to another descriptor, that of the last entry.
    by_number: Option<HashMap<RawFd, Vec<Key>>>,
    /// No M polls any more.
    is_over: bool,
}

/// The table.
pub(crate) struct PollTable<H: Host> {
    /// In a cache line of its own: the lock is written for each event, and its neighbours are read at each look for work.
    entries: CachePadded<Mutex<Entries<H>>>,
    /// How many entries there are: a hint, read without the lock.
    watched: AtomicU64,
    /// Whether a task has ever waited at the descriptor of an entry.
    tasks_come: AtomicBool,
}

impl<H: Host> PollTable<H> {
    pub(crate) fn new() -> Self {
        PollTable {
            entries: CachePadded::new(Mutex::new(
                Rank::PollTable,
                Entries { all: Vec::new(), free: Vec::new(), by_number: None, is_over: false },
            )),
            watched: AtomicU64::new(0),
            tasks_come: AtomicBool::new(false),
        }
    }

    /// Returns `true` if there is a descriptor. Relaxed: an M that misses a new descriptor sees it at its next look, or wait.
    #[inline]
    pub(super) fn watches_any(&self) -> bool {
        self.watched.load(Relaxed) > 0
    }

    /// A task is about to wait at a descriptor at which no task has waited yet.
    #[cold]
    pub(crate) fn note_task(&self) {
        // Relaxed: before the task's T5, and the judge's locks.
        self.tasks_come.store(true, Relaxed);
    }

    /// For the judge of a deadlock, which holds the central lock while all Ps are idle: returns `true` if an event would wake a
    /// task. `serving` counts a waker that an M has just taken, since before this call.
    pub(crate) fn keeps_a_waker(&self) -> bool {
        // Relaxed: the goroutine that polled a task last ran before all Ps were idle, which the lock orders.
        self.tasks_come.load(Relaxed) && {
            let entries = self.entries.lock();
            entries.all.iter().filter_map(|entry| entry.desc.as_ref()).any(|desc| desc.keeps_a_waker())
        }
    }

    /// Makes the table keep, for each number, the entry that had it last. The caller is about to insert a descriptor that other
    /// code can close; programs without such descriptors do not pay for this.
    #[cold]
    pub(crate) fn heed_numbers(&self) {
        self.entries.lock().by_number.get_or_insert_default();
    }

    /// Calls `change`, which changes what the poller does with the number under which the entry was inserted, unless the number
    /// now belongs to another descriptor. Under the lock: an entry that is inserted meanwhile is watched after `change`.
    pub(crate) fn if_its_own<R>(&self, key: Key, change: impl FnOnce() -> R) -> Option<R> {
        let entries = self.entries.lock();
        let fd = entries.all[key.index as usize].fd;
        let of_number = entries.by_number.as_ref().and_then(|by_number| by_number.get(&fd));
        (of_number?.last() == Some(&key)).then(change)
    }

    /// Makes room for the descriptor `fd`, under the key that the poller is to report. Returns the key, and whether numbers are
    /// heeded, so that the watch has to claim the number.
    pub(crate) fn insert(&self, desc: Arc<PollDesc<H>>, fd: RawFd) -> (Key, bool) {
        let mut entries = self.entries.lock();
        if entries.is_over {
            // No task waits there yet, and `reset` has taken the waker that an earlier task has left.
            let _none = desc.end_for_tasks();
        }
        let index = entries.free.pop().unwrap_or_else(|| {
            entries.all.push(Entry { generation: 0, fd, desc: None });
            (entries.all.len() - 1) as u32
        });
        let entry = &mut entries.all[index as usize];
        entry.desc = Some(desc);
        entry.fd = fd;
        self.watched.fetch_add(1, Relaxed);
        (Key { index, generation: entry.generation }, entries.by_number.is_some())
    }

    /// Calls `watch`, which makes the poller watch the number under which the entry was inserted. If that succeeds, the number
    /// belongs to the entry. Under the lock, so that no other entry's change of the number comes between.
    pub(crate) fn claim_number(&self, key: Key, watch: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut entries = self.entries.lock();
        watch()?;
        let fd = entries.all[key.index as usize].fd;
        entries.by_number.get_or_insert_default().entry(fd).or_default().push(key);
        Ok(())
    }

    /// Takes a descriptor off the table. Events that are still on their way find another generation.
    pub(crate) fn remove(&self, key: Key) {
        let mut entries = self.entries.lock();
        let entry = &mut entries.all[key.index as usize];
        assert!(entry.generation == key.generation, "remove: the descriptor is gone already ({key:?})");
        entry.generation = entry.generation.wrapping_add(1);
        let (gone, fd) = (entry.desc.take(), entry.fd);
        entries.free.push(key.index);
        if let Some(by_number) = &mut entries.by_number
            && let hash_map::Entry::Occupied(mut of_number) = by_number.entry(fd)
        {
            of_number.get_mut().retain(|&other| other != key);
            if of_number.get().is_empty() {
                of_number.remove();
            }
        }
        self.watched.fetch_sub(1, Relaxed);
        drop(entries);
        drop(gone);
    }

    /// Makes each parker make its system call again, because something might have happened to its descriptor. Does not report
    /// the end of reads: a descriptor would keep that for good, and a later wait might work.
    pub(super) fn unblock_all(&self, found: &mut GList<H>, tasks: &mut impl FnMut(Waker)) {
        let entries = self.entries.lock();
        for desc in entries.all.iter().filter_map(|entry| entry.desc.as_ref()) {
            desc.unblock(Readiness::READABLE | Readiness::WRITABLE, found, tasks);
        }
    }

    /// Ends the table, as no M polls any more: returns the wakers of the tasks that would wait for ever. A task that comes
    /// later finds that its descriptor has ended.
    pub(crate) fn end(&self) -> Vec<Waker> {
        let mut entries = self.entries.lock();
        entries.is_over = true;
        let descs = entries.all.iter().filter_map(|entry| entry.desc.as_ref());
        descs.flat_map(|desc| desc.end_for_tasks()).flatten().collect()
    }

    /// Locks the table, for the events of one look.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries<H>> {
        self.entries.lock()
    }
}

impl<H: Host> Entries<H> {
    /// Wakes the parkers that wait for this readiness. Appends goroutines that become runnable to `found`, and calls `tasks`
    /// with the wakers of tasks.
    #[inline(always)]
    pub(crate) fn unblock(
        &self,
        key: Key,
        readiness: Readiness,
        found: &mut GList<H>,
        tasks: &mut impl FnMut(Waker),
    ) {
        if let Some(entry) = self.all.get(key.index as usize)
            && entry.generation == key.generation
            && let Some(desc) = &entry.desc
        {
            desc.unblock(readiness, found, tasks);
        }
    }
}
