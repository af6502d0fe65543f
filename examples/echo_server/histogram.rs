//! Latencies counted in log-scale buckets, and drawn.
//!
//! A bucket is less than 1 % wide, so every quantile is that precise; counting a value is one increment. The rows of the
//! picture are wider, and their ends are the round numbers in which resistors come: 6, 12 or 24 to a power of ten.

use std::fmt;
use std::time::Duration;

const FINE_BITS: u32 = 7;
const FINE: u64 = 1 << FINE_BITS;
/// 69 seconds, in nanoseconds. Longer times count as this.
const MOST: u64 = (1 << 36) - 1;
const BUCKETS: usize = (36 - FINE_BITS as usize + 1) << FINE_BITS;

/// IEC 60063: steps of about 10, 20 and 50 %.
const E24: &[u64] =
    &[10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91];
const E12: &[u64] = &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E6: &[u64] = &[10, 15, 22, 33, 47, 68];
/// The picture uses the finest steps that need no more rows than this.
const ROWS: usize = 20;
/// Neighbouring rows that each have less than a thousandth of all values are drawn as one.
const THIN: u64 = 1000;
/// Characters.
const BAR: usize = 44;

pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    max: u64,
}

/// Returns the bucket of a value. Below 128 every value has a bucket of its own; above, the leading one and the seven bits
/// after it choose.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min(MOST);
    if nanos < FINE {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - FINE_BITS;
    (u64::from(shift) * FINE + (nanos >> shift)) as usize
}

/// Returns the least value of a bucket.
fn floor(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let shift = bucket / FINE - 1;
    (bucket - shift * FINE) << shift
}

impl Histogram {
    pub fn new() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0, max: 0 }
    }

    pub fn record(&mut self, latency: Duration) {
        let nanos = latency.as_nanos() as u64;
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the value that `share` of all values did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share * self.total as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Duration::from_nanos(found.map_or(self.max, |bucket| floor(bucket + 1) - 1).min(self.max))
    }

    /// Returns how many values are from `low` up to, but without, `high`. A bucket counts where it begins.
    fn between(&self, low: u64, high: u64) -> u64 {
        let first = (bucket(low)..).find(|&at| floor(at) >= low).expect("buckets go up");
        (first..BUCKETS).take_while(|&at| floor(at) < high).map(|at| self.counts[at]).sum()
    }

    /// Returns rows in steps of `series` over all values.
    fn rows(&self, series: &[u64]) -> Vec<Row> {
        let Some(least) = self.counts.iter().position(|&count| count > 0) else { return Vec::new() };
        let mut rows: Vec<Row> = Vec::new();
        let mut low = step(series, floor(least)).0;
        while low <= self.max.min(MOST) {
            let high = step(series, low).1;
            let count = self.between(low, high);
            let is_thin = count * THIN < self.total;
            match rows.last_mut() {
                Some(last) if last.is_thin && is_thin => {
                    last.high = high;
                    last.count += count;
                    last.is_wide = true;
                }
                _ => rows.push(Row { low, high, count, is_thin, is_wide: false }),
            }
            low = high;
        }
        rows
    }
}

/// A line of the picture: the values from `low` up to, but without, `high`.
struct Row {
    low: u64,
    high: u64,
    count: u64,
    is_thin: bool,
    /// Whether the row stands for several steps.
    is_wide: bool,
}

/// Returns the number of the series at or below `nanos`, and the next one.
fn step(series: &[u64], nanos: u64) -> (u64, u64) {
    let nanos = nanos.max(10);
    let unit = 10_u64.pow(nanos.ilog10() - 1);
    let at =
        series.iter().rposition(|low| low * unit <= nanos).expect("a series begins at each power of ten");
    let next = series.get(at + 1).map_or(100 * unit, |low| low * unit);
    (series[at] * unit, next)
}

impl fmt::Display for Histogram {
    /// A line for each row, with the time at which it begins.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fine = [E24, E12].into_iter().map(|series| self.rows(series)).find(|rows| rows.len() <= ROWS);
        let rows = fine.unwrap_or_else(|| self.rows(E6));
        let most = rows.iter().map(|row| row.count).max().unwrap_or(1);
        for Row { low, high, count, is_wide, .. } in rows {
            let marks: String = [(" p50", 0.5), (" p99", 0.99), (" p99.9", 0.999)]
                .into_iter()
                .filter(|&(_, share)| (low..high).contains(&(self.quantile(share).as_nanos() as u64)))
                .map(|(name, _)| name)
                .collect();
            let low = format!("{:?}", Duration::from_nanos(low));
            let axis = if is_wide { '┊' } else { '│' };
            let share = 100.0 * count as f64 / self.total as f64;
            let line = format!("{low:>8} {axis}{}  {share:5.2} % {marks}", bar(count, most));
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Draws a bar in eighths of a character. A count above zero is always visible.
fn bar(count: u64, most: u64) -> String {
    let eighths = (count as u128 * 8 * BAR as u128).div_ceil(u128::from(most)) as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend("▏▎▍▌▋▊▉".chars().nth((eighths % 8).wrapping_sub(1)));
    format!("{bar:BAR$}")
}
