//! The files, and all else that the prose names between backticks, exist. Prose is the comments and the documents; a name is
//! known if the code has it, or `prose_names.txt` says whose it is.

use super::text::{self, words};
use super::verification;

use std::collections::{BTreeMap, BTreeSet};

/// The longest line of a comment, in characters.
const WIDTH: usize = 128;

/// Returns every file of the project with its path from the root.
fn files() -> BTreeMap<String, String> {
    text::files("")
}

/// Splits a file into its prose, each line with its number, and the rest.
fn split(path: &str, text: &str) -> (Vec<(usize, String)>, String) {
    let (mut prose, mut code) = (Vec::new(), String::new());
    for (at, line) in text.lines().enumerate() {
        let comment = match path {
            _ if path.ends_with(".md") => Some(0),
            _ if path.ends_with(".rs") => line.find("//"),
            _ => None,
        };
        let (before, after) = line.split_at(comment.unwrap_or(line.len()));
        code.push_str(before);
        code.push('\n');
        if comment.is_some() {
            prose.push((at + 1, after.to_owned()));
        }
    }
    (prose, code)
}

/// Returns the quotations between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    // The fence of a block of code is no quotation.
    line.split('`').skip(1).step_by(2).filter(|_| !line.contains("```"))
}

/// Returns the path that `quoted` is: a file of a kind that the project has, or a folder.
fn as_path(quoted: &str) -> Option<&str> {
    let plain = quoted.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
    let file = [".rs", ".md", ".py", ".txt", ".toml", ".json"].iter().any(|end| quoted.ends_with(end));
    // Built or measured files may not be there.
    let made = ["target", "results"].iter().any(|folder| quoted.starts_with(folder));
    let name = !made && !quoted.starts_with(['/', '.']) && quoted.len() > 4;
    (plain && name && (file || quoted.ends_with('/'))).then_some(quoted.trim_end_matches('/'))
}

/// Returns the last segment of the Rust path that `quoted` is.
fn as_name(quoted: &str) -> Option<&str> {
    let path = quoted.strip_suffix("()").or(quoted.strip_suffix('!')).unwrap_or(quoted);
    let plain = path.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    let last = path.rsplit("::").next().unwrap_or_default();
    let name = last.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (plain && name).then_some(last)
}

