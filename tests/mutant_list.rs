//! Every mutant that the shipped code names is held against a model.
#![cfg(not(gmp_loom))]

use std::fs;
use std::path::Path;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a source file")
}

/// The variants of `Mutant`.
fn variants() -> Vec<String> {
    let list = read("runtime/src/prim/mutant.rs");
    let body = list.split("pub enum Mutant {").nth(1).expect("the list of mutants");
    let body = body.split('}').next().expect("the end of the list");
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| line.strip_suffix(',')).map(str::to_owned).collect()
}

/// Fails when a mutant was added and no model was shown to notice it.
#[test]
fn each_mutant_stands_in_the_list_of_a_model() {
    let models: String = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/src/models"))
        .expect("the folder of models")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".rs")))
        .filter(|path| path.is_file())
        .map(read)
        .flat_map(|model| model.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mutants = variants();
    assert!(mutants.len() > 20, "only {} mutants found", mutants.len());
    let without: Vec<_> =
        mutants.iter().filter(|mutant| !models.contains(&format!("(Mutant::{mutant},"))).collect();
    assert!(without.is_empty(), "no model is held against {without:?}");
}
