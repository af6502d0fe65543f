//! The parts of `docs/verification.md` that are read from the code: models with their mutants, fences, the lock order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const DOCUMENT: &str = "docs/verification.md";
const SOURCES: &str = "runtime/src/";

/// Returns the variants of `enum NAME` in `text`, each with its documentation.
fn variants<'a>(text: &'a str, name: &str) -> Vec<(&'a str, String)> {
    let (mut found, mut told) = (Vec::new(), String::new());
    let body = text.split_once(&format!("enum {name} {{")).expect("the enum is there").1;
    for line in body.lines().map(str::trim).take_while(|line| *line != "}") {
        if let Some(prose) = line.strip_prefix("///") {
            told.push_str(prose);
        } else if let Some(variant) = line.strip_suffix(',').filter(|line| !line.starts_with("//")) {
            found.push((variant, std::mem::take(&mut told).trim().to_owned()));
        }
    }
    found
}

/// Returns a table with a row for each file of models: what it is about, how many models it has, and the mutants in its list.
fn models(files: &BTreeMap<String, String>) -> String {
    let mut table =
        "| models | about | number | mutants that must fail there |\n| --- | --- | --- | --- |\n".to_owned();
    let folder = format!("{SOURCES}models/");
    for (path, text) in files.range(folder.clone()..).take_while(|(path, _)| path.starts_with(&folder)) {
        let header =
            text.lines().map_while(|line| line.strip_prefix("//!")).take_while(|line| !line.is_empty());
        let about: String = header.collect();
        let number = text.matches("#[test]").count() - text.matches("fn mutants()").count();
        // A pair may stand on several lines.
        let dense: String = text.split_whitespace().collect();
        let named = dense.split("(Mutant::").skip(1).filter_map(|rest| rest.split_once(','));
        let mutants: BTreeSet<_> = named.map(|(mutant, _)| mutant).collect();
        if number > 0 {
            let mutants: Vec<_> = mutants.iter().map(|mutant| format!("`{mutant}`")).collect();
            writeln!(
                table,
                "| `{}` | {} | {number} | {} |",
                &path[SOURCES.len()..],
                about.trim(),
                mutants.join(" ")
            )
            .unwrap();
        }
    }
    table
}

/// Returns `true` if `word` is the label of a fence.
fn is_label(word: &str) -> bool {
    let named = word.ends_with("Fence") || word.ends_with("Barrier");
    named && word.len() > "Barrier".len() && word.starts_with(char::is_uppercase)
}

/// Returns a table with a row for each fence: where its label begins a comment, what that comment says, and the mutants that
/// take the fence away.
fn fences(files: &BTreeMap<String, String>, mutants: &[(&str, String)]) -> String {
    let mut rows = BTreeMap::new();
    let shipped =
        |path: &str| path.starts_with(SOURCES) && !path.contains("/models/") && path.ends_with(".rs");
    for (path, text) in files.iter().filter(|(path, _)| shipped(path)) {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let prose = |line: &&str| {
                let told = line.strip_prefix("///").or(line.strip_prefix("// "))?;
                Some(told.trim().to_owned())
            };
            let continues = at > 0 && lines[at - 1].starts_with("//");
            let Some(first) = prose(line).filter(|_| !continues) else { continue };
            let Some(label) = first.split([':', '.', ' ']).next().filter(|label| is_label(label)) else {
                continue;
            };
            let told: Vec<_> = lines[at..].iter().map_while(prose).collect();
            let told = told.join(" ")[label.len()..].trim_start_matches([':', '.', ' ']).to_owned();
            let code = lines[at..].iter().skip_while(|line| line.starts_with("//")).take(12);
            let words: BTreeSet<_> =
                code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric())).collect();
            let takes = |mutant: &str| {
                words.contains(mutant) && (mutant.contains("Fence") || mutant.contains("Barrier"))
            };
            let away = mutants.iter().filter(|(mutant, told)| takes(mutant) || told.contains(label));
            let away: Vec<_> = away.map(|(mutant, _)| format!("`{mutant}`")).collect();
            let row = format!("| {label} | `{}` | {told} | {} |", &path[SOURCES.len()..], away.join(" "));
            rows.insert(label.to_owned(), row);
        }
    }
    assert!(rows.len() > 10, "only these fences were found: {:?}", rows.keys());
    let rows: Vec<_> = rows.into_values().collect();
    format!(
        "| fence | where | what its comment says | mutants |\n| --- | --- | --- | --- |\n{}\n",
        rows.join("\n")
    )
}

/// Returns a table of the ranks of locks, outermost first.
fn locks(files: &BTreeMap<String, String>) -> String {
    let ranks = variants(&files["runtime/src/prim/lock.rs"], "Rank");
    let mut table = "| | rank | what it protects |\n| --- | --- | --- |\n".to_owned();
    for (at, (rank, told)) in ranks.iter().enumerate() {
        writeln!(table, "| {} | `{rank}` | {told} |", at + 1).unwrap();
    }
    table
}

/// Compares the generated parts with the code, or, with `GMP_BLESS` in the environment, writes them.
pub fn check(files: &BTreeMap<String, String>) {
    let mutants = variants(&files["runtime/src/prim/mutant.rs"], "Mutant");
    let held = models(files);
    for (mutant, _) in &mutants {
        assert!(held.contains(&format!("`{mutant}`")), "{mutant} is in no row of the models");
    }
    let old = &files[DOCUMENT];
    let mut new = old.clone();
    for (name, made) in [("models", held), ("fences", fences(files, &mutants)), ("locks", locks(files))] {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
        let (head, rest) = new.split_once(&begin).unwrap_or_else(|| panic!("{DOCUMENT} has no line {begin}"));
        let (_, tail) = rest.split_once(end).expect("a generated part has an end");
        new = format!("{head}{begin}{made}{end}{tail}");
    }
    if std::env::var_os("GMP_BLESS").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT), &new)
            .expect("the document can be written");
        return;
    }
    let differs = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(
        *old == new,
        "{DOCUMENT} is not what the code says; GMP_BLESS=1 cargo test -p gmp-suite --test sources writes it.\nFirst: {differs:#?}"
    );
}
