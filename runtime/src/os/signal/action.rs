//! The actions of signals, as the kernel knows them, and the handler.
//!
//! While a signal has listeners its action is the handler of this file, `on_signal`; `before` is the action that `on_signal`
//! has replaced, and that comes back. Another library may install a handler over `on_signal`, and call `on_signal` from it.
//! Then `on_signal` can't be taken out: it is *behind* that handler, and passes signals on. That library may also put
//! `on_signal` back after the last listener has left: then `on_signal` finds that it is the signal's action while no receiver
//! listens, and takes itself out.
//!
//! ```text
//!   listener, under the registry's lock            handler
//!
//!   L1  `listens` := true                          H1  `listens`?  tell the thread; done
//!   L2  the action := `on_signal`                  H2  is the action `on_signal`?  no: pass on to `before`; done
//!                                                  H3  the action := `before`
//!                                                  H4  `listens`?  the action := `on_signal`, tell the thread; done
//!                                                      no: raise the signal again
//! ```
//! If H3 comes after L2, H4 sees L1, and undoes H3. If H3 comes before L2, the action is `on_signal` in the end, too; the
//! signal came before `notify` had returned. If the program sets an action between H2 and H3, the handler puts that action
//! back, and it stays.

use super::number::Signal;
use super::pending::Pending;
use crate::host::handler::{self, call, keeping_errno};
use crate::host::{Active, Process};
use gmp_netpoll::ProcessMark;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// The process that has the thread of `registry.rs`.
pub(super) static SERVER: ProcessMark = ProcessMark::none();
static PENDING: OnceLock<Pending> = OnceLock::new();

/// The signals that the handler hands to the thread.
pub(super) fn pending() -> &'static Pending {
    PENDING.get_or_init(Pending::new)
}

/// The state of a signal that the handler reads.
struct Slot {
    listens: AtomicBool,
    /// Null until the action was ours for the first time. The action that it points to is never freed: a handler may be reading
    /// it.
    before: AtomicPtr<libc::sigaction>,
}

static SLOTS: [Slot; 65] =
    [const { Slot { listens: AtomicBool::new(false), before: AtomicPtr::new(ptr::null_mut()) } }; 65];

impl Slot {
    fn set_listens(&self, listens: bool) {
        // SeqCst: a store before the system call that sets the action, and a load after one (L1, H4); partner: `listens`.
        self.listens.store(listens, SeqCst);
    }

    fn listens(&self) -> bool {
        // SeqCst: partner `set_listens`.
        self.listens.load(SeqCst)
    }
}

fn slot(signal: Signal) -> &'static Slot {
    &SLOTS[signal.as_raw() as usize]
}

fn exchange(signal: Signal, next: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    handler::exchange(signal.as_raw(), next)
}

/// Sets `next` if the action is as `expected`; otherwise returns the action, which stays. The kernel has no such call: if the
/// program sets an action between the look and the change, that action is put back. An action that the program sets between the
/// change and the putting back is lost, and a signal that comes then gets `next`.
fn replace(
    signal: Signal,
    expected: impl Fn(&libc::sigaction) -> bool,
    next: &libc::sigaction,
) -> io::Result<Option<libc::sigaction>> {
    let seen = exchange(signal, None)?;
    if !expected(&seen) {
        return Ok(Some(seen));
    }
    let replaced = exchange(signal, Some(next))?;
    if expected(&replaced) {
        return Ok(None);
    }
    exchange(signal, Some(&replaced))?;
    Ok(Some(replaced))
}

/// Returns `false` for a signal that the kernel does not know or that the C library keeps for itself.
pub(super) fn exists(signal: Signal) -> bool {
    // Any other error comes from a sandbox, which may refuse the call for every signal.
    exchange(signal, None).map_or_else(|refused| refused.raw_os_error() != Some(libc::EINVAL), |_| true)
}

