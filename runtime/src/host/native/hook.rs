//! The panic hook: says which goroutine panicked, and runs the previous hook on a stack that is large enough.
//!
//! std's hook names the thread, which says nothing about the goroutine. Our hook is installed with the first runtime; before it
//! calls the hook that was installed then, it prints one line with the goroutine's id, name and spawn site, and with the place
//! of the panic and the number of the thread. std's next line has the last two as well, so the two lines can be matched however
//! many goroutines panic at a time. A hook that the program installs later replaces ours, and may call `gmp::current()`.
//!
//! A backtrace takes some 30 KiB of stack, more than a goroutine may have left. So the previous hook runs on a stack of its
//! own, as if by `with_stack`; a backtrace goes on from there to the goroutine's frames. Stacks for fifteen panics at a time
//! are mapped with the first runtime. If none of these is free, the rest of the goroutine's stack decides. With less than
//! `ENOUGH` bytes the previous hook does not run, and our hook prints the panic's message and why there is no more. With
//! `ENOUGH`, which also suffices to map a stack, the previous hook runs on a stack of the plain threads' pool, which is mapped
//! now if need be; or, if there is no memory for that stack, on the goroutine's own. All these stacks are the process's, not a
//! runtime's: neither a runtime's limit nor a lock that the panicking code holds is in the way. (On the `generator` backend the
//! previous hook runs where the panic is: a backtrace would end at the edge of another stack.)

use super::stderr::tell;
use super::{overflow, segment};
use crate::host::Active;
use crate::m::M;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// The size of the stack on which the previous hook runs.
const ROOM: usize = 256 << 10;
/// With so much left, the previous hook may run on the goroutine's own stack.
const ENOUGH: usize = 40 << 10;

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // The hook can't be set on a thread that panics; the next runtime tries again.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
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

/// Prints the line about the goroutine, if the caller is one, and `besides`, in one write.
fn announce(info: &PanicHookInfo<'_>, besides: Option<std::fmt::Arguments<'_>>) {
    let text = besides.map(|besides| format!("{info}\n{besides}\n")).unwrap_or_default();
    let Some(g) = M::<Active>::current().and_then(M::g) else { return tell(&text) };
    g.with_birth(|birth| {
        let name = birth.name.as_deref().map(|name| format!(" '{name}'")).unwrap_or_default();
        let at = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        let (id, site, thread) = (g.id(), &birth.site, super::watch::number());
        let line =
            format!("goroutine {id}{name} (spawned at {site}) panicked{at}, on thread {thread}:\n{text}");
        tell(&line);
    });
}

/// Runs `hook` on a stack that is large enough.
fn aside(info: &PanicHookInfo<'_>, hook: &mut dyn FnMut()) {
    // A thread's own stack is large. The `generator` backend knows nothing of a goroutine's.
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
