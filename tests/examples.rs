#![cfg(not(gmp_loom))]
//! The examples `ring` and `sleep_sort` as whoever runs them sees them: what they print, and their status.

#[path = "common/example.rs"]
mod example;

use example::{example, output, refusal};
use std::collections::HashSet;
use std::time::Duration;

const PROCS: [&str; 3] = ["1", "2", "4"];

/// Runs it to its good end: what it printed.
#[track_caller]
fn printed(name: &str, args: &[&str]) -> String {
    let (status, stdout, stderr) = output(example(name).args(args));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name} {args:?}: {stdout}");
    stdout
}

/// Fails by a hop that is lost or counted twice, by no end, or by a sum of shares that is not the whole.
#[test]
fn the_token_makes_every_hop_at_any_size_of_the_ring() {
    for procs in PROCS {
        for (goroutines, laps) in [("1", "1"), ("1", "500"), ("2", "500"), ("3", "7"), ("1000", "20")] {
            let args = ["--goroutines", goroutines, "--laps", laps, "--procs", procs];
            let text = printed("ring", &args);
            let [sizes, time, threads] = Vec::from_iter(text.lines())[..] else { panic!("{text}") };
            assert_eq!(sizes, format!("goroutines {goroutines}, laps {laps}, procs {procs}"));
            let hops: u32 = goroutines.parse::<u32>().unwrap() * laps.parse::<u32>().unwrap();
            assert!(time.starts_with(&format!("{hops} hops in ")) && time.ends_with(" ns a hop"), "{text}");

            let (count, rest) = threads.strip_prefix("threads ").unwrap().split_once(": ").unwrap();
            let (shares, changes) = rest.split_once(" % of the hops; ").unwrap();
            let shares = shares.split(" %, ").map(|share| share.split_once(' ').unwrap());
            let (names, shares): (HashSet<_>, Vec<f64>) =
                shares.map(|(name, share)| (name, share.parse::<f64>().unwrap())).unzip();
            assert_eq!((names.len(), shares.len()), (count.parse().unwrap(), names.len()), "{text}");
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1.0, "{text}");
            let changes: u32 = changes.strip_suffix(" changes").unwrap().parse().unwrap();
            assert!(changes + 1 >= names.len() as u32 && changes < hops, "{text}");
        }
    }
}

#[test]
fn the_ring_has_a_thousand_goroutines_and_laps_unless_told_otherwise() {
    let (status, text, _) = output(example("ring").env("GMPMAXPROCS", "3"));
    assert_eq!(status, Some(0));
    assert!(text.starts_with("goroutines 1000, laps 1000, procs 3\n1000000 hops in "), "{text}");
}

/// Fails by another status than 2, by a panic's many lines, or by one that does not tell what would be right.
#[test]
fn the_ring_refuses_what_is_out_of_range_by_name_and_limits() {
    for (flag, most) in [("--goroutines", "20000"), ("--laps", "1000000000"), ("--procs", "1024")] {
        let above = format!("{most}0");
        for bad in ["0", "-1", "1.5", "many", "", &above, "99999999999999999999999"] {
            let line = refusal("ring", &[flag, bad], 2);
            assert_eq!(line, format!("ring: {flag}: {bad:?} is not a number from 1 to {most}\n"));
        }
        refusal("ring", &[flag], 2);
    }
    for unknown in ["--loud", "7", "-h"] {
        let line = refusal("ring", &[unknown], 2);
        assert!(line.contains(unknown) && line.contains("--goroutines N"), "{line}");
    }
}

/// What a run of `sleep_sort` said.
struct Sorted {
    status: Option<i32>,
    numbers: Vec<u32>,
    worst: Duration,
    complaint: String,
}

/// A duration as `{:?}` prints it.
fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).expect("a unit"));
    let second = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        other => panic!("{other:?} in {text:?}"),
    };
    Duration::from_secs_f64(number.parse::<f64>().expect("a number") * second)
}