/// Returns `false` also if the kernel does not tell.
pub(super) fn is_ignored(signal: Signal) -> bool {
    exchange(signal, None).is_ok_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// The flags of a handler of ours that replaces no other handler. Such a handler runs on the thread's signal stack, if there is
/// one: a goroutine's stack may be nearly full. Interrupted system calls are restarted.
const USUAL: c_int = libc::SA_ONSTACK | libc::SA_RESTART;

/// The action of a handler that takes the signal's number.
pub(super) fn handles(handler: usize) -> libc::sigaction {
    handler::action(handler, USUAL)
}

fn is_handler(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

fn is_default(action: &libc::sigaction) -> bool {
    action.sa_sigaction == libc::SIG_DFL
}

/// Returns `true` for two actions with the same handler, flags and mask.
fn are_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    let is_in = |action: &libc::sigaction, number| {
        // SAFETY: a valid set; the numbers are those that a set has, or are refused.
        unsafe { libc::sigismember(&raw const action.sa_mask, number) }
    };
    one.sa_sigaction == other.sa_sigaction
        && one.sa_flags == other.sa_flags
        && (1..=64).all(|number| is_in(one, number) == is_in(other, number))
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_signal as *const () as usize
}

/// The action with `on_signal`, in place of `before`.
fn ours(signal: Signal, before: &libc::sigaction) -> libc::sigaction {
    let mut ours = *before;
    ours.sa_sigaction = on_signal as *const () as usize;
    block_all_but_faults(&mut ours.sa_mask);
    let children = before.sa_flags & (libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT);
    ours.sa_flags = libc::SA_SIGINFO | children;
    if is_handler(before) {
        // The library of that handler may count on interrupted calls, or on restarted ones; and, as `on_signal` calls that
        // handler, on the thread's own stack: std's signal stacks have room for a small handler.
        ours.sa_flags |= before.sa_flags & USUAL;
    } else {
        ours.sa_flags |= USUAL;
        if signal.as_raw() == libc::SIGCHLD && before.sa_sigaction == libc::SIG_IGN {
            // A process that ignores the ends of children has no zombies.
            ours.sa_flags |= libc::SA_NOCLDWAIT;
        }
    }
    ours
}

/// Adds every signal to `mask` except those for faults: if a fault's signal is blocked, the kernel kills the process.
///
/// So no signal interrupts our handler on the signal stack. Std gives its threads 8 KiB, of which the kernel's frame takes
/// 3.4 KiB where the processor has AVX-512: the third handler in a row would overflow that stack, in a debug build the second.
fn block_all_but_faults(mask: &mut libc::sigset_t) {
    for number in 1..=64 {
        if ![libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP].contains(&number) {
            // SAFETY: a valid set; a number that the C library keeps for itself is refused.
            unsafe { libc::sigaddset(mask, number) };
        }
    }
}

/// Makes a copy of `action` that is never freed, or returns the copy that was made before: a process has few.
fn forever(action: libc::sigaction) -> *mut libc::sigaction {
    static KEPT: std::sync::Mutex<Vec<&'static libc::sigaction>> = std::sync::Mutex::new(Vec::new());
    let mut kept = KEPT.lock().expect("nobody panics under the lock");
    let found = kept.iter().find(|kept| are_same(kept, &action)).copied();
    let it = found.unwrap_or_else(|| Box::leak(Box::new(action)));
    if found.is_none() {
        kept.push(it);
    }
    ptr::from_ref(it).cast_mut()
}

/// What this library has done about a signal. The registry's lock guards it.
pub(super) struct Action {
    /// The action before all that.
    original: libc::sigaction,
    ignored: bool,
    /// `on_signal` is behind another handler.
    behind: bool,
    /// `on_signal` has been set, and this library has not replaced it since. A handler that was set later may call `on_signal`.
    placed: bool,
}

impl Action {
    pub(super) fn of(signal: Signal) -> io::Result<Self> {
        let original = exchange(signal, None)?;
        Ok(Action { original, ignored: false, behind: false, placed: false })
    }

    /// L1 and L2: a receiver listens. After an error `release` undoes what was done.
    pub(super) fn catch(&mut self, signal: Signal) -> io::Result<()> {
        pending().forget(signal.bit());
        slot(signal).set_listens(true);
        let mut before = exchange(signal, None)?;
        // The action that is there after a `reset` is the one that comes back.
        let anew = !self.placed && !self.ignored;
        // `on_signal` is not behind another handler if the kernel refused the last `release`.
        self.behind &= !is_ours(&before);
        if self.behind && is_handler(&before) {
            self.placed = true;
            return Ok(());
        }
        // Repeated if the program has set another action since the look.
        let mut again = false;
        while !is_ours(&before) {
            self.behind = false;
            if anew {
                self.original = before;
            }
            // Release: the handler reads what it points to; partner: the function `before`.
            slot(signal).before.store(forever(before), Release);
            let replaced = exchange(signal, Some(&ours(signal, &before)))?;
            self.placed = true;
            if are_same(&replaced, &before) {
                return Ok(());
            }
            if again && !is_ours(&replaced) {
                // The program has set this handler over `on_signal`, and may call `on_signal` from it.
                exchange(signal, Some(&replaced))?;
                self.behind = is_handler(&replaced);
                return Ok(());
            }
            (before, again) = (replaced, true);
        }
        self.placed = true;
        Ok(())
    }

    /// No receiver listens any more. Returns `true` if nothing is left to be undone.
    #[must_use]
    pub(super) fn release(&mut self, signal: Signal) -> bool {
        if self.placed {
            let before = before(signal).expect("release: our handler has replaced an action");
            match replace(signal, is_ours, before) {
                Ok(None) => self.placed = false,
                Ok(Some(other)) => self.behind = is_handler(&other),
                // `on_signal` stays, and passes signals on; so a handler that is set from now on may call it.
                Err(_refused) => self.behind = true,
            }
        }
        // After that: a handler that runs now began while a receiver listened.
        slot(signal).set_listens(false);
        !self.ignored && !self.behind
    }

    /// Makes the process ignore the signal.
    ///
    /// # Errors
    /// The kernel refuses, and all is as before.
    pub(super) fn ignore(&mut self, signal: Signal) -> io::Result<()> {
        exchange(signal, Some(&handler::action(libc::SIG_IGN, 0)))?;
        (self.ignored, self.behind, self.placed) = (true, false, false);
        slot(signal).set_listens(false);
        Ok(())
    }

    /// The default action has become `action`: see `replace_default`.
    pub(super) fn has_default(&mut self, action: &libc::sigaction) {
        if is_default(&self.original) {
            self.original = *action;
        }
    }

    /// Undoes all. Returns `true` if nothing has to be remembered: the action that stays is no handler that may call ours.
    ///
    /// # Errors
    /// The kernel refuses, and all is as before.
    pub(super) fn reset(&mut self, signal: Signal) -> io::Result<bool> {
        let is_this_librarys = |action: &libc::sigaction| {
            is_ours(action) || self.ignored && action.sa_sigaction == libc::SIG_IGN
        };
        self.behind = match replace(signal, is_this_librarys, &self.original)? {
            None => false,
            Some(other) => is_handler(&other) && (self.behind || self.placed),
        };
        slot(signal).set_listens(false);
        (self.ignored, self.placed) = (false, false);
        Ok(!self.behind)
    }
}

/// Puts `action` in the place of the default action, now and for when ours is undone. The caller has the registry's lock, so no
/// thread catches the signal between the look and the change.
pub(super) fn replace_default(signal: Signal, action: &libc::sigaction) {
    if before(signal).is_some_and(is_default) {
        // Release: the handler reads what it points to; partner: the function `before`.
        slot(signal).before.store(forever(*action), Release);
    }
    // An action of the program's stays. The default action stays if the kernel refuses; then the signal asks for no dump.
    let _stays = replace(signal, is_default, action);
}

/// The action that ours has replaced.
fn before(signal: Signal) -> Option<&'static libc::sigaction> {
    // Acquire: partners `catch` and `replace_default`. SAFETY: null, or from `forever`.
    unsafe { slot(signal).before.load(Acquire).as_ref() }
}

