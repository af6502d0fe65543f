//! Each source file is a module of its crate: a file that no `mod` names is not compiled, and its tests do not run.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates, by the root of their modules.
const ROOTS: [&str; 4] =
    ["runtime/src/lib.rs", "netpoll/src/lib.rs", "timers/src/lib.rs", "tests/common/lib.rs"];

/// Returns the Rust files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the files that may hold the `mod` of `file`: the root of the folder, or the file that has the name of the folder.
fn parents(file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().expect("a file is in a folder");
    let folder =
        if file.ends_with("mod.rs") { folder.parent().expect("a module is in a crate") } else { folder };
    let named = folder.with_extension("rs");
    ["lib.rs", "main.rs", "mod.rs"].iter().map(|name| folder.join(name)).chain([named]).collect()
}

/// Returns the name of the module.
fn name(file: &Path) -> &str {
    let named = if file.ends_with("mod.rs") { file.parent().expect("a module has a folder") } else { file };
    named.file_stem().and_then(|stem| stem.to_str()).expect("names are ASCII")
}

#[test]
fn each_file_is_a_module() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut roots: Vec<_> = ROOTS.map(|root| top.join(root)).to_vec();
    let folders = fs::read_dir(top.join("tests")).expect("it is there");
    roots.extend(folders.map(|entry| entry.unwrap().path().join("main.rs")).filter(|path| path.exists()));
    assert!(roots.len() > ROOTS.len() + 8, "the programs of tests are not where they were: {roots:?}");
    for root in &roots {
        for file in files(root.parent().expect("a root is in a folder")) {
            if file == *root || ROOTS.iter().any(|root| file.ends_with(root)) {
                continue;
            }
            let declared = |text: String| {
                let (ends, path) =
                    (format!("mod {};", name(&file)), format!("path = \"{}.rs\"", name(&file)));
                text.lines().any(|line| line.trim_end().ends_with(&ends) || line.contains(&path))
            };
            let named =
                parents(&file).into_iter().filter_map(|parent| fs::read_to_string(parent).ok()).any(declared);
            assert!(named, "no `mod` names {}", file.display());
        }
    }
}