/// Returns the names that others have, from the list.
fn elsewhere(files: &BTreeMap<String, String>) -> BTreeSet<&str> {
    let list = &files["tests/sources/prose_names.txt"];
    list.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

#[test]
fn the_reader_sees_what_it_looks_for() {
    let (prose, code) = split("a.rs", "let a = 1; // `b::c()` is in `tests/sources/prose.rs`\n/// 2\n");
    assert_eq!(code, "let a = 1; \n\n");
    assert_eq!(
        prose,
        [(1, "// `b::c()` is in `tests/sources/prose.rs`".to_owned()), (2, "/// 2".to_owned())]
    );
    let found: Vec<_> = quoted(&prose[0].1).collect();
    assert_eq!(found, ["b::c()", "tests/sources/prose.rs"]);
    assert_eq!((as_name(found[0]), as_path(found[0])), (Some("c"), None));
    assert_eq!((as_name(found[1]), as_path(found[1])), (None, Some("tests/sources/prose.rs")));
    assert_eq!([as_name("select!"), as_name("a < b"), as_name("42")], [Some("select"), None, None]);
}

/// Fails when a file was moved or renamed and a comment or document still names the old place, or when a name without a
/// folder may mean one of several files.
#[test]
fn each_file_that_is_named_is_there() {
    let files = files();
    let is = |path: &str| {
        files.contains_key(path)
            || files
                .range(format!("{path}/")..)
                .next()
                .is_some_and(|(at, _)| at.starts_with(&format!("{path}/")))
    };
    let mut wrong = Vec::new();
    for (file, text) in &files {
        for (line, prose) in split(file, text).0 {
            for path in quoted(&prose).filter_map(as_path) {
                let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                let bases =
                    ["", "runtime/src/", "tests/", &format!("{folder}/")].map(|base| format!("{base}{path}"));
                let ends = files.keys().filter(|at| at.ends_with(&format!("/{path}"))).count();
                if !bases.iter().any(|path| is(path)) && ends != 1 {
                    wrong.push(format!("{file}:{line}: `{path}`, which {ends} files could be"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the documents that `prose` names with a section, by the name behind the last slash, a comma, and the title in
/// quotes.
fn sections_named(prose: &str) -> impl Iterator<Item = (&str, &str)> {
    prose.match_indices(".md").filter_map(|(at, end)| {
        let behind = prose[at + end.len()..].trim_start_matches(['`', ')']).strip_prefix(", \"")?;
        let path = &prose[..at + end.len()];
        let name = path.rsplit(|c: char| !c.is_alphanumeric() && !"-.".contains(c)).next()?;
        Some((name, behind.split_once('"')?.0))
    })
}

/// Fails when a section was renamed and a comment or document still has the old title. A section is a heading, or a paragraph
/// whose first words stand out; the first words of its title are enough.
#[test]
fn each_section_that_is_named_is_there() {
    let named =
        Vec::from_iter(sections_named("see [a](docs/a-b.md), \"C d\", `e.md`, \"F\", and `g.md`, where"));
    assert_eq!(named, [("a-b.md", "C d"), ("e.md", "F")]);
    let files = files();
    let titles = |document: &str| {
        let (_, text) = files.iter().find(|(path, _)| path.rsplit('/').next() == Some(document))?;
        Some(
            text.lines()
                .filter(|line| line.starts_with(['#', '*']))
                .map(|line| line.trim_start_matches(['#', '*', ' '])),
        )
    };
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (file, text) in files.iter().filter(|(file, _)| !file.starts_with("tests/sources/")) {
        // A reference may stand in two lines.
        let lines = split(file, text).0.into_iter().map(|(_, line)| line);
        let prose = lines
            .map(|line| line.trim_start_matches(['/', '!', ' ']).to_owned())
            .collect::<Vec<_>>()
            .join(" ");
        for (document, section) in sections_named(&prose) {
            seen += 1;
            if !titles(document).is_some_and(|mut titles| titles.any(|title| title.starts_with(section))) {
                wrong.push(format!("{file}: {document}, {section:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen >= 20, "the reader sees {seen} references");
}

/// Fails when something was renamed and a comment or document still has the old name, or when the list of others' names has a
/// name that is not used.
#[test]
fn each_name_between_backticks_exists() {
    let files = files();
    let elsewhere = elsewhere(&files);
    let mut code = BTreeSet::new();
    for (file, text) in &files {
        // A benchmark's folder, an example, a crate: names are names of files, too.
        code.extend(words(file).map(str::to_owned));
        if file != "tests/sources/prose_names.txt" {
            code.extend(words(&split(file, text).1).map(str::to_owned));
        }
    }
    let (mut unknown, mut used) = (Vec::new(), BTreeSet::new());
    for (file, text) in &files {
        for (line, prose) in split(file, text).0 {
            for name in quoted(&prose).filter_map(as_name) {
                if elsewhere.contains(name) {
                    used.insert(name.to_owned());
                } else if !code.contains(name) {
                    unknown.push(format!("{file}:{line}: `{name}`"));
                }
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "neither in the code nor in tests/sources/prose_names.txt:\n{}",
        unknown.join("\n")
    );
    let unused: Vec<_> = elsewhere.iter().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "in tests/sources/prose_names.txt and nowhere else: {unused:?}");
}

/// Fails when a comment is wider than a reader's window; a table's row may be.
#[test]
fn comments_have_one_width() {
    let mut wide = Vec::new();
    for (file, text) in files().iter().filter(|(file, _)| file.ends_with(".rs")) {
        for (at, line) in text.lines().enumerate() {
            let length = line.chars().count();
            let comment = line.trim_start().starts_with("//");
            let row = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if comment && !row && length > WIDTH && !line.contains("](") {
                wide.push(format!("{file}:{}: {length} characters", at + 1));
            }
        }
    }
    assert!(wide.is_empty(), "comments of more than {WIDTH} characters:\n{}", wide.join("\n"));
}

/// Fails when a model, a mutant, a fence or a lock's rank was added, changed or removed, and the document was not written anew.
#[test]
fn the_tables_of_verification_are_those_of_the_code() {
    verification::check(&files());
}
