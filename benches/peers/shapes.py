"""The rows of shapes.md: uses of goroutines in programs, written down before the first measurement."""

from rows import MILLION, RUNTIMES, Row

# The limit for each shape, and the lower limit for four fifths of them.
NONE_ABOVE, MOST_AT = 1.0, 0.8
# A row is also reached if gmp takes at most this multiple of its floor.
OF_FLOOR = 1.05
BOTH = (1, 2)
NO_MAY = ["gmp", "go", "tokio"]


def shape(name: str, title: str, unit: str = "ns", peers: list[str] = RUNTIMES, procs: tuple[int, ...] = BOTH, **more) -> Row:
    return Row(name, title, unit, peers, procs=procs, limit=60.0, **{"best": MOST_AT, **more})


SHAPES = [
    shape("fan_out", "fan out to 16 and gather, a request"),
    shape("hedged", "three replicas, the first answer, a request"),
    shape("deadline", "requests with a deadline and a fallback, a request"),
    shape("actors", "1,000 actors in a graph, 200 messages, a hop"),
    shape("owner", "16 callers ask an owner, a call"),
    shape("rate_limit", "token bucket, 100 callers, CPU of a permit", short=400, floor=BOTH),
    shape("single_flight", "cache with single flight, a look-up", floor=(1,)),
    shape("pub_sub", "32 subscribers, 4 of them slow, a message delivered", floor=(1,)),
    shape("pipeline", "pipeline of uneven stages, an item", floor=BOTH),
    shape("timers_moved", "10,000 timers, moved", peers=NO_MAY),
    shape("heartbeats", "1,000 tickers of 10 ms, CPU of a tick", short=2000),
    shape("bursts", "burst of 500 after a pause", "µs", short=2, floor=BOTH),
    shape("random_wakes", "wakes without order among 1,000, a wake"),
    shape("lock_short", "64 want a short lock, a lock", floor=BOTH),
    shape("lock_convoy", "64 want a lock held across a yield, a lock"),
    shape("rw_mostly", "32 read, each hundredth time write, a lock", floor=BOTH),
    shape("barrier", "8 in phases, a phase", floor=BOTH),
    shape("blocking_handlers", "32 connections, handlers that block for 100 µs, a request", short=64, floor=(1,)),
    shape("large_messages", "256 KiB there and back by TCP, a message", short=16, floor=BOTH),
    shape("large_values", "1 KiB by value over a channel of 16, a message"),
    shape("idle_bursts", "1,000 idle connections, a burst of 100", "µs", short=2, floor=BOTH),
    shape("short_connections", "connect, 64 bytes there and back, close", short=64, floor=BOTH),
    shape("worker_pool", "8 workers with results, a job", floor=(1,)),
    shape("crawl", "crawl limited by a semaphore, a page", short=1),
    shape("request_tree", "tree of 20, one answers, the rest is cancelled, a request", short=20),
    shape("abort", "100 that wait are ended from outside, each", floor=BOTH),
    shape("errgroup", "group of 32, the first error ends it, a group", short=20),
    shape("spawn_chain", "calls 100 deep, each a goroutine, a call"),
    shape("mixed", "everything at once, a request"),
    # Rows that had a goal and no program.
    shape("select_128", "select over two channels of 128, an item", best=0.6),
    shape("random_sleeps", "100,000 sleep ten times for 1 to 10 ms, in all", "ms", NO_MAY, best=0.5, short=1000),
    shape("rings", "4 P rings of 8: the last that is through over the first", "×", procs=(2,), best=None, at_most=1 / 0.7),
    shape("thread_submit", "a thread submits to an idle runtime: start (p50)", "µs", best=1.0, short=5),
    shape("spawn_wait", "spawn 10^6 from main, wait group", best=0.4, short=10_000),
    shape("parked_own", "10^6 parked, each on its own channel: to create each", peers=[*NO_MAY, "threads"], best=None, of_threads=1.2,
        short=10_000, backed=MILLION),
    shape("echo_64_unpinned", "echo, 64 connections, CPU for 10^6 requests", "s", procs=(2,), best=0.97, connections=64, floor=(2,)),
]