/// Does what a signal handler may: atomics, a futex wake, `sigaction`, `raise`.
#[inline(never)] // One address, which is compared.
unsafe extern "C" fn on_signal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the arguments are those with which the kernel, or a handler that calls ours, has called this function.
    keeping_errno(|| unsafe { handle(number.into(), info, context) });
}

/// # Safety
/// The arguments of a handler of this signal.
unsafe fn handle(signal: Signal, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = before(signal) else { return };
    let tell = || {
        if let Some(pending) = PENDING.get() {
            pending.raise(signal.bit());
        }
    };
    // In a forked child no thread serves the receivers, so the child has the action from before. (A child by vfork(2) shares
    // its parent's memory, and counts as the parent.)
    let listens = || slot(signal).listens() && SERVER.is_of_this_process();
    // H1.
    if listens() {
        tell();
        // The runtime's own answer to SIGQUIT counts as the default action, which is not taken now.
        if is_handler(before) && Active::quit_handler() != Some(before.sa_sigaction) {
            // SAFETY: by this function's contract.
            unsafe { call(before, signal.as_raw(), info, context) };
        }
        return;
    }
    // H2.
    let was_ours = exchange(signal, None).is_ok_and(|now| is_ours(&now));
    let mut is_before_back = false;
    if was_ours {
        // H3. An action that the program has set since the look stays.
        let replaced = exchange(signal, Some(before));
        is_before_back = replaced.is_ok();
        let others = replaced.ok().filter(|replaced| !is_ours(replaced));
        if let Some(others) = &others {
            let _it_exists = exchange(signal, Some(others));
        }
        // H4.
        if listens() {
            if others.is_none() {
                let _it_exists = exchange(signal, Some(&ours(signal, before)));
            }
            return tell();
        }
    }
    if is_handler(before) {
        // SAFETY: by this function's contract.
        unsafe { call(before, signal.as_raw(), info, context) };
    } else if is_before_back && is_default(before) {
        // If H3 was refused, the signal would come back to this handler without end. SAFETY: no pointers. The signal is
        // delivered when the handler has returned.
        unsafe { libc::raise(signal.as_raw()) };
    }
}

/// The signals that the calling thread blocks. What `open` has changed is undone by the next `open`.
pub(super) struct Mask(libc::sigset_t);

impl Mask {
    pub(super) fn of_this_thread() -> Self {
        // SAFETY: a struct of integers, which the call fills.
        unsafe {
            let mut now = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
            Mask(now)
        }
    }

    /// Makes the calling thread, which is the thread of `of_this_thread`, block the signals that it blocked then, without
    /// `signals`.
    pub(super) fn open(&self, signals: u64) {
        let mut set = self.0;
        for signal in super::number::each_of(signals) {
            // SAFETY: a valid set, and a number that signals have.
            unsafe { libc::sigdelset(&raw mut set, signal.as_raw()) };
        }
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
    }
}