/// Runs `sleep_sort`. Fails by a number that is lost, doubled or made up, by a verdict that is not that of the printed
/// order, or by a wrong order where nobody overslept by a unit.
#[track_caller]
fn sleep_sort(procs: &str, unit: Duration, numbers: &[u32]) -> Sorted {
    let mut command = example("sleep_sort");
    command.env("GMPMAXPROCS", procs).args(["--unit-us", &unit.as_micros().to_string()]);
    let (status, stdout, complaint) = output(command.args(numbers.iter().map(u32::to_string)));
    let all = format!("{stdout}{complaint}");
    let mut lines = stdout.lines();
    let came = lines.next().expect("the numbers").split_whitespace().map(|number| number.parse().unwrap());
    let came: Vec<u32> = came.collect();
    let [mut expected, mut sorted] = [numbers.to_vec(), came.clone()];
    expected.sort();
    sorted.sort();
    assert!(numbers.is_empty() || sorted == expected, "{all}");

    let told = lines.next().and_then(|line| line.strip_prefix("overslept: p50 ")).expect("how late");
    let (p50, rest) = told.split_once(", worst ").expect("the worst");
    let (worst, told_unit) = rest.split_once("; a unit is ").expect("the unit");
    let [p50, worst, told_unit] = [p50, worst, told_unit].map(duration);
    assert!(p50 <= worst && told_unit == unit, "{all}");
    let right = came == sorted;
    assert_eq!(
        (status, lines.next()),
        if right { (Some(0), Some("the order is right")) } else { (Some(1), None) }
    );
    assert!(right || worst >= unit, "{all}");
    Sorted { status, numbers: came, worst, complaint }
}

/// Fails by an order that a machine would have to stand still for.
#[test]
fn numbers_are_sorted_by_sleeping() {
    for procs in PROCS {
        let sorted = sleep_sort(procs, Duration::from_millis(300), &[3, 1, 0, 2, 1, 3]);
        assert_eq!((sorted.status, sorted.numbers), (Some(0), vec![0, 1, 1, 2, 3, 3]), "{:?}", sorted.worst);
        assert_eq!(sorted.complaint, "");
    }
}

#[test]
fn the_verdict_is_that_of_the_order_however_short_the_unit() {
    let many = Vec::from_iter((0..10_000).map(|n| n * 83 % 10_000));
    for procs in PROCS {
        for unit in [1, 10, 100, 1000].map(Duration::from_micros) {
            sleep_sort(procs, unit, &[]);
            sleep_sort(procs, unit, &[5, 5, 4, 1, 9, 9]);
        }
        sleep_sort(procs, Duration::from_micros(2), &many);
        sleep_sort(procs, Duration::from_millis(1), &[9]);
    }
}

/// Fails by status 0: nothing but the check can tell a wrong order.
#[test]
fn a_wrong_order_is_status_1_and_one_line() {
    let numbers = Vec::from_iter((0..200).map(|n| n * 83 % 200));
    for procs in PROCS {
        let unsorted = sleep_sort(procs, Duration::ZERO, &numbers);
        assert_eq!((unsorted.status, unsorted.complaint.lines().count()), (Some(1), 1));
        assert!(unsorted.complaint.starts_with("sleep_sort: the order is wrong: "), "{}", unsorted.complaint);
    }
}

/// Fails by another status than 2, by a panic's many lines, or by one that does not tell what would be right.
#[test]
fn sleep_sort_refuses_what_is_no_number_in_range() {
    for bad in ["-1", "1.5", "many", "", "1000001", "99999999999999999999999"] {
        let line = refusal("sleep_sort", &["3", bad, "5"], 2);
        assert_eq!(line, format!("sleep_sort: {bad:?} is not a number from 0 to 1000000\n"));
        let line = refusal("sleep_sort", &["3", "--unit-us", bad], 2);
        assert_eq!(line, format!("sleep_sort: --unit-us: {bad:?} is not a number from 0 to 1000000\n"));
    }
    refusal("sleep_sort", &["--unit-us"], 2);
    let line = refusal("sleep_sort", &["--loud"], 2);
    assert!(line.contains("--loud") && line.contains("--unit-us"), "{line}");
    let line = refusal("sleep_sort", &["1"; 10_001], 2);
    assert_eq!(line, "sleep_sort: 10001 numbers are more than 10000\n");
}

/// Fails by a panic: the runtime's refusal is an error of the machine's, not of the arguments.
#[test]
fn a_runtime_that_cannot_be_had_is_status_1_and_one_line() {
    for name in ["ring", "sleep_sort"] {
        let (status, _, complaint) = output(example(name).env("GMPMAXPROCS", "none"));
        assert_eq!(status, Some(1));
        assert_eq!(complaint, format!("{name}: GMPMAXPROCS: \"none\" is no number\n"));
    }
}
