//! One connection: dial the target, copy both ways, and watch that something moves.

use super::tcp;
use gmp::context::{Cancel, Context};
use gmp::io::{copy, copy_bidirectional};
use gmp::net::{DialConfig, TcpStream};
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many times within the idle limit the watcher looks whether bytes have moved.
const LOOKS: u32 = 8;
/// The time between two looks whether the last bytes have arrived.
const SOON: Duration = Duration::from_millis(5);

pub struct Forwarder {
    pub target: String,
    pub dial: Duration,
    pub idle: Duration,
    pub lifetime: Duration,
    /// Ends every connection, wherever it waits.
    pub cut: Context,
    pub counts: Counts,
}

/// Why this program ends a connection, as the cause of the connection's context.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    Idle,
    TooOld,
    Stop,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Idle => "idle for too long",
            Why::TooOld => "open for too long",
            Why::Stop => "the forwarder stops",
        })
    }
}

impl Error for Why {}

/// How a connection has ended.
enum End {
    /// Both sides have sent all that they had.
    Finished,
    /// The target can't be reached.
    Unreached(io::Error),
    /// One side has reset the connection, or is gone.
    Broken,
    Ended(Why),
}

/// How much was forwarded.
#[derive(Default)]
pub struct Counts {
    finished: AtomicU64,
    unreached: AtomicU64,
    broken: AtomicU64,
    idle: AtomicU64,
    too_old: AtomicU64,
    cut: AtomicU64,
    there: AtomicU64,
    back: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [&self.finished, &self.broken, &self.idle, &self.too_old, &self.unreached, &self.cut];
        let [finished, broken, idle, too_old, unreached, cut] = counts.map(|count| count.load(Relaxed));
        write!(f, "{finished} finished, {broken} broken, {idle} idle, {too_old} too old, ")?;
        write!(f, "{unreached} without the target, {cut} cut off; ")?;
        write!(f, "{} bytes there, {} back", self.there.load(Relaxed), self.back.load(Relaxed))
    }
}

impl Forwarder {
    /// Serves one client to its end. Returns an error if the target can't be reached.
    pub fn serve(&self, client: TcpStream) -> io::Result<()> {
        // If the kernel refuses this, segments wait for each other: the connection is slower, nothing else.
        let _only_slower_without = client.set_nodelay(true);
        let client = Arc::new(client);
        let (end, result) = match self.forward(&client) {
            End::Unreached(refused) => (&self.counts.unreached, Err(refused)),
            End::Finished => (&self.counts.finished, Ok(())),
            End::Broken => (&self.counts.broken, Ok(())),
            End::Ended(Why::Idle) => (&self.counts.idle, Ok(())),
            End::Ended(Why::TooOld) => (&self.counts.too_old, Ok(())),
            End::Ended(Why::Stop) => (&self.counts.cut, Ok(())),
        };
        end.fetch_add(1, Relaxed);
        result
    }

    fn forward(&self, client: &Arc<TcpStream>) -> End {
        // Two errors of one kind differ only in their texts, so the causes are types.
        let (life, end) = self.cut.with_timeout_cause(self.lifetime, Why::TooOld);
        let why = || life.cause().and_then(|cause| cause.downcast_ref::<Why>().copied());
        // A connection that was not forwarded to its end ends by a reset on both sides: no peer must take a part for the whole.
        let unless_finished = |end: End, streams: &[&TcpStream]| {
            if !matches!(end, End::Finished) {
                streams.iter().for_each(|stream| tcp::reset_on_close(stream));
            }
            end
        };

        let dial = DialConfig::new().nodelay(true).timeout(self.dial).context(&life);
        let target = match dial.connect(self.target.as_str()) {
            Ok(target) => Arc::new(target),
            Err(refused) => {
                return unless_finished(why().map_or(End::Unreached(refused), End::Ended), &[client]);
            }
        };
        let watch = {
            let (client, target, life, end) =
                (Arc::clone(client), Arc::clone(&target), life.clone(), end.clone());
            let idle = self.idle;
            move || watch(&client, &target, idle, &life, &end)
        };
        let watcher = match gmp::Builder::new().go(watch) {
            Ok(watcher) => watcher,
            Err(refused) => return unless_finished(End::Unreached(refused), &[client, &target]),
        };
        let copied = life.run(|| copy_bidirectional(&**client, &*target));
        let (there, back) = match &copied {
            Ok(Ok(bytes)) => *bytes,
            Ok(Err(broken)) => {
                let ((there, back), (to_target, to_client)) = (broken.copied(), broken.undelivered());
                let more_there = last_words(client, &target, to_target, &life);
                (there + more_there, back + last_words(&target, client, to_client, &life))
            }
            Err(_done_before_the_first_byte) => (0, 0),
        };
        self.counts.there.fetch_add(there, Relaxed);
        self.counts.back.fetch_add(back, Relaxed);
        let ended = match copied {
            Ok(Ok(_)) => End::Finished,
            _ => why().map_or(End::Broken, End::Ended),
        };
        let ended = unless_finished(ended, &[client, &target]);
        end.cancel();
        // The watcher has the two sockets, too, and so does not close one of them later than this.
        let _ended = watcher.join();
        ended
    }
}

/// If `from` has reset the connection, hands on the bytes that it had sent before, first `taken`, which a copy has taken
/// already. Waits until these have arrived, as the reset that follows would discard them. Returns how many bytes these were.
fn last_words(from: &TcpStream, mut to: &TcpStream, taken: &[u8], life: &Context) -> u64 {
    if !tcp::is_broken(from) {
        return 0;
    }
    let said = life.run(|| match to.write_all(taken) {
        Ok(()) => taken.len() as u64 + copy(from, to).unwrap_or_else(|broken| broken.copied()),
        Err(_gone_as_well) => 0,
    });
    while tcp::is_under_way(to) && life.run(|| gmp::time::sleep(SOON)).is_ok() {}
    said.unwrap_or(0)
}

/// Ends `life` when no byte has moved for as long as `idle`, in either direction and at either end. Runs in a goroutine of its
/// own, until `life` is done.
///
/// Limits at the sockets would not do: a read timeout also expires for a side that only receives.
fn watch(client: &TcpStream, target: &TcpStream, idle: Duration, life: &Context, end: &Cancel) {
    let moved = || [client, target].map(tcp::progress);
    let (mut before, mut since) = (moved(), Instant::now());
    while life.run(|| gmp::time::sleep(idle / LOOKS)).is_ok() {
        let now = moved();
        if now != before {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() >= idle {
            end.cancel_with(Why::Idle);
        }
    }
}
