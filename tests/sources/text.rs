//! The one reader of the sources: files by their paths from a folder, and the parts of them that ship.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns every file below `folder` of the project, with its path from there, without what was built.
pub fn files(folder: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
            let path: PathBuf = entry.expect("the folder can be read").path();
            let name = path.file_name().expect("it is no root").to_string_lossy();
            if path.is_dir() {
                // Figures and what was built are no sources; of what begins with a dot only git's own is left out.
                let left_out = ["target", "results"].contains(&&*name) || name.starts_with(".git");
                if !left_out {
                    folders.push(path);
                }
            } else {
                let relative = path.strip_prefix(&root).expect("it was found there");
                // A file that is no text, such as a picture, is empty here.
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.insert(relative.to_str().expect("names are UTF-8").to_owned(), text);
            }
        }
    }
    found
}

/// Returns the files below `folder` that are Rust.
pub fn rust(folder: &str) -> BTreeMap<String, String> {
    let mut found = files(folder);
    found.retain(|path, _| path.ends_with(".rs"));
    found
}

/// Returns the Rust files below `folder` that ship, without their unit tests: no models, and no module of tests that is a file.
pub fn shipped(folder: &str) -> BTreeMap<String, String> {
    let mut found = rust(folder);
    found.retain(|path, _| !path.starts_with("models/") && !path.ends_with("/tests.rs"));
    found.values_mut().for_each(|text| *text = without_tests(text));
    found
}

/// Returns `text` with empty lines in place of its modules of tests, wherever they stand: each line keeps its number. By
/// rustfmt's layout a module ends with the line on which it begins, or with the next brace at the beginning of a line.
pub fn without_tests(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let (mut out, mut at) = (String::new(), 0);
    while at < lines.len() {
        let end = tests_at(&lines[at..]).map(|length| at + length);
        if end.is_none() {
            out.push_str(lines[at]);
        }
        for _ in at..end.unwrap_or(at + 1) {
            out.push('\n');
        }
        at = end.unwrap_or(at + 1);
    }
    out
}

/// Returns how many lines a module of tests takes that begins, with its attributes, on the first of `lines`.
fn tests_at(lines: &[&str]) -> Option<usize> {
    if !["#[cfg(test)]", "#[cfg(all(test"].iter().any(|attribute| lines[0].starts_with(attribute)) {
        return None;
    }
    let head = lines.iter().position(|line| !line.starts_with("#["))?;
    if !lines[head].starts_with("mod ") {
        return None;
    }
    if lines[head].ends_with(';') || lines[head].ends_with('}') {
        return Some(head + 1);
    }
    Some(lines.iter().position(|line| *line == "}").expect("the module ends") + 1)
}

/// Returns the words of a text: names, and what they are made of.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Fails when the code after a module of tests, or code that is no module, is left out, or a line number changes.
#[test]
fn modules_of_tests_alone_are_left_out() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nmod b;\n#[cfg(test)]\nfn c() {\n}\n#[cfg(all(test, not(d)))]\n\
                #[allow(e)]\nmod f {\n    fn g() {}\n}\nfn h() {\n    #[cfg(test)]\n    mod i;\n}\n#[cfg(test)]\nmod j {}\nfn k() {}\n";
    let left = "use a;\n\n\nmod b;\n#[cfg(test)]\nfn c() {\n}\n\n\n\n\n\nfn h() {\n    #[cfg(test)]\n    mod i;\n}\n\n\nfn k() {}\n";
    assert_eq!(without_tests(text), left);
}

/// Fails when a file whose tests are declared at its top is not read further, or models and tests are read.
#[test]
fn the_reader_reads_what_ships() {
    let sources = shipped("runtime/src");
    assert!(sources["stack/pool/mod.rs"].contains("\nimpl StackPool {"));
    assert!(sources["host/native/frames/mod.rs"].contains("\nfn "));
    assert!(!sources.contains_key("models/park.rs") && !sources.contains_key("stack/pool/tests.rs"));
    assert!(rust("runtime/src").contains_key("models/park.rs"));
}
