//! Each count of `benches/counts` in a document is the committed one: a count that changes goes into the documents, too.

use super::text;
use std::collections::BTreeMap;

/// Instructions and atomics of one operation, in whole numbers.
type Counts = (u64, u64);

/// Returns the counts by the names of the operations. A line of `expected.json` has one operation.
fn expected(json: &str) -> BTreeMap<&str, Counts> {
    let number = |line: &str, field: &str| -> Option<u64> {
        let (_, rest) = line.split_once(&format!("\"{field}\": "))?;
        let number: f64 = rest.split([',', '}']).next()?.parse().ok()?;
        Some(number.round() as u64)
    };
    let counts = |line: &str| Some((number(line, "instructions")?, number(line, "atomics")?));
    json.lines().filter_map(|line| Some((line.split('"').nth(1)?, counts(line)?))).collect()
}

/// Reads two numbers at the end of a cell's part, `1231, 14`, without the separators of thousands.
fn two_numbers(text: &str) -> Option<Counts> {
    let (first, second) = text.trim().rsplit_once(", ")?;
    let digits = |number: &str| number.trim().replace(',', "").parse().ok();
    Some((digits(first)?, digits(second)?))
}

/// Returns what a table tells as "`NAME`: N, M", with prose before and in between; the numbers follow the last colon.
fn told(cell: &str) -> impl Iterator<Item = (&str, Counts)> {
    cell.split(';').filter_map(told_by)
}

fn told_by(part: &str) -> Option<(&str, Counts)> {
    let (prose, numbers) = part.rsplit_once(": ")?;
    Some((prose.split('`').nth(1)?, two_numbers(numbers)?))
}

/// Returns the parts of a cell that name an operation beside a number, and from which `told` reads nothing.
fn unread(cell: &str, is_operation: impl Fn(&str) -> bool) -> Vec<&str> {
    let names = |part: &str| part.split('`').skip(1).step_by(2).any(&is_operation);
    let numbers =
        |part: &str| part.split('`').step_by(2).any(|prose| prose.contains(|c: char| c.is_ascii_digit()));
    cell.split(';').filter(|part| names(part) && numbers(part) && told_by(part).is_none()).collect()
}

/// Returns what a text in one line tells between its words as "`NAME`: N, M".
fn told_in_prose(text: &str) -> Vec<(&str, Counts)> {
    let told = |(at, end): (usize, &str)| {
        let name = text[..at].rsplit('`').next()?;
        let rest = &text[at + end.len()..];
        let numbers = rest.split(|c: char| !c.is_ascii_digit() && !", ".contains(c)).next()?;
        Some((name, two_numbers(numbers.trim_end_matches([',', ' ']))?))
    };
    text.match_indices("`: ").filter_map(told).collect()
}

/// The rows of the cost model, "atomics, instructions", and the operation of each.
const COST_MODEL: [(&str, &str); 6] = [
    ("yield", "yield_2"),
    ("ping-pong, a round trip", "ping_pong"),
    ("buffered", "buffered"),
    ("select", "select"),
    ("mutex", "mutex"),
    ("spawn + join", "spawn_join"),
];

#[test]
fn the_reader_of_counts_sees_what_it_looks_for() {
    let json = "{\n \"a\": {\"instructions\": 185.4, \"atomics\": 2.0},\n \"b\": {\"instructions\": 1.5}\n}";
    assert_eq!(expected(json), BTreeMap::from([("a", (185, 2))]));
    let cell = " `a`, with more: 1,231, 14; `b`: 7, 0; `c` ";
    assert_eq!(Vec::from_iter(told(cell)), [("a", (1231, 14)), ("b", (7, 0))]);
    let cell = "beside prose, `a`: 1,231, 14; 7, 0 for `b`; as above: `c`";
    assert_eq!(Vec::from_iter(told(cell)), [("a", (1231, 14))]);
    assert_eq!(unread(cell, |name| ["a", "b", "c"].contains(&name)), [" 7, 0 for `b`"]);
    let prose = "A `c` is made of parts (`a`: 1,231, 14; `b`: 7, 0), `c`: few, and `d`: 8.";
    assert_eq!(told_in_prose(prose), [("a", (1231, 14)), ("b", (7, 0))]);
}

/// Fails when a count was committed and a document has the one before; or when a document names an operation that is not
/// counted.
#[test]
fn each_count_that_a_document_tells_is_the_committed_one() {
    let json = &text::files("benches/counts")["expected.json"];
    let (expected, docs) = (expected(json), text::files("docs"));
    let choosing = &docs["choosing.md"];
    let mut seen = 0;
    for (name, counts) in choosing.lines().flat_map(|line| line.split('|')).flat_map(told) {
        assert_eq!(Some(&counts), expected.get(name), "docs/choosing.md: {name}");
        seen += 1;
    }
    for counted in choosing.lines().filter_map(|line| line.rsplit('|').nth(1)) {
        let unread = unread(counted, |name| expected.contains_key(name));
        assert!(unread.is_empty(), "docs/choosing.md: not `NAME`: N, M: {unread:?}");
    }
    assert!(seen >= 5, "docs/choosing.md has a column of counts, and {seen} were found");
    let fork_join = docs["fork-join.md"].replace('\n', " ");
    let fork_join = told_in_prose(&fork_join);
    assert!(fork_join.len() >= 2, "docs/fork-join.md compares two counts: {fork_join:?}");
    for (name, counts) in fork_join {
        assert_eq!(Some(&counts), expected.get(name), "docs/fork-join.md: {name}");
    }
    let model = docs["performance.md"].split("\n## Cost model").nth(1).expect("there is a cost model");
    for (row, name) in COST_MODEL {
        let line = model.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let cell = line.and_then(|line| line.split('|').nth(2)).unwrap_or_else(|| panic!("no row {row}"));
        let mut numbers = cell.split(", ").map(|part| part.split(' ').find(|word| !word.is_empty()));
        let mut next = || numbers.next().flatten().and_then(|word| word.replace(',', "").parse().ok());
        let (atomics, instructions) = (next().unwrap_or(0), next().unwrap_or(0));
        assert_eq!((instructions, atomics), expected[name], "docs/performance.md: {row}");
    }
}
