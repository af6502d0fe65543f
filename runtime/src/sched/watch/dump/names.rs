//! The frames of a stack as text: which function, which line, and which frames are the library's machinery.
//!
//! A trace begins at the call of the library that the user wrote, and ends at the function that the goroutine was spawned with.
//! The library's frames at the inner end lead from that call to the switch: only the outermost of them is shown. Library frames
//! between two of the user's frames are shown as well.

use crate::host::{Frames, Host, Symbol};
use std::collections::HashMap;
use std::fmt::Write;
use std::marker::PhantomData;
use std::path::PathBuf;

/// Modules of the library that no user calls, and those whose frames can lie below the function that a goroutine was spawned
/// with.
const MACHINERY: [&str; 6] = ["host::", "stack::", "sched::", "m::", "g::", "wait::waiter::"];
/// Where the code between two functions of the library can come from.
const GLUE: [&str; 4] = ["core::", "alloc::", "std::", "__rust_try"];
/// As `GLUE`, as a part of the path to a source.
const GLUE_SOURCES: [&str; 3] = ["/library/core/src/", "/library/alloc/src/", "/library/std/src/"];

/// Whose a function is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Whose {
    /// The library's, and not called from outside.
    Machinery,
    /// The library's other functions.
    Library,
    /// The standard library's.
    Glue,
    /// Neither the library's nor the standard library's.
    User,
}

impl Whose {
    fn is_ours(self) -> bool {
        matches!(self, Whose::Machinery | Whose::Library)
    }

    /// Decides by the source file, if that is known: names can come without their paths.
    fn of(symbol: Symbol<'_>) -> Self {
        match (symbol.file, symbol.function) {
            (Some(file), _) => Self::of_source(file),
            (None, Some(function)) => Self::of_name(function),
            (None, None) => Whose::User,
        }
    }

    fn of_source(file: &str) -> Self {
        // How the compiler calls the library's folder, whatever it was told of paths.
        let sources =
            file!().strip_suffix("sched/watch/dump/names.rs").expect("of_source: this file's place");
        match file.rsplit_once(sources) {
            Some((_, ours)) => Self::of_ours(&ours.replace(".rs", "::").replace('/', "::")),
            None if GLUE_SOURCES.iter().any(|part| file.contains(part)) => Whose::Glue,
            None => Whose::User,
        }
    }

    fn of_name(function: &str) -> Self {
        let path = function.trim_start_matches(['<', '&', '*']);
        let path = path.strip_prefix("mut ").unwrap_or(path);
        match path.strip_prefix("gmp::") {
            Some(ours) => Self::of_ours(ours),
            None if GLUE.iter().any(|begin| path.starts_with(begin)) => Whose::Glue,
            None => Whose::User,
        }
    }

    fn of_ours(path: &str) -> Self {
        let is_machinery = MACHINERY.iter().any(|begin| path.starts_with(begin));
        if is_machinery { Whose::Machinery } else { Whose::Library }
    }
}

/// A function in a trace, with the line at which it stands.
struct Frame {
    whose: Whose,
    text: String,
}

/// The symbols that the host, which is slow, has given so far, by return address.
pub(super) struct Names<H: Host> {
    frames: HashMap<usize, Vec<Frame>>,
    here: Option<PathBuf>,
    asks: bool,
    host: PhantomData<fn(H)>,
}

impl<H: Host> Names<H> {
    pub(super) fn new() -> Self {
        Names { asks: true, here: std::env::current_dir().ok(), ..Self::nobody_knows() }
    }

    /// Shows addresses only.
    pub(super) fn nobody_knows() -> Self {
        Names { frames: HashMap::new(), here: None, asks: false, host: PhantomData }
    }

    /// Adds the frames of these return addresses: for each a line with the function, and below it a line with its place in the
    /// source, if that is known.
    pub(super) fn write(&mut self, pcs: &[usize], text: &mut String) {
        for &pc in pcs.iter().filter(|&&pc| pc != Frames::MORE) {
            let here = self.here.as_deref().and_then(|path| path.to_str());
            self.frames.entry(pc).or_insert_with(|| {
                let mut frames = Vec::new();
                if self.asks {
                    H::symbols(pc, &mut |symbol| frames.push(Frame::of(pc, symbol, here)));
                }
                if frames.is_empty() {
                    frames.push(Frame { whose: Whose::User, text: format!("{pc:#x}\n") });
                }
                frames
            });
        }
        let frames: Vec<&Frame> = pcs.iter().filter_map(|pc| self.frames.get(pc)).flatten().collect();
        let whole = pcs.last() != Some(&Frames::MORE);
        for frame in trim(&frames, whole) {
            text.push_str(&frame.text);
        }
        if !whole {
            text.push_str("...\n");
        }
    }
}

