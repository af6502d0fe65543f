//! The comments on memory order: each ordering stronger than Relaxed names its partner, and each fence has one label.

use super::text::{self, words};

use std::collections::BTreeMap;

/// Returns the packages' sources with their paths from the root, without what mutants are made of.
fn sources() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for folder in ["runtime/src", "netpoll/src", "timers/src"] {
        for (path, text) in text::shipped(folder) {
            if !["/mutants.rs", "/hooks.rs"].into_iter().any(|end| path.ends_with(end)) {
                found.insert(format!("{folder}/{path}"), text.lines().map(str::to_owned).collect());
            }
        }
    }
    found
}

/// Splits a line into its code and its comment.
fn parts(line: &str) -> (&str, &str) {
    line.split_once("//").unwrap_or((line, ""))
}

/// Returns `true` if the code of a line uses an ordering that has a partner.
fn orders(code: &str) -> bool {
    let uses = |word| ["Acquire", "Release", "AcqRel", "SeqCst", "fence_after_exchange"].contains(&word);
    words(code).any(uses)
}

/// Returns `true` for the names that a file imports, for the one function that makes other fences, and for what only mutants
/// do.
fn is_exempt(lines: &[String], at: usize) -> bool {
    let begins = |head: &str| {
        let statement = lines[..=at].iter().rev().take(8).take_while(|line| !parts(line).0.contains(';'));
        parts(&lines[at]).0.trim_start().starts_with(head)
            || statement.into_iter().any(|line| line.trim_start().starts_with(head))
    };
    ["use ", "pub(crate) use ", "pub(crate) fn fence_after_exchange(", "mutant!("].into_iter().any(begins)
}

/// Returns the comment of the statement in line `at`: on its lines up to there, and directly above it.
fn comment(lines: &[String], at: usize) -> String {
    let mut first = at;
    while first > 0 {
        let (code, _) = parts(&lines[first - 1]);
        if code.trim().is_empty() || code.trim_end().ends_with([';', '{', '}']) {
            break;
        }
        first -= 1;
    }
    let above = lines[..first].iter().rev().take_while(|line| line.trim_start().starts_with("//")).count();
    lines[first - above..=at].iter().map(|line| parts(line).1.trim_start_matches(['/', '!'])).collect()
}

/// Returns `true` if a comment names a partner, or says that there is none, and what takes its place.
fn names_a_partner(comment: &str) -> bool {
    words(comment).any(|word| ["partner", "partners"].contains(&word))
}

#[test]
fn the_reader_sees_what_it_looks_for() {
    let text = "use a::{\n    Acquire, b,\n};\nfn f() {\n    // Acquire: partner `g`.\n    let a = b\n        .load(Acquire);\n\
                    c.store(1, Release); // Release: what is there.\n}\n";
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let found: Vec<_> = (0..lines.len()).filter(|&at| orders(parts(&lines[at]).0)).collect();
    assert_eq!(found, [1, 6, 7]);
    assert_eq!([1, 6, 7].map(|at| is_exempt(&lines, at)), [true, false, false]);
    assert_eq!([6, 7].map(|at| names_a_partner(&comment(&lines, at))), [true, false]);
}

/// Fails when the comment of an Acquire, a Release, an AcqRel or a fence does not name its partner.
#[test]
fn each_ordering_names_its_partner() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, lines) in sources() {
        for at in 0..lines.len() {
            if !orders(parts(&lines[at]).0) || is_exempt(&lines, at) {
                continue;
            }
            count += 1;
            let comment = comment(&lines, at);
            if !names_a_partner(&comment) {
                wrong.push(format!("{file}:{}: {}\n    says: {comment}", at + 1, lines[at].trim()));
            }
        }
    }
    assert!(count > 100, "only {count} orderings were found");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fails when two fences have one label, or prose names a fence that does not exist. A fence's comment begins with its label.
#[test]
fn each_fence_has_a_label_of_its_own() {
    let is_label = |word: &str| {
        let named = word.ends_with("Fence") || word.ends_with("Barrier");
        named && word.len() > "Barrier".len() && word.chars().next().is_some_and(char::is_uppercase)
    };
    let (mut defined, mut named) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::new());
    for (file, lines) in sources() {
        let mut follows = false;
        for (at, line) in lines.iter().enumerate() {
            let (code, prose) = parts(line);
            let place = format!("{file}:{}", at + 1);
            let label = prose.trim_start_matches(['/', '!']).trim_start().split([':', '.', ' ']).next();
            let begins = code.trim().is_empty() && !prose.starts_with('!') && !follows;
            follows = line.trim_start().starts_with("//");
            if let Some(label) = label.filter(|label| begins && is_label(label)) {
                defined.entry(label.to_owned()).or_default().push(place.clone());
            }
            for word in words(prose).filter(|word| is_label(word)) {
                named.entry(word.to_owned()).or_insert(place.clone());
            }
        }
    }
    for (label, place) in &named {
        let at = defined.get(label).map_or(&[][..], Vec::as_slice);
        assert_eq!(at.len(), 1, "{label}, named in {place}, begins the comments at {at:?}");
    }
}
