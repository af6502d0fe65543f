//! The lines that the sources promise not to cross, read from the sources: what loom checks is what ships only as
//! long as the scheduler gets its atomics, locks, threads and clock from the facade.

use super::text;

use std::fs;
use std::path::Path;

/// The names that the scheduler, and the code below it, may get only through `crate::prim` and `Host`.
const BEHIND_THE_FACADE: [&str; 12] = [
    "std::sync",
    "core::sync",
    "std::thread",
    "thread_local!",
    "Instant::now",
    "SystemTime",
    "parking_lot",
    "crossbeam",
    "loom::",
    "libc::",
    "mio::",
    "static ",
];

/// The files that loom runs as they are: a folder, or a file.
const CHECKED: [&str; 21] = [
    "chan/",
    "context/",
    "sched/",
    "wait/",
    "g/",
    "m/",
    "p/jobs.rs",
    "p/mod.rs",
    "p/batch.rs",
    "p/runq.rs",
    "p/runq/head.rs",
    "p/runq/pick.rs",
    "p/runq/thief.rs",
    "sync/",
    "time/source.rs",
    "time/timer.rs",
    "net/desc.rs",
    "net/fd.rs",
    "net/limit.rs",
    "net/io_lock.rs",
    "impls.rs",
];

/// The files that choose between two builds by the cfg `gmp_loom`.
const CHOOSING: [&str; 5] =
    ["prim/mod.rs", "prim/capacity.rs", "prim/hooks.rs", "prim/lock.rs", "host/mod.rs"];

/// The files that add something to the model's build and choose nothing, and what they add.
const ADDING: [(&str, &str); 24] = [
    ("chan/dynamic/selected.rs", "a message that unwinds"),
    ("g/mod.rs", "what a mutant does"),
    ("lib.rs", "which modules there are"),
    ("m/apart.rs", "what an owner does that has waited for long"),
    ("m/bound.rs", "what a thread has"),
    ("m/handoff.rs", "whether a retaker waits for the holder"),
    ("p/batch.rs", "a turn of `Normal`, which a model makes"),
    ("p/runq.rs", "what mutants do"),
    ("prim/single_writer.rs", "what loom weighs where a model asks for that"),
    ("runtime/mod.rs", "a runtime without a first M"),
    ("sched/mod.rs", "whether nobody runs anything, and what mutants do"),
    ("sched/park.rs", "the wait reason of a model"),
    ("sched/run/jobs.rs", "taking a job slowly, for models"),
    ("sched/run/look.rs", "a visit that a model makes, and what it waits for"),
    ("sched/run/mask.rs", "a copy for a mutant"),
    ("sched/stacks.rs", "looks of the monitor, and whether they are needed"),
    ("sched/threads/procs.rs", "how many Ps are where"),
    ("sched/threads/retake.rs", "a retake beside an entry, which a model makes"),
    ("sched/timers/timer_thread.rs", "whether its thread is there"),
    ("sched/watch/mod.rs", "what its models alone use"),
    ("sched/watch/sysmon.rs", "one look of the monitor"),
    ("stack/pool/mod.rs", "a pool that no model asks for"),
    ("sync/mod.rs", "not there: the constants of lock_api, as no lock of loom's can be one"),
    ("sync/raw_mutex.rs", "what lock_api alone uses"),
];

/// Returns every source file below `folder` that ships, with its path from there and its code.
fn sources(folder: &str) -> Vec<(String, String)> {
    text::shipped(folder).into_iter().map(|(name, text)| (name, code(&text))).collect()
}

/// Returns the text without comments.
fn code(text: &str) -> String {
    let uncommented = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    uncommented.map(|line| line.to_owned() + "\n").collect()
}

/// Returns `true` if `code` names `what`: not as the end of a longer name, nor as a lifetime.
fn names(code: &str, what: &str) -> bool {
    let joins = |before: char| before.is_alphanumeric() || "_'".contains(before);
    code.match_indices(what).any(|(at, _)| !code[..at].ends_with(joins))
}

#[test]
fn the_reader_sees_what_it_looks_for() {
    let text = "//! std::sync\nuse std::sync::Arc; // std::thread\n    /// mio::\nfn f(x: &'static str) {}\n";
    let code = code(text);
    assert!(names(&code, "std::sync"));
    for absent in ["std::thread", "mio::", "static "] {
        assert!(!names(&code, absent), "{absent}");
    }
    assert!(names("static X: u8 = 1;", "static ") && names("pub static X", "static "));
    assert!(!names("let mymio::x", "mio::"));
}

/// Fails when a protocol uses an atomic, a lock or a clock that loom does not see.
#[test]
fn the_scheduler_names_nothing_that_is_behind_the_facade() {
    let sources = sources("runtime/src");
    for checked in CHECKED {
        let belongs = |name: &str| name == checked || checked.ends_with('/') && name.starts_with(checked);
        let files: Vec<_> = sources.iter().filter(|(name, _)| belongs(name)).collect();
        assert!(!files.is_empty(), "{checked} has moved");
        for (name, code) in files {
            for what in BEHIND_THE_FACADE {
                assert!(!names(code, what), "runtime/src/{name} names {what}");
            }
        }
    }
}

/// Fails when code differs between the build that loom checks and the one that ships.
#[test]
fn only_the_facade_and_the_hosts_choose_by_the_cfg_of_the_model() {
    let mut adding = Vec::new();
    for (name, code) in sources("runtime/src") {
        // Tests that loom does not run do not ship.
        let code = code.replace("#[cfg(all(test, not(gmp_loom)))]", "");
        if CHOOSING.contains(&name.as_str()) || !code.contains("gmp_loom") {
            continue;
        }
        adding.push(name.clone());
        // The list of modules has two sides; everything else is there or not.
        let mentions = code.matches("gmp_loom").count();
        let forms = [
            "#[cfg(gmp_loom)]",
            "#[cfg(all(test, gmp_loom))]",
            "#[cfg_attr(gmp_loom, allow(dead_code, reason",
        ];
        let mut additions: usize = forms.iter().map(|form| code.matches(form).count()).sum();
        if name == "sync/mod.rs" {
            additions += code.matches("#[cfg(not(gmp_loom))]\npub ").count();
        }
        assert!(name == "lib.rs" || mentions == additions, "runtime/src/{name} chooses by gmp_loom");
    }
    assert_eq!(adding, ADDING.map(|(name, _what)| name));
    for leaf in ["netpoll/src", "timers/src"] {
        for (name, code) in sources(leaf) {
            assert!(!code.contains("gmp_loom"), "{leaf}/{name} mentions gmp_loom");
        }
    }
}

#[test]
fn mio_is_named_in_one_file() {
    for folder in ["runtime/src", "netpoll/src", "timers/src"] {
        for (name, code) in sources(folder) {
            let poller = (folder, name.as_str()) == ("netpoll/src", "poller.rs");
            assert_eq!(names(&code, "mio::"), poller, "{folder}/{name}");
        }
    }
    let depends = |package: &str| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(package).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("the package has a manifest");
        manifest.lines().any(|line| line.starts_with("mio"))
    };
    assert_eq!(["runtime", "netpoll", "timers"].map(depends), [false, true, false]);
}

#[test]
fn the_leaves_know_neither_each_other_nor_the_runtime() {
    for (leaf, others) in [("timers/src", ["gmp_netpoll", "gmp::"]), ("netpoll/src", ["gmp_timers", "gmp::"])]
    {
        for (name, code) in sources(leaf) {
            for other in others {
                assert!(!names(&code, other), "{leaf}/{name} names {other}");
            }
        }
    }
}
