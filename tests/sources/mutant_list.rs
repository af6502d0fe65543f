//! The mutants: each stands in shipped code, as an annotation of one line, and in the list of a model that catches it.
//!
//! `cargo test --test sources tables -- --nocapture` prints them, a table for each protocol.

use super::mutants;

use std::collections::BTreeSet;

/// The longest line with an annotation, in characters.
const WIDTH: usize = 125;

#[test]
fn the_reader_sees_what_it_looks_for() {
    let line = "mutant!(A: return); f(x.load(Acquire.unless(B)), both(Acquire.unless(C), Release)); unless!(D, g()); // unless!(E";
    let named: BTreeSet<_> = mutants::named(line).collect();
    assert_eq!(named, BTreeSet::from(["A", "B", "C", "D"]));
    assert_eq!(mutants::named("// mutant!(A: return);").count(), 0);
}

/// Fails when a mutant was added and no model was shown to notice it.
#[test]
fn each_mutant_stands_in_the_list_of_a_model() {
    let all = mutants::all();
    let without: Vec<_> = all.iter().filter(|it| it.caught_by.is_empty()).map(|it| &it.name).collect();
    assert!(without.is_empty(), "no model is held against {without:?}");
}

/// Fails when the list of a model names a test that is not in its module: the run of the mutant would find nothing to run.
#[test]
fn each_model_of_a_list_is_there() {
    let sources = mutants::sources();
    for mutant in mutants::all() {
        for model in &mutant.caught_by {
            let (module, test) = model.split_once("::").expect("a module and a test");
            let there = sources[&format!("models/{module}.rs")].contains(&format!("#[test]\nfn {test}() {{"));
            assert!(there, "{}: there is no model {model}", mutant.name);
        }
    }
}

/// Fails when a line went and its mutant stayed, or when a mutant stands under no protocol or says nothing.
#[test]
fn each_mutant_changes_shipped_code() {
    let all = mutants::all();
    assert!(!all.is_empty(), "the list is not where it was");
    for mutant in &all {
        assert!(!mutant.stands_in.is_empty(), "{} stands in no line", mutant.name);
        assert!(!mutant.protocol.is_empty(), "{} stands under no protocol", mutant.name);
        assert!(mutant.does.ends_with('.'), "{}: {:?} is no sentence", mutant.name, mutant.does);
    }
    let listed: BTreeSet<_> = all.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(listed.len(), all.len(), "a mutant stands there twice");
}

/// Fails when a mutation takes more than a line of what a reader of the protocol sees, or comes in another form.
#[test]
fn each_mutation_takes_one_line() {
    for (path, text) in mutants::sources() {
        if !mutants::ships(&path) {
            continue;
        }
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())) {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("mutant!(") || code.contains("unless!(") {
                assert!(line.ends_with([';', ',']), "{path}:{at}: an annotation goes on in the next line");
                assert!(line.chars().count() <= WIDTH, "{path}:{at}: more than {WIDTH} characters");
            }
            assert!(!code.contains("mutated("), "{path}:{at}: a mutation that is no annotation");
            // A line that decides by a mutant is an annotation; only annotations name a mutant by its bare variant.
            assert!(!code.contains("Mutant::"), "{path}:{at}: a mutant that is named in another form");
        }
    }
}

/// The first moves a line, by a `return` in the old place and another behind the new one. The second takes out two lines of
/// which either suffices.
const TWICE: [&str; 2] = ["IoLockHandedBlindly", "JobsOfTheLowerGoFirst"];

/// Fails when one mutant takes out two lines, or the same statement in two places: loom might then notice only one of them. (A
/// mutant that moves a line stands in two places, too: it takes a line out of one, and adds a line in the other.)
#[test]
fn each_mutant_takes_out_one_line() {
    let (mut taken, mut added, sources) = (BTreeSet::new(), BTreeSet::new(), mutants::sources());
    for (_, text) in sources.iter().filter(|(path, _)| mutants::ships(path)) {
        for line in text.lines().map(str::trim) {
            let takes = line.contains("unless!(") || line.contains(".unless(") || line.contains("return");
            for name in mutants::named(line).filter(|name| !TWICE.contains(name)) {
                let alone = if takes { taken.insert(name) } else { added.insert(line) };
                assert!(alone, "{name} takes out a second line: {line}");
            }
        }
    }
}

/// Prints the tables. Fails when one of the mutants is in none.
#[test]
fn tables() {
    let tables = mutants::tables();
    println!("{tables}");
    for mutant in mutants::all() {
        assert!(tables.contains(&format!("\n| `{}` |", mutant.name)), "{} is in no table", mutant.name);
    }
}
