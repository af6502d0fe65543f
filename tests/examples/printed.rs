//! The examples as their user sees them: what they print, and their status.

use common::example::{example, output, refusal};
use std::collections::HashSet;
use std::time::Duration;

const PROCS: [&str; 3] = ["1", "2", "4"];

/// Runs an example to a successful end, and returns what it printed.
#[track_caller]
fn printed(name: &str, args: &[&str]) -> String {
    let (status, stdout, stderr) = output(example(name).args(args));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name} {args:?}: {stdout}");
    stdout
}

/// Fails when a hop is lost or counted twice, when the run does not end, or when the sum of shares is not the whole.
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

/// A million hops, which take some seconds of CPU time without optimisation. The other tests of the ring run in both builds.
#[cfg(not(debug_assertions))]
#[test]
fn the_ring_has_a_thousand_goroutines_and_laps_unless_told_otherwise() {
    let (status, text, _) = output(example("ring").env("GMPMAXPROCS", "3"));
    assert_eq!(status, Some(0));
    assert!(text.starts_with("goroutines 1000, laps 1000, procs 3\n1000000 hops in "), "{text}");
}

/// Fails by another status than 2, by a panic's many lines, or by a line that does not tell what would be right.
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

/// Fails by another end than the message with the goroutine's name, or when the large stack does not help the parser.
#[test]
fn what_nests_too_deep_is_told_by_name_and_fits_on_its_own_stack() {
    let (status, stdout, stderr) = output(&mut example("overflow"));
    // The other parsers may have been faster.
    assert!(status.is_none() && !stdout.contains("parser 3"), "{status:?}, {stdout}{stderr}");
    let told = "fatal error: stack overflow in goroutine ";
    assert!(stderr.starts_with(told) && stderr.contains("'parser 3' (spawned at "), "{stderr}");
    let size = if cfg!(debug_assertions) { "256" } else { "64" };
    assert!(stderr.contains(&format!("its stack of {size} KiB is used up")), "{stderr}");

    let rest = "parser 0: 3 deep\nparser 1: 1 deep\nparser 2: 2 deep\nparser 3: ";
    for (args, deep) in [
        (&["--on-its-own-stack"][..], 40_000),
        (&["--depth", "100000", "--on-its-own-stack"], 100_000),
        (&["--depth", "9"], 9),
    ] {
        assert_eq!(printed("overflow", args), format!("{rest}{deep} deep\n"));
    }
    for (args, word) in
        [(&["--depth", "0"][..], "100000"), (&["--depth"], "--depth N"), (&["deep"], "--depth N")]
    {
        let line = refusal("overflow", args, 2);
        assert!(line.contains(word), "{line}");
    }
}

/// Fails when a goroutine is not woken, or the table lacks its rows. The memory of so few goroutines is not judged: most of it
/// is what the process needs anyway.
#[test]
fn some_thousand_of_the_million_park_and_end() {
    let text = printed("million", &["--goroutines", "3000"]);
    let lines = Vec::from_iter(text.lines());
    assert!(lines[0].starts_with("3000 goroutines parked on channels, procs "), "{text}");
    for row in
        ["resident ", "page tables ", "each: ", "trimmed after ", "created and parked in ", "the floor is "]
    {
        assert!(lines.iter().any(|line| line.starts_with(row)), "{row}: {text}");
    }
    let line = refusal("million", &["--goroutines", "0"], 2);
    assert_eq!(line, "million: --goroutines: \"0\" is not a number from 1 to 10000000\n");
    assert!(refusal("million", &["--many"], 2).contains("--goroutines N"));
}

/// What a run of `sleep_sort` said.
struct Sorted {
    status: Option<i32>,
    numbers: Vec<u32>,
    worst: Duration,
    complaint: String,
}

/// Reads a duration that `{:?}` printed.
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

/// Runs `sleep_sort`. Fails by a number that is lost, doubled or made up, by a verdict that does not fit the printed order, or
/// by a wrong order where no goroutine overslept by a unit.
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

/// Fails by an order for which the machine would have had to stand still.
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

/// Fails by status 0: only the check can tell a wrong order.
#[test]
fn a_wrong_order_is_status_1_and_one_line() {
    let numbers = Vec::from_iter((0..200).map(|n| n * 83 % 200));
    for procs in PROCS {
        let unsorted = sleep_sort(procs, Duration::ZERO, &numbers);
        assert_eq!((unsorted.status, unsorted.complaint.lines().count()), (Some(1), 1));
        assert!(unsorted.complaint.starts_with("sleep_sort: the order is wrong: "), "{}", unsorted.complaint);
    }
}

