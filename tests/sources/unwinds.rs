//! Every public call that may park says whether it may unwind, and the contract names the call. The list of those calls is read
//! from the sources, too.

use super::text;

use std::collections::BTreeSet;

/// The code that users call, by file or folder of `runtime/src`.
const PUBLIC: [&str; 27] = [
    "chan/",
    "context/",
    "net/",
    "os/fs/",
    "os/io/",
    "os/process/child.rs",
    "os/process/command.rs",
    "os/process/streams.rs",
    "os/signal/mod.rs",
    "os/signal/receiver.rs",
    "sync/",
    "time/",
    "goroutine/mod.rs",
    "goroutine/abort.rs",
    "goroutine/block_on.rs",
    "goroutine/builder.rs",
    "goroutine/fork.rs",
    "goroutine/join.rs",
    "goroutine/local.rs",
    "goroutine/park.rs",
    "runtime/mod.rs",
    "goroutine/priority.rs",
    "goroutine/scope.rs",
    "goroutine/thread.rs",
    "goroutine/turns.rs",
    "goroutine/verbs.rs",
    "goroutine/with_stack.rs",
];

/// Where a wait begins.
const PARKS: [&str; 9] = [
    "wait_in(",
    ".park(",
    ".suspend(",
    "end_here",
    "Window::<Active>::enter()",
    "enter_with_p().or_else(",
    "blocking(",
    ".files.call(",
    ".lookups.call_behind(",
];

/// std's traits with methods that may park.
const OF_STD: [&str; 5] = ["Read", "Write", "Deref", "Iterator", "DoubleEndedIterator"];

/// Calls that park and share their names with others, as the public types spell them.
const PARKS_HERE: [&str; 10] = [
    "0.run(",
    "raw.lock(",
    "lock_surely(",
    "chan.recv(",
    "chan.send(",
    "handle.join(",
    "tasks.wait(",
    "calls.lock(",
    "outcome.wait(",
    "once.call",
];

const SECTION: &str = "/// # Unwinds";

struct Function {
    file: String,
    name: String,
    public: bool,
    doc: String,
    body: String,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the name of the function that begins on this line, and whether it is public.
fn head(line: &str) -> Option<(String, bool)> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "unsafe", "pub(crate)", "pub(super)", "extern", "\"C\"", "\"C-unwind\""];
    if !before.split_whitespace().all(|word| words.contains(&word)) {
        return None;
    }
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    Some((name, before.split_whitespace().next() == Some("pub")))
}

/// Returns the functions of a file. By rustfmt's layout a body ends with the brace that stands below its head.
fn functions(file: &str, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    // A trait's methods are public where the trait is. These are traits of std, on public types.
    let mut of_std = false;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("impl") {
            of_std = OF_STD.iter().any(|name| line.contains(&format!(" {name} for ")));
        }
        let Some((name, is_pub)) = head(line) else { continue };
        let docs = lines[..at].iter().rev().map(|line| line.trim_start());
        let mut doc: Vec<_> =
            docs.take_while(|line| line.starts_with("///") || line.starts_with("#[")).collect();
        doc.reverse();
        let close = format!("{}}}", " ".repeat(indent(line)));
        let ends = |line: &&str| **line == close || line.ends_with(';') && indent(line) == close.len() - 1;
        let rest = lines[at..].iter();
        let body: Vec<&str> = match line.ends_with('}') {
            true => vec![line],
            false => {
                rest.clone().take(rest.clone().position(ends).map_or(0, |end| end + 1)).copied().collect()
            }
        };
        let code = body.iter().map(|line| line.split("//").next().unwrap_or_default());
        found.push(Function {
            file: file.to_owned(),
            name,
            public: is_pub || of_std && indent(line) > 0,
            doc: doc.join("\n"),
            body: code.skip(1).collect::<Vec<_>>().join("\n") + if body.len() == 1 { line } else { "" },
        });
    }
    found
}

fn all() -> Vec<Function> {
    let belongs = |name: &str| {
        let is = |what: &str| name == what || what.ends_with('/') && name.starts_with(what);
        PUBLIC.into_iter().any(is)
    };
    let public = text::shipped("runtime/src").into_iter().filter(|(name, _)| belongs(name));
    public.flat_map(|(name, text)| functions(&name, &text)).collect()
}

/// Returns `true` if `body` has `what`, not as the end of a longer name.
fn names(body: &str, what: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let anywhere = !what.starts_with(joins);
    body.match_indices(what).any(|(at, _)| anywhere || !body[..at].ends_with(joins))
}

