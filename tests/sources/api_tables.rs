//! Names of the public interface in other files, compared with `docs/api/gmp.txt`: each path of gmp in `docs/api-tables.md`,
//! and the settings of the attributes.

use super::text;

use std::collections::BTreeSet;

/// Returns the text without the parts between angle brackets.
fn without_generics(line: &str) -> String {
    let (mut depth, mut plain, mut before) = (0_usize, String::new(), ' ');
    for c in line.chars() {
        match c {
            '<' => depth += 1,
            // An arrow ends nothing.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
        before = c;
    }
    plain
}

/// Returns gmp's paths in a text.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let joins = |c: char| c.is_alphanumeric() || "_:!".contains(c);
    text.split(move |c| !joins(c))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.starts_with("gmp::"))
}

#[test]
fn the_reader_sees_what_it_looks_for() {
    let line = "pub fn gmp::chan::Sender<T>::send(&self, message: T) -> core::result::Result<(), gmp::X<T>>";
    assert_eq!(
        without_generics(line),
        "pub fn gmp::chan::Sender::send(&self, message: T) -> core::result::Result"
    );
    assert_eq!(
        paths("`gmp::select!`, `gmp::chan::at`;").collect::<Vec<_>>(),
        ["gmp::select!", "gmp::chan::at"]
    );
}

/// Fails when something was renamed or removed that the tables still name.
#[test]
fn each_path_in_the_tables_is_public() {
    let files = text::files("docs/");
    let interface: String = files["api/gmp.txt"].lines().map(|line| without_generics(line) + "\n").collect();
    let public: BTreeSet<_> = paths(&interface).collect();
    let named: BTreeSet<_> = paths(&files["api-tables.md"]).collect();
    let unknown: Vec<_> = named.iter().filter(|path| !public.contains(*path)).collect();
    assert!(unknown.is_empty(), "not in docs/api/gmp.txt: {unknown:#?}");
    assert!(named.len() > 100, "only {} are named", named.len());
}

/// Fails when `RuntimeBuilder` has a setter that `#[gmp::main]` and `#[gmp::test]` refuse, or do not tell of.
#[test]
fn the_attributes_take_each_setting() {
    const SETTER: &str = "pub fn gmp::RuntimeBuilder::";
    let (interface, macros) = (&text::files("docs/")["api/gmp.txt"], &text::files("macros/")["src/lib.rs"]);
    let plain = interface.lines().map(without_generics);
    let setters: BTreeSet<_> = plain
        .filter(|line| line.contains(" -> Self"))
        .filter_map(|line| Some(line.strip_prefix(SETTER)?.split('(').next()?.to_owned()))
        .collect();
    assert!(setters.contains("procs") && setters.len() > 10, "{setters:?}");
    let between = |begin, end| {
        let (_, behind) = macros.split_once(begin).expect("it is there");
        behind.split_once(end).expect("it ends").0
    };
    let quoted = |text: &str, quote: char| -> BTreeSet<_> {
        text.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(quoted(between("const SETTINGS: [&str;", "];"), '"'), setters);
    assert_eq!(quoted(between("by their names:", ".\n"), '`'), setters);
}
