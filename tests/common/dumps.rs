//! Reads a dump.

/// Returns what each goroutine does, by its number: the text in the brackets.
pub fn read(dump: &str) -> Vec<(u64, &str)> {
    let mut seen = Vec::new();
    for line in dump.lines().filter(|line| line.contains("goroutine")) {
        let Some((head, rest)) = line.split_once(" [") else { continue };
        let (state, after) = rest.split_once(']').unwrap_or_else(|| panic!("no end of {line:?} in {dump}"));
        match head.strip_prefix("goroutine ") {
            Some(one) => seen.push((number(one), state)),
            None if head.ends_with(" goroutines") => {
                let list =
                    after.strip_prefix(": ").unwrap_or_else(|| panic!("no list in {line:?} of {dump}"));
                let (list, _more) = list.split_once(" and ").unwrap_or((list, ""));
                seen.extend(list.split(", ").flat_map(numbers).map(|id| (id, state)));
            }
            None => {}
        }
    }
    seen
}

/// Reads a number, without the name behind it.
fn number(text: &str) -> u64 {
    let digits = text.split_once(' ').map_or(text, |(digits, _name)| digits);
    digits.parse().unwrap_or_else(|_| panic!("{text:?} is no goroutine's number"))
}

fn numbers(item: &str) -> std::ops::RangeInclusive<u64> {
    match item.split_once('-') {
        Some((first, last)) if !item.contains('\'') => number(first)..=number(last),
        _ => number(item)..=number(item),
    }
}