impl Frame {
    fn of(pc: usize, symbol: Symbol<'_>, here: Option<&str>) -> Self {
        let mut text = String::new();
        let _infallible = match symbol.function {
            Some(function) => writeln!(text, "{function}"),
            None => writeln!(text, "{pc:#x}"),
        };
        if let (Some(file), Some(line)) = (symbol.file, symbol.line) {
            let inside = here.and_then(|here| file.strip_prefix(here)?.strip_prefix('/'));
            let _infallible = writeln!(text, "\t{}:{line}", inside.unwrap_or(file));
        }
        Frame { whose: Whose::of(symbol), text }
    }
}

/// Returns the frames from the call that the user wrote to the user's outermost function; to the last frame, if the outermost
/// is missing.
fn trim<'a, 'b>(frames: &'b [&'a Frame], whole: bool) -> &'b [&'a Frame] {
    let users = |frame: &&Frame| frame.whose == Whose::User;
    let Some(inner) = frames.iter().position(users) else {
        // The spawned function is one of the library's.
        let called = frames.iter().rposition(|frame| frame.whose == Whose::Library);
        return called.map_or(&[], |called| &frames[called..=called]);
    };
    // The frames between it and the user's function are those of the standard library, which the user has called.
    let begin = frames[..inner].iter().rposition(|frame| frame.whose.is_ours()).unwrap_or(0);
    let outer = frames.iter().rposition(users).map_or(inner, |last| last + 1);
    &frames[begin..if whole { outer } else { frames.len() }]
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn whose(function: &str, file: Option<&str>) -> Whose {
        Whose::of(Symbol { function: Some(function), file, line: None })
    }

    #[test]
    fn the_machinery_is_known_by_source_and_by_name() {
        let this = Some(file!());
        assert_eq!(whose("tell", this), Whose::Machinery);
        let sources = file!().strip_suffix("sched/watch/dump/names.rs").unwrap();
        assert_eq!(whose("recv", Some(&format!("/elsewhere/{sources}chan/mod.rs"))), Whose::Library);
        assert_eq!(whose("suspend", Some(&format!("{sources}m/mod.rs"))), Whose::Machinery);
        assert_eq!(whose("call_once", Some("/rustc/1/library/core/src/ops/function.rs")), Whose::Glue);
        assert_eq!(whose("gmp::m::spoof", Some("/home/me/src/main.rs")), Whose::User);
        assert_eq!(whose("<gmp::m::Window<gmp::host::native::Native>>::suspend", None), Whose::Machinery);
        assert_eq!(whose("gmp::stack::switch::trampoline", None), Whose::Machinery);
        assert_eq!(whose("<&mut gmp::chan::Iter<u32> as core::iter::Iterator>::next", None), Whose::Library);
        assert_eq!(whose("<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once", None), Whose::Glue);
        assert_eq!(whose("gmp_user::main", None), Whose::User);
    }

    /// Fails when a user's frame goes with the library's, or more library frames stay at an end than the one that was called.
    #[test]
    fn both_ends_are_trimmed_to_what_the_user_called_and_wrote() {
        let trimmed = |all: &str, whole| -> String {
            let frame = |text: char| Frame {
                whose: match text {
                    'm' => Whose::Machinery,
                    'l' | 'k' => Whose::Library,
                    'g' => Whose::Glue,
                    _ => Whose::User,
                },
                text: text.to_string(),
            };
            let frames: Vec<Frame> = all.chars().map(frame).collect();
            let frames: Vec<&Frame> = frames.iter().collect();
            trim(&frames, whole).iter().map(|frame| frame.text.as_str()).collect()
        };
        assert_eq!(trimmed("mgmlglkABglClDgmgm", true), "kABglClD");
        assert_eq!(trimmed("mgmlglkgAgg", true), "kgA");
        assert_eq!(trimmed("gAgm", true), "gA");
        assert_eq!(trimmed("mlABmm", false), "lABmm");
        assert_eq!(trimmed("mglkgmgm", true), "k");
        assert_eq!(trimmed("mgm", true), "");
        assert_eq!(trimmed("mgm", false), "");
        assert_eq!(trimmed("", true), "");
    }
}
