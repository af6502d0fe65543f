//! The panic hook says which goroutine panicked, and has the hook from before run where there is stack enough.
//!
//! std's hook names the thread, which tells nothing here. Before the hook that was installed when the first
//! runtime was built, ours prints one line with the goroutine's id, name and spawn site, and with the place of the panic
//! and the number of the thread, both of which std's next line has too: so the two belong together, however many panic at a
//! time. A hook that the program installs later replaces it, and may ask `gmp::current()`.
//!
//! A backtrace takes some 30 KiB of stack, more than a goroutine may have left. So the hook from before runs on a stack of its
//! own, as if `with_stack` were called; a backtrace goes on from there to the goroutine's frames. Where no stack is to be
//! had, it runs on the goroutine's, if `ENOUGH` of that is left, and else not at all: then the message is printed here, and
//! why no more is. Some of those stacks are made with the first runtime, for fifteen panics at a time: mapping more takes
//! `ENOUGH` stack, too. The stacks are the process's, not the runtime's: neither a runtime's limit nor a lock that is held
//! by the code that panics is in the way. (On the `generator` backend the hook runs where it was called.)

#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
use super::{overflow, segment};
use crate::host::Active;
use crate::m::M;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// The stack on which the hook from before runs.
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
const ROOM: usize = 256 << 10;
/// With so much left it may run on the goroutine's own.
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
const ENOUGH: usize = 40 << 10;

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // The hook can't be changed on a thread that panics; the next runtime tries again.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        #[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
        segment::prepare(ROOM);
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            aside(info, &mut || {
                announce(info, None);
                previous(info);
            });
        }));
    });
}

/// The line about the goroutine, if the caller is one; and what is to be said besides, in the same write.
fn announce(info: &PanicHookInfo<'_>, besides: Option<std::fmt::Arguments<'_>>) {
    let text = besides.map(|besides| format!("{info}\n{besides}\n")).unwrap_or_default();
    let Some(g) = M::<Active>::current().and_then(M::g) else { return super::tell(&text) };
    g.with_birth(|birth| {
        let name = birth.name.as_deref().map(|name| format!(" '{name}'")).unwrap_or_default();
        let at = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        let (id, site, thread) = (g.id(), &birth.site, super::watch::number());
        let line =
            format!("goroutine {id}{name} (spawned at {site}) panicked{at}, on thread {thread}:\n{text}");
        super::tell(&line);
    });
}

/// Runs `hook`, where there is room for it.
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
fn aside(info: &PanicHookInfo<'_>, hook: &mut dyn FnMut()) {
    // A thread's own stack is large.
    let Some(left) = overflow::left() else { return hook() };
    if segment::call_on_stock(ROOM, hook).is_ok() {
        return;
    }
    if left >= ENOUGH {
        return segment::call_on(None, ROOM, hook).unwrap_or_else(|_| hook());
    }
    let why = format_args!(
        "the panic hook was not run: {left} bytes of stack are left, and no other stack is free"
    );
    announce(info, Some(why));
}

/// A backtrace would end at the edge of another stack.
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
fn aside(_info: &PanicHookInfo<'_>, hook: &mut dyn FnMut()) {
    hook();
}
