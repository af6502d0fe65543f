//! The mutants as the sources have them: what each does, by protocol, where it stands, and the models that catch it.

use super::text;

use std::collections::BTreeMap;
use std::fmt::Write;

pub struct Mutant {
    /// The heading under which it stands in the list.
    pub protocol: String,
    pub name: String,
    /// The sentence that says what it does.
    pub does: String,
    /// The shipped files that have it, from `runtime/src/`.
    pub stands_in: Vec<String>,
    /// The models that are to catch it, as `module::test`.
    pub caught_by: Vec<String>,
}

/// The sources below `runtime/src/`, by their path from there.
pub fn sources() -> BTreeMap<String, String> {
    text::rust("runtime/src")
}

/// Returns `true` if the file ships, and does not define what a mutant is.
pub fn ships(path: &str) -> bool {
    let of_models = path.starts_with("models/") || path.starts_with("host/model/");
    !of_models && !["prim/hooks.rs", "prim/mutant.rs"].contains(&path)
}

/// Returns the mutants that a line of shipped code names.
pub fn named(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split("//").next().unwrap_or_default();
    ["mutant!(", "unless!(", ".unless("].into_iter().flat_map(move |hook| {
        line.split(hook).skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            &rest[..end]
        })
    })
}

/// Returns the shipped files that name each mutant, in the order of their paths.
fn places(sources: &BTreeMap<String, String>) -> BTreeMap<&str, Vec<String>> {
    let mut places = BTreeMap::<_, Vec<String>>::new();
    for (path, text) in sources.iter().filter(|(path, _)| ships(path)) {
        for name in text.lines().flat_map(named) {
            let files = places.entry(name).or_default();
            if files.last() != Some(path) {
                files.push(path.clone());
            }
        }
    }
    places
}

/// Returns the lists of the models: pairs of a mutant and `module::test`.
fn claims(sources: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut claims = Vec::new();
    for (path, text) in sources {
        let Some(module) = path.strip_prefix("models/").and_then(|name| name.strip_suffix(".rs")) else {
            continue;
        };
        let text = text.split_whitespace().collect::<String>();
        for rest in text.split("(Mutant::").skip(1) {
            let (mutant, rest) = rest.split_once(',').expect("a pair");
            let test = rest.split([',', ')']).next().expect("the first part is always there");
            claims.push((mutant.to_owned(), format!("{module}::{}", literal(test, &text))));
        }
    }
    claims
}

/// Returns the text between the quotation marks of `name`, which is a literal, or a variable or constant of one. `text` is
/// without spaces.
fn literal<'a>(name: &'a str, text: &'a str) -> &'a str {
    let bindings = [format!("let{name}=\""), format!("const{name}:&str=\"")];
    let bound = bindings.iter().find_map(|binding| text.split(binding.as_str()).nth(1));
    let quoted = name.strip_prefix('"').or(bound).unwrap_or_else(|| panic!("{name} is bound to no literal"));
    quoted.split('"').next().expect("the first part is always there")
}

/// Returns all mutants, in the order of the list.
pub fn all() -> Vec<Mutant> {
    let sources = sources();
    let claims = claims(&sources);
    let places = places(&sources);
    let list = sources["prim/mutant.rs"].split("pub enum Mutant {").nth(1).expect("the list of mutants");
    let (mut protocol, mut does, mut all) = (String::new(), String::new(), Vec::new());
    for line in list.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            does = format!("{does} {text}").trim_start().to_owned();
        } else if let Some(text) = line.strip_prefix("// ") {
            protocol = text.split(" (`").next().expect("the first part is always there").to_owned();
        } else if let Some(name) = line.strip_suffix(',') {
            let caught_by = claims.iter().filter(|(mutant, _)| mutant == name);
            all.push(Mutant {
                protocol: protocol.clone(),
                name: name.to_owned(),
                does: std::mem::take(&mut does),
                stands_in: places.get(name).cloned().unwrap_or_default(),
                caught_by: caught_by.map(|(_, model)| model.clone()).collect(),
            });
        }
    }
    all
}

/// Returns a table in Markdown for each protocol.
pub fn tables() -> String {
    let (mut out, mut protocol) = (String::new(), String::new());
    for mutant in all() {
        if mutant.protocol != protocol {
            protocol = mutant.protocol;
            let _infallible = write!(
                out,
                "\n### {protocol}\n\n| mutant | what it does | in | caught by |\n| --- | --- | --- | --- |\n"
            );
        }
        let quoted = |all: &[String]| all.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
        let (stands_in, caught_by) = (quoted(&mutant.stands_in), quoted(&mutant.caught_by));
        let _infallible =
            writeln!(out, "| `{}` | {} | {stands_in} | {caught_by} |", mutant.name, mutant.does);
    }
    out.trim_start().to_owned()
}