/// Returns the calls of a body: each name, and whether the function is one of the same file, as far as the text tells.
fn calls(body: &str) -> BTreeSet<(&str, bool)> {
    let name_before = |at: usize| {
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        &body[body[..at].trim_end_matches(joins).len()..at]
    };
    let called = body.match_indices('(').filter_map(|(at, _)| {
        let name = name_before(at);
        let before = &body[..at - name.len()];
        let own = ["self.", "Self::", "inner."].iter().any(|whom| before.ends_with(whom))
            || !before.ends_with('.') && !before.ends_with("::");
        (!name.is_empty()).then_some((name, own))
    });
    called.collect()
}

/// Returns the numbers of the functions that park: they begin a wait, or call a function of their own file that does, or a
/// function of the library whose name no function has that does not park.
fn parking(all: &[Function]) -> BTreeSet<usize> {
    let begins = |f: &Function| PARKS.iter().chain(&PARKS_HERE).any(|what| names(&f.body, what));
    let called: Vec<_> = all.iter().map(|f| calls(&f.body)).collect();
    let mut parks: BTreeSet<usize> = (0..all.len()).filter(|&n| begins(&all[n])).collect();
    loop {
        let files: BTreeSet<_> = parks.iter().map(|&n| (&*all[n].file, &*all[n].name)).collect();
        let others: BTreeSet<_> =
            (0..all.len()).filter(|n| !parks.contains(n)).map(|n| &*all[n].name).collect();
        let inner = parks.iter().filter(|&&n| !all[n].public).map(|&n| &*all[n].name);
        let alone: BTreeSet<_> = inner.filter(|name| !others.contains(name)).collect();
        let does = |n: usize| {
            called[n]
                .iter()
                .any(|&(name, own)| own && files.contains(&(&*all[n].file, name)) || alone.contains(name))
        };
        let more: Vec<_> = (0..all.len()).filter(|&n| !parks.contains(&n) && does(n)).collect();
        if more.is_empty() {
            return parks;
        }
        parks.extend(more);
    }
}

fn says_that_it_blocks(doc: &str) -> bool {
    ["Blocks", "blocks", "Parks"].iter().any(|verb| {
        ["the goroutine", "the calling goroutine", "the calling one", "what `f` blocks"]
            .iter()
            .any(|whom| doc.contains(&format!("{verb} {whom}")))
    })
}

/// Fails when a public call that parks, or says so, has no section about it; or when one has the section and says that it
/// does not block.
#[test]
fn every_public_call_that_may_park_says_that_it_may_unwind() {
    let all = all();
    let parks = parking(&all);
    let (mut silent, mut count) = (Vec::new(), 0);
    for (n, f) in all.iter().enumerate().filter(|(_, f)| f.public) {
        let says = f.doc.contains(SECTION);
        count += usize::from(says);
        if !says && (parks.contains(&n) || says_that_it_blocks(&f.doc)) {
            silent.push(format!("{}: {}", f.file, f.name));
        }
        assert!(!says || !f.doc.contains("Does not block."), "{}: {} says both", f.file, f.name);
    }
    assert!(silent.is_empty(), "these may park, and do not say that they may unwind: {silent:#?}");
    assert!(count > 50, "only {count} have the section");
}

/// Returns the text of the contract's part of this name.
fn contract(part: &str) -> String {
    let text = &text::shipped("runtime/src")["goroutine/migration.rs"];
    let lines = text.lines().skip_while(|line| *line != format!("//! # {part}")).skip(1);
    lines.take_while(|line| !line.starts_with("//! # ")).map(|line| format!("{line}\n")).collect()
}

/// The modules that the contract names as a whole.
const MODULES: [(&str, &str); 8] = [
    ("chan/", "chan"),
    ("net/", "net"),
    ("os/fs/", "fs"),
    ("os/io/", "io"),
    ("os/process/", "process"),
    ("os/signal/", "signal"),
    ("sync/", "sync"),
    ("time/", "time"),
];

fn module_of(f: &Function) -> Option<&'static str> {
    MODULES.iter().find(|(folder, _)| f.file.starts_with(folder)).map(|&(_, module)| module)
}

fn links(module: &str) -> String {
    format!("[`{module}`](crate::{module})")
}