/// Fails by another status than 2, by a panic's many lines, or by a line that does not tell what would be right.
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

/// Fails by a panic: the runtime's refusal is an error of the machine, not of the arguments.
#[test]
fn a_runtime_that_cannot_be_had_is_status_1_and_one_line() {
    for name in ["ring", "sleep_sort"] {
        let (status, _, complaint) = output(example(name).env("GMPMAXPROCS", "none"));
        assert_eq!(status, Some(1));
        assert_eq!(complaint, format!("{name}: GMPMAXPROCS: \"none\" is not a number\n"));
    }
}

/// Runs an example with `procs` Ps, and returns the lines that it printed.
#[track_caller]
fn lines(name: &str, args: &[&str], procs: &str) -> Vec<String> {
    let (status, stdout, stderr) = output(example(name).args(args).env("GMPMAXPROCS", procs));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name} {args:?}, procs {procs}: {stdout}");
    stdout.lines().map(str::to_owned).collect()
}

/// Fails when a prime is missing or a number is none, when there is no end, or by one message more or less.
#[test]
fn the_sieve_finds_the_primes() {
    for procs in PROCS {
        let few = lines("sieve", &["5"], procs);
        assert_eq!(few[0], "2 3 5 7 11: 5 primes");
        assert!(few[1].ends_with(" ns each; 6 goroutines"), "{few:?}");
        let many = lines("sieve", &["100"], procs);
        assert_eq!(many[0], "2 3 5 7 11 13 17 19 23 29 .. 541: 100 primes");
    }
    for bad in ["0", "-1", "many", "20001"] {
        assert_eq!(refusal("sieve", &[bad], 2), format!("sieve: {bad:?} is not a number from 1 to 20000\n"));
    }
}

/// Fails by a word that is counted twice or not at all.
#[test]
fn the_pipeline_counts_all_words() {
    for procs in PROCS {
        let text = lines("pipeline", &[], procs);
        assert_eq!(text[0], "200000 lines, 4 workers: 1800000 words, 10 different");
        assert_eq!(text[1], "gopher 180000, channel 180000, select 180000, ..");
        let shares: f64 = text[2].split_whitespace().filter_map(|word| word.parse::<f64>().ok()).sum();
        assert!((shares - 100.0).abs() < 0.5, "{text:?}");
    }
}

/// Fails by a hang when each philosopher holds one fork, or when two philosophers hold the same fork.
#[test]
fn the_philosophers_eat() {
    for procs in PROCS {
        let text = lines("philosophers", &[], procs);
        assert!(text[0].starts_with("5 philosophers, 10000 meals each: "), "{text:?}");
        assert_eq!(text[2], "nobody ever ate with a neighbour's fork");
    }
}

/// Fails when a worker is left behind, or a failure or a deadline does not reach the others.
#[test]
fn the_worker_pool_gives_up_together() {
    for procs in PROCS {
        let text = lines("worker_pool", &[], procs);
        assert!(text[0].starts_with("100 jobs, 4 workers: 100 done, sum 328350, in "), "{text:?}");
        assert!(text[1].starts_with("a job fails: \"job 42 is damaged\"; "), "{text:?}");
        assert!(text[1].ends_with(" jobs were done before, 0 workers are left"), "{text:?}");
        assert!(text[2].starts_with("a deadline of 10 ms: context deadline exceeded; "), "{text:?}");
    }
}

/// Fails when a job is lost, runs before its turn, or goes on after its limit or its abort.
#[test]
fn the_job_queue_keeps_priorities_limits_and_aborts() {
    for procs in PROCS {
        let text = lines("job_queue", &[], procs);
        let expected = [
            "100 jobs from a thread: 100 done",
            "fails twice, 3 tries: Done",
            "sleeps on, 2 tries of 5 ms: Late",
            "behind two that wait, priorities 1, 5, 3; 3 is aborted: [5, 1] ran",
            "the first of the two is aborted where it waits: Aborted",
        ];
        assert_eq!(text, expected);
    }
}

