//! A sweep over a line of cells, again and again: each piece of the line runs where it ran before.
//!
//! cargo run --release --example stencil
//!
//! 64 pieces of 16384 cells, 200 sweeps, procs 2
//! without hints: 52.1 % of the pieces ran on the P where they ran before, 0.87 ms a sweep
//! with hints: 98.4 % of the pieces ran on the P where they ran before, 0.81 ms a sweep
//! the sums agree: 1048576.0
//!
//! In each sweep every cell becomes the mean of itself and its neighbours. Each sweep runs a goroutine for each piece, and the
//! data of the piece are in the cache of the core on which it ran last. So with hints it is spawned with the `Affinity` of the
//! P on which it ran in the sweep before; without hints, any P takes it. Heat flows over the ends of the line, so the sum does
//! not change: the status is 1 if it does. `--sweeps N` makes it longer; `GMPMAXPROCS` sets the number of Ps.

use gmp::sync::Mutex;
use gmp::{Affinity, Builder};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const USAGE: &str = "stencil [--sweeps N]";
const PIECES: usize = 64;
const CELLS: usize = 16_384;
const MOST_SWEEPS: usize = 1_000_000;

/// The first and the last cell of a piece, for its neighbours: as bits.
type Edges = [AtomicU64; 2];

struct Piece {
    /// The cells after the last sweep, and room for the next.
    cells: Mutex<[Vec<f64>; 2]>,
    /// After an even number of sweeps, and after an odd one: neighbours read one while the other is written.
    edges: [Edges; 2],
}

impl Piece {
    fn new(cells: Vec<f64>) -> Self {
        let edges = [cells[0], cells[CELLS - 1]];
        let of = |edges: [f64; 2]| edges.map(|edge| AtomicU64::new(edge.to_bits()));
        Piece { cells: Mutex::new([cells, vec![0.0; CELLS]]), edges: [of(edges), of(edges)] }
    }

    /// Returns an edge after so many sweeps. The join of the sweep orders the edges.
    fn edge(&self, sweeps: usize, which: usize) -> f64 {
        f64::from_bits(self.edges[sweeps % 2][which].load(Relaxed))
    }

    /// Makes the next sweep, beside neighbours with these cells.
    fn sweep(&self, sweeps: usize, before: f64, after: f64) {
        let mut cells = self.cells.lock();
        let [old, new] = &mut *cells;
        let mean = |three: [f64; 3]| three.iter().sum::<f64>() / 3.0;
        new[0] = mean([before, old[0], old[1]]);
        for (at, three) in old.windows(3).enumerate() {
            new[at + 1] = mean([three[0], three[1], three[2]]);
        }
        new[CELLS - 1] = mean([old[CELLS - 2], old[CELLS - 1], after]);
        for (edge, value) in self.edges[(sweeps + 1) % 2].iter().zip([new[0], new[CELLS - 1]]) {
            edge.store(value.to_bits(), Relaxed);
        }
        cells.swap(0, 1);
    }
}

/// The results of all sweeps.
struct Swept {
    /// How many pieces ran where they ran in the sweep before.
    stayed: usize,
    took: Duration,
    sum: f64,
}

/// Sweeps over the whole line `count` times. The ends of the line are neighbours.
fn sweeps(count: usize, hints: bool) -> std::io::Result<Swept> {
    let hot = |piece: usize| if piece.is_multiple_of(8) { 8.0 } else { 0.0 };
    let pieces: Arc<[Piece]> = (0..PIECES).map(|piece| Piece::new(vec![hot(piece); CELLS])).collect();
    let mut places = [Affinity::default(); PIECES];
    let (mut stayed, begun) = (0, Instant::now());
    for sweep in 0..count {
        let mut running = Vec::with_capacity(PIECES);
        for (me, place) in places.iter().enumerate() {
            let pieces = Arc::clone(&pieces);
            let builder = if hints { Builder::new().affinity(*place) } else { Builder::new() };
            running.push(builder.go(move || {
                let here = Affinity::of_current();
                let [before, after] = [(me + PIECES - 1) % PIECES, (me + 1) % PIECES];
                pieces[me].sweep(sweep, pieces[before].edge(sweep, 1), pieces[after].edge(sweep, 0));
                here
            })?);
        }
        for (place, piece) in places.iter_mut().zip(running) {
            let here = piece.join().expect("a piece does not panic");
            stayed += usize::from(here == *place);
            *place = here;
        }
    }
    let took = begun.elapsed();
    let sum = pieces.iter().map(|piece| piece.cells.lock()[0].iter().sum::<f64>()).sum();
    Ok(Swept { stayed, took, sum })
}

fn parse() -> Result<usize, String> {
    let mut args = std::env::args().skip(1);
    let mut count = 200;
    while let Some(flag) = args.next() {
        if flag != "--sweeps" {
            return Err(format!("unknown argument {flag:?}; {USAGE}"));
        }
        let value = args.next().ok_or(USAGE)?;
        count = value
            .parse()
            .ok()
            .filter(|count| (2..=MOST_SWEEPS).contains(count))
            .ok_or_else(|| format!("--sweeps: {value:?} is not a number from 2 to {MOST_SWEEPS}"))?;
    }
    Ok(count)
}

fn stencil(count: usize) -> std::io::Result<bool> {
    println!("{PIECES} pieces of {CELLS} cells, {count} sweeps, procs {}", gmp::procs());
    let mut sums = Vec::new();
    for (title, hints) in [("without hints", false), ("with hints", true)] {
        let Swept { stayed, took, sum } = sweeps(count, hints)?;
        // The first sweep has no sweep before it.
        let share = 100.0 * stayed as f64 / (PIECES * (count - 1)) as f64;
        let each = took.as_secs_f64() * 1e3 / count as f64;
        println!(
            "{title}: {share:.1} % of the pieces ran on the P where they ran before, {each:.2} ms a sweep"
        );
        sums.push(sum);
    }
    let whole = (PIECES * CELLS) as f64;
    let agree = sums.iter().all(|sum| (sum - whole).abs() < 1e-6 * whole);
    if agree {
        println!("the sums agree: {whole:.1}");
    } else {
        eprintln!("stencil: the sums are {sums:?}, and not {whole}");
    }
    Ok(agree)
}

fn main() -> ExitCode {
    let count = match parse() {
        Ok(count) => count,
        Err(wrong) => {
            eprintln!("stencil: {wrong}");
            return ExitCode::from(2);
        }
    };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let built = unsafe { gmp::Runtime::builder().build() };
    match built.and_then(|runtime| runtime.run(|| stencil(count))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(refused) => {
            eprintln!("stencil: {refused}");
            ExitCode::FAILURE
        }
    }
}