/// Fails when the contract names neither a call that may park nor, where it says what parks there, the call's module; or when
/// the contract says of such a call that it never parks.
#[test]
fn the_contract_names_what_may_park() {
    let (all, text) = (all(), contract("What may park"));
    let (parks, never) = text.split_once("//! Never: ").expect("the contract says what never parks");
    let is_named = |f: &Function| {
        [format!("`{}`", f.name), format!("::{}`", f.name)].iter().any(|name| parks.contains(name))
    };
    let named = |f: &Function| match module_of(f) {
        // Of this module the contract names each call.
        Some("process") => is_named(f) && parks.contains(&links("process")),
        Some(module) => parks.contains(&links(module)),
        None => is_named(f),
    };
    let (mut missing, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    let which = parking(&all);
    for (n, f) in all.iter().enumerate().filter(|(_, f)| f.public && !f.doc.contains("doc(hidden)")) {
        if (which.contains(&n) || f.doc.contains(SECTION)) && !named(f) {
            missing.insert(format!("{}: {}", f.file, f.name));
        }
        if which.contains(&n) && never.contains(&format!("(crate::{})", f.name)) {
            wrong.insert(format!("{}: {}", f.file, f.name));
        }
    }
    assert!(missing.is_empty(), "the contract does not say that these may park: {missing:#?}");
    assert!(wrong.is_empty(), "the contract says that these never park: {wrong:#?}");
}

/// Fails when the contract, `Context::run`, `time::timeout` or `AbortHandle::abort` does not name the module of a call that a
/// context ends by an error; or when the contract does not name such a call of `sync`, whose other calls unwind.
#[test]
fn each_list_of_what_a_context_ends_by_an_error_is_whole() {
    const SAYS: &str = "except by a context, which gives an error here";
    let all = all();
    let doc = |file: &str, name: &str| {
        let mut named = all.iter().filter(|f| f.file == file && f.name == name && f.public);
        named.next().unwrap_or_else(|| panic!("{file} has {name}")).doc.clone()
    };
    let contract = contract("What may unwind");
    let lists = [
        ("the contract", contract.clone()),
        ("Context::run", doc("context/mod.rs", "run")),
        ("time::timeout", doc("time/mod.rs", "timeout")),
        ("AbortHandle::abort", doc("goroutine/abort.rs", "abort")),
    ];
    let (mut missing, mut modules) = (BTreeSet::new(), BTreeSet::new());
    // A macro's functions have an indent of their own, so the words are looked for in whole files, too.
    for (name, _) in text::shipped("runtime/src").into_iter().filter(|(_, text)| text.contains(SAYS)) {
        let module = MODULES.iter().find(|(folder, _)| name.starts_with(folder));
        modules.insert(module.unwrap_or_else(|| panic!("{name} is of none of the modules")).1);
    }
    for f in all.iter().filter(|f| f.doc.contains(SAYS) && module_of(f) == Some("sync")) {
        if !contract.contains(&format!("(crate::sync::Semaphore::{})", f.name)) {
            missing.insert(format!("the contract: {}", f.name));
        }
    }
    for module in modules.iter().filter(|module| **module != "sync") {
        for (list, _) in lists.iter().filter(|(_, text)| !text.contains(&links(module))) {
            missing.insert(format!("{list}: {module}"));
        }
    }
    assert!(missing.is_empty(), "these are not named: {missing:#?}");
    assert!(modules.len() > 3, "only {modules:?} have the words");
}

/// Fails when the reader no longer finds what it looks for.
#[test]
fn the_list_is_read_from_the_code() {
    let all = all();
    let parks: Vec<_> = parking(&all).into_iter().map(|n| (&*all[n].file, &*all[n].name)).collect();
    for known in [
        ("chan/ends.rs", "recv_timeout"),
        ("goroutine/join.rs", "join"),
        ("goroutine/turns.rs", "yield_now"),
        ("net/tcp/listener.rs", "accept"),
        ("net/udp.rs", "send_to"),
        ("os/fs/dir.rs", "read_dir"),
        ("os/fs/file.rs", "lock"),
        ("os/fs/mod.rs", "copy"),
        ("os/io/watched.rs", "read_with"),
        ("os/process/child.rs", "wait"),
        ("os/process/command.rs", "spawn"),
        ("goroutine/fork.rs", "fork"),
        ("sync/guard.rs", "bump"),
        ("sync/lazy_lock.rs", "deref"),
        ("sync/condvar.rs", "wait_while_until"),
        ("sync/mutex.rs", "lock"),
        ("sync/rwlock.rs", "try_write_for"),
        ("sync/semaphore.rs", "acquire_ctx"),
        ("time/mod.rs", "sleep"),
    ] {
        assert!(parks.contains(&known), "{known:?} is not found");
    }
    for never in
        [("sync/mutex.rs", "try_lock"), ("sync/event.rs", "notify_one"), ("chan/ends.rs", "try_send")]
    {
        assert!(!parks.contains(&never), "{never:?} is found");
    }
}
