//! The panic hook says which goroutine panicked.
//!
//! std's hook names the thread, which tells nothing here. Before the hook that was installed when the first
//! runtime was built, ours prints one line with the goroutine's id, name and spawn site. A hook that the program
//! installs later replaces it, and may ask `gmp::current()`.

use crate::host::Active;
use crate::m::M;
use std::sync::Once;

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // The hook can't be changed on a thread that panics; the next runtime tries again.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            announce();
            previous(info);
        }));
    });
}

fn announce() {
    let Some(g) = M::<Active>::current().and_then(M::g) else { return };
    g.with_birth(|birth| {
        let name = birth.name.as_deref().map(|name| format!(" '{name}'")).unwrap_or_default();
        super::say(format_args!("goroutine {}{name} (spawned at {}):", g.id(), birth.site));
    });
}