/// Fails when the server stands still beside goroutines that block their threads or never yield; the example's status says so.
/// How long sleeps take is printed and not judged: other tests run at the same time.
#[test]
fn the_echo_server_goes_on_beside_hogs_and_blocking_calls() {
    let text = printed("blocking_call", &[]);
    let lines = Vec::from_iter(text.lines());
    let [title, _, alone, beside, without, sleeps] = lines[..] else { panic!("{text}") };
    assert_eq!(title, "an echo server, procs = 2, 4 clients, 1s each");
    let requests = |line: &str, title: &str| -> u64 {
        let rest = line.strip_prefix(title).unwrap_or_else(|| panic!("{text}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(requests(alone, "alone") > 0);
    let (beside, without) = (
        requests(beside, "beside 2 hogs and 100 sleepers"),
        requests(without, "the same, GMPDEBUG=handoff=0"),
    );
    assert!(beside > 100 * without, "{text}");
    assert!(sleeps.starts_with("100 × 20 blocking sleeps of 1 ms: 100 threads "), "{text}");
    assert_eq!(refusal("blocking_call", &["7"], 2), "blocking_call: takes no arguments\n");
}

/// Fails by a wrong sum, by a missing row, or when in all runs together the share of pieces that stay with hints is no more
/// than 0.8 of the share without hints. With one P, and on a quiet machine, the median share with hints is at least 90 %.
/// Beside other programs a P whose thread has to wait for a core loses its mail.
#[test]
fn the_stencil_runs_its_pieces_where_they_ran_before() {
    // The sweeps take some 0.2 s, of which one stall of the kernel takes little. Without optimisation a sweep takes some forty
    // times as long.
    const SWEEPS: &str = if cfg!(debug_assertions) { "5" } else { "200" };
    let share = |text: &[String], title: &str| -> f64 {
        let line =
            text.iter().find_map(|line| line.strip_prefix(title)).unwrap_or_else(|| panic!("{text:?}"));
        let (share, rest) = line.split_once(" % of the pieces ran on the P where they ran before, ").unwrap();
        assert!(rest.ends_with(" ms a sweep"), "{text:?}");
        share.parse().unwrap()
    };
    // As in `tests/scheduling/measure.rs`: on a quiet machine the share is judged.
    let is_quiet = std::env::var_os("GMP_QUIET").is_some_and(|value| value == "1");
    for (procs, runs) in [("1", 1), ("2", if is_quiet { 7 } else { 5 })] {
        let shares = Vec::from_iter((0..runs).map(|_| {
            let text = lines("stencil", &["--sweeps", SWEEPS], procs);
            assert_eq!(text[0], format!("64 pieces of 16384 cells, {SWEEPS} sweeps, procs {procs}"));
            assert_eq!(text[3], "the sums agree: 1048576.0");
            ["without hints: ", "with hints: "].map(|title| share(&text, title))
        }));
        let [without, with] = [0, 1].map(|at| {
            let mut of = Vec::from_iter(shares.iter().map(|run| run[at]));
            of.sort_by(f64::total_cmp);
            of
        });
        let median = with[runs / 2];
        println!(
            "procs {procs}, {SWEEPS} sweeps: {} %, with hints {median} %, medians of {shares:?}",
            without[runs / 2]
        );
        assert!(median >= 90.0 || procs != "1" && !is_quiet, "procs {procs}: {shares:?}");
        // Beside other work the kernel decides which M runs: a run with hints may be the worse one by chance.
        let some_stay = with.iter().sum::<f64>() > 0.8 * without.iter().sum::<f64>();
        assert!(some_stay, "procs {procs}: {shares:?}");
    }
    for args in [&["--sweeps", "1"][..], &["--sweeps"], &["--loud"]] {
        assert!(refusal("stencil", args, 2).contains("--sweeps"), "{args:?}");
    }
}

/// Fails when a row is missing, or, by the example's own check, when the Background goroutine runs beside others.
#[test]
fn priorities_puts_requests_first_and_the_cleaner_last() {
    let text = lines("priorities", &["--requests", "50"], "1");
    assert_eq!(text[0], "50 requests beside 4 goroutines that compute 20µs between two yields, procs 1");
    for (row, title, end) in
        [(1, "all Normal", "beside the others"), (2, "High, Low, Background", "when the others had ended")]
    {
        assert!(text[row].starts_with(&format!("{title}: a request took p50 ")), "{text:?}");
        assert!(text[row].ends_with(&format!("the cleaner ran {end}")), "{text:?}");
    }
    for args in [&["--requests", "0"][..], &["--requests"], &["--loud"]] {
        assert!(refusal("priorities", args, 2).contains("--requests"), "{args:?}");
    }
}

/// Fails, by the example's own check, when a number is lost; and when there are more goroutines for each P than the tree of
/// joins is deep.
#[test]
fn the_merge_sort_sorts_with_few_goroutines() {
    for procs in PROCS {
        for (numbers, cut_off, depth) in [("1", "1", 0), ("10000", "1", 14), ("100000", "500", 8)] {
            let args = ["--numbers", numbers, "--cut-off", cut_off, "--procs", procs];
            let text = printed("merge_sort", &args);
            let [sizes, times, verdict] = Vec::from_iter(text.lines())[..] else { panic!("{text}") };
            assert_eq!(sizes, format!("{numbers} numbers, procs {procs}, cut-off {cut_off}"));
            let (times, seen) =
                times.split_once("; goroutines at once: ").unwrap_or_else(|| panic!("{text}"));
            assert!(times.starts_with("sort ") && times.contains(", merge_sort "), "{text}");
            let procs: usize = procs.parse().unwrap();
            let most = if procs == 1 { 1 } else { procs * (depth + 1) };
            assert!((1..=most).contains(&seen.parse().unwrap()), "at most {most}: {text}");
            assert_eq!(verdict, "the order is right");
        }
    }
    for (flag, most) in [("--numbers", "100000000"), ("--cut-off", "100000000"), ("--procs", "1024")] {
        for bad in ["0", "-1", "many", "", &format!("{most}0")] {
            let line = refusal("merge_sort", &[flag, bad], 2);
            assert_eq!(line, format!("merge_sort: {flag}: {bad:?} is not a number from 1 to {most}\n"));
        }
        assert!(refusal("merge_sort", &[flag], 2).contains("--cut-off C"));
    }
    assert!(refusal("merge_sort", &["--loud"], 2).contains("--loud"));
}

/// Fails, by the example's own check, by a wrong sum; and when joins or `go_lifo` are not depth first, or `go` is.
#[test]
fn the_tree_sum_is_deep_or_wide() {
    const DEPTH: usize = 10;
    for procs in PROCS {
        let text = printed("tree_sum", &["--depth", &DEPTH.to_string(), "--procs", procs]);
        let [sizes, join, lifo, fifo] = Vec::from_iter(text.lines())[..] else { panic!("{text}") };
        assert_eq!(sizes, format!("depth {DEPTH}, procs {procs}"));
        let procs: usize = procs.parse().unwrap();
        let peak = |line: &str, name: &str| -> usize {
            let rest = line
                .strip_prefix(&format!("{name:8} {} in ", 1 << DEPTH))
                .unwrap_or_else(|| panic!("{text}"));
            let (_, rest) = rest.split_once(", at most ").unwrap_or_else(|| panic!("{text}"));
            rest.strip_suffix(" goroutines at once").unwrap_or_else(|| panic!("{text}")).parse().unwrap()
        };
        let most = if procs == 1 { 1 } else { procs * (DEPTH + 1) };
        assert!(peak(join, "join") <= most, "{text}");
        assert!(peak(lifo, "go_lifo") <= 4 * procs * (DEPTH + 1), "{text}");
        assert!(procs > 1 || peak(fifo, "go") >= 1 << (DEPTH - 3), "{text}");
    }
    for (flag, most) in [("--depth", "14"), ("--procs", "1024")] {
        for bad in ["0", "15000", "deep"] {
            let line = refusal("tree_sum", &[flag, bad], 2);
            assert_eq!(line, format!("tree_sum: {flag}: {bad:?} is not a number from 1 to {most}\n"));
        }
        assert!(refusal("tree_sum", &[flag], 2).contains("--depth D"));
    }
    assert!(refusal("tree_sum", &["--loud"], 2).contains("--loud"));
}

/// Fails when a ready goroutine does not run within the example's own bound; and by a missing row.
#[test]
fn nobody_is_starved() {
    // The example fails only when a delay is too long three times in a row. Other tests run beside it here, so it gets more
    // tries.
    let run = || output(example("fairness").args(["--millis", "20"]));
    let (status, text, complaint) = (0..4).map(|_| run()).find(|said| said.0 == Some(0)).unwrap_or_else(run);
    assert_eq!((status, complaint.as_str()), (Some(0), ""), "{text}");
    let rows: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(rows.len(), 11 * PROCS.len(), "{text}");
    for procs in PROCS {
        let of = |row: &&&str| row.split_whitespace().rev().nth(4) == Some(procs);
        assert_eq!(rows.iter().filter(of).count(), 11, "{text}");
    }
    for args in [&["--millis", "0"][..], &["--millis"], &["--loud"]] {
        let line = refusal("fairness", args, 2);
        assert!(line.contains(args[0]), "{line}");
    }
}
