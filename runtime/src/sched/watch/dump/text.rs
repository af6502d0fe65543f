//! The text of a dump.
//!
//! ```text
//! 10004 goroutines, 2 of them running
//! file calls: 64 under way, of at most 64; 936 wait in line
//!
//! goroutine 1 'main' [join, 2 s, 1232 bytes of stack]:
//! gmp::goroutine::join::JoinHandle<T>::join
//!     /src/gmp/runtime/src/goroutine/join.rs:59
//! ...
//! created at src/main.rs:12:5
//!
//! 10001 goroutines [chan receive, 10 ms to 2 s, 1312 bytes of stack]: 3-10002, 10004 'last'
//! ...
//! created at src/main.rs:20:9
//!
//! goroutine 2 [running]:
//! ...
//! created at src/main.rs:16:5
//!
//! goroutine 10005 [running, its thread did not answer in 100 ms]:
//! ```

use crate::host::Host;
use crate::runtime::priority::Priority;
use crate::sched::watch::dump::names::Names;
use crate::sched::watch::dump::{Does, Seen, Snapshot, State};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::time::Duration;

/// How many numbers, or ranges of them, are listed for a group.
const LISTED: usize = 100;

impl Snapshot {
    pub(super) fn tell<H: Host>(&self, names: &mut Names<H>) -> String {
        let runs = self.seen.iter().filter(|g| g.does.state == State::Runs).count();
        let (count, running) = (self.seen.len() + self.unseen.len(), runs + self.unseen.len());
        let mut text = match (count, running) {
            (1, 0) => "1 goroutine, not running\n".to_owned(),
            (1, _) => "1 goroutine, running\n".to_owned(),
            _ => format!("{count} goroutines, {running} of them running\n"),
        };
        for line in &self.lines {
            let _infallible = writeln!(text, "{line}");
        }
        for group in self.groups() {
            let does = group[0].does;
            head(
                &mut text,
                &state(does, &group),
                group.iter().map(|g| (g.id, g.name.as_deref().map(|name| &**name))),
            );
            names.write(&self.stacks[does.stack], &mut text);
            let _infallible = writeln!(text, "created at {}", does.site);
        }
        let whys: BTreeSet<_> = self.unseen.iter().map(|&(_, why)| why).collect();
        for why in whys {
            let state = why.map_or_else(|| "running".to_owned(), |why| format!("running, {why}"));
            let ids: Vec<_> = self.unseen.iter().filter(|g| g.1 == why).map(|&(id, _)| (id, None)).collect();
            head(&mut text, &state, ids.into_iter());
        }
        text
    }

    /// Returns the groups of goroutines that do the same at the same place. Both the groups and the goroutines in
    /// each are in the order of their numbers.
    fn groups(&self) -> Vec<Vec<&Seen>> {
        let (mut groups, mut known) = (Vec::<Vec<&Seen>>::new(), HashMap::new());
        for g in &self.seen {
            let at = *known.entry(g.does).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.push(g),
                None => groups.push(vec![g]),
            }
        }
        groups
    }
}

/// Writes an empty line, and the first line of a paragraph.
fn head<'a>(
    text: &mut String,
    state: &str,
    group: impl ExactSizeIterator<Item = (u64, Option<&'a str>)> + Clone,
) {
    let _infallible = match group.len() {
        1 => writeln!(text, "\ngoroutine {} [{state}]:", list(group)),
        count => writeln!(text, "\n{count} goroutines [{state}]: {}", list(group)),
    };
}

/// Returns numbers and names. Three or more numbers in a row without names are shown as a range.
fn list<'a>(group: impl Iterator<Item = (u64, Option<&'a str>)>) -> String {
    // First, last, and a name.
    let mut ranges: Vec<(u64, u64, Option<&str>)> = Vec::new();
    let mut beyond = 0_u64;
    for (id, name) in group {
        let full = ranges.len() == LISTED;
        match ranges.last_mut() {
            Some((_, last, None)) if name.is_none() && *last + 1 == id => *last = id,
            _ if full => beyond += 1,
            _ => ranges.push((id, id, name)),
        }
    }
    let range = |&(first, last, name): &(u64, u64, Option<&str>)| match (last - first, name) {
        (_, Some(name)) => format!("{first} '{name}'"),
        (0, None) => format!("{first}"),
        (1, None) => format!("{first}, {last}"),
        (_, None) => format!("{first}-{last}"),
    };
    let mut text = ranges.iter().map(range).collect::<Vec<_>>().join(", ");
    if beyond > 0 {
        let _infallible = write!(text, " and {beyond} more");
    }
    text
}

/// Returns the text in brackets.
fn state(does: Does, group: &[&Seen]) -> String {
    let mut text = match does.state {
        State::Waits(reason) => {
            let waited = group.iter().map(|g| g.waited);
            format!("{}, {}", reason.as_str(), range(waited.clone().min(), waited.max(), age))
        }
        State::Runnable => "runnable".to_owned(),
        State::Runs => "running".to_owned(),
    };
    if !does.started {
        text.push_str(", not started");
    }
    if does.class != Priority::Normal {
        let _infallible = write!(text, ", priority {}", does.class);
    }
    let depths = || group.iter().filter_map(|g| g.depth);
    if depths().next().is_some() {
        let bytes = range(depths().min(), depths().max(), |bytes| bytes.to_string());
        let _infallible = write!(text, ", {bytes} bytes of stack");
    }
    let touched = || group.iter().filter_map(|g| g.touched);
    if touched().next().is_some() {
        let bytes = range(touched().min(), touched().max(), |bytes| bytes.to_string());
        let _infallible = write!(text, ", {bytes} touched");
    }
    text
}

/// Returns one value, or the range from the least to the most.
fn range<T>(least: Option<T>, most: Option<T>, tell: impl Fn(T) -> String) -> String {
    match (least.map(&tell), most.map(&tell)) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (least, _) => least.unwrap_or_default(),
    }
}

/// Returns an age for people, to whom two digits are enough.
fn age(waited: Duration) -> String {
    match waited.as_secs() {
        0 => format!("{} ms", waited.as_millis() / 10 * 10),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}
