"""The rows of the comparison: the workload, the unit, and the goal of gmp against the others in the same run."""

from dataclasses import dataclass, field

PEERS = ["gmp", "go", "tokio", "may", "threads"]
RUNTIMES = ["gmp", "go", "tokio", "may"]
# A little more memory than a million goroutines take.
MILLION = 5 << 30
# The rows of each kind of socket, and the server's workload.
ECHOES = {
    "tcp": ("echo", "echo", "connection"),
    "unix": ("unix_echo", "echo by Unix streams", "connection"),
    "udp": ("udp_echo", "echo by UDP", "client"),
}
SERVERS = {kind: name for kind, (name, _, _) in ECHOES.items()}


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    unit: str
    peers: list[str]
    # The goal of gmp: at most a multiple of the best runtime, a multiple of `threads`, or a number; none if all are unset.
    best: float | None = None
    # The same multiple from two Ps on, if it differs.
    best_from_two: float | None = None
    of_threads: float | None = None
    plus: float = 0.0
    at_most: float | None = None
    # The numbers of Ps at which `threads` has a program without a runtime that does the same work: a row is also reached if its
    # figure is nearly that program's.
    floor: tuple[int, ...] = ()
    # Also at most a multiple of another row of gmp's, if that row was measured.
    of_row: tuple[float, str] | None = None
    # Which of the program's figures.
    figure: str = "value"
    # The workload, if its name is not the row's.
    workload: str = ""
    procs: tuple[int, ...] = (1, 2, 4, 8)
    # Further options of the program.
    options: list[str] = field(default_factory=list)
    limit: float = 120.0
    # For an echo row.
    kind: str = "tcp"
    connections: int = 0
    seconds: int = 3
    load_options: list[str] = field(default_factory=list)
    # The server's workload, if it differs from that of the kind of socket.
    server: str = ""
    # The bytes of memory that are touched and given back before each run.
    backed: int = 0
    # The number of operations that is enough to see whether the program works.
    short: int = 1000
    # The most repetitions of a row that takes long, or whose figure is the same each time.
    most_reps: int = 99

    def best_at(self, procs: int) -> float | None:
        return self.best_from_two if procs > 1 and self.best_from_two else self.best

    def peers_at(self, procs: int) -> list[str]:
        return [*self.peers, "threads"] if procs in self.floor and "threads" not in self.peers else self.peers

    @property
    def run(self) -> str:
        """Returns the workload, which rows may share."""
        return self.workload or self.name


def echo(connections: int, kind: str = "tcp", **goal) -> Row:
    name, told, each = ECHOES[kind]
    title = f"{told}, {connections} {each}{'s' if connections > 1 else ''}, CPU for 10^6 requests"
    return Row(f"{name}_{connections}", title, "s", PEERS, kind=kind, connections=connections, procs=(1,), **goal)


def resident(name: str, title: str, figure: str, **goal) -> Row:
    return Row(name, title, "B", PEERS, figure=figure, workload="rss_idle", connections=4000, load_options=["--resident"],
        server="small_echo", procs=(1,), most_reps=3, **goal)


def connect_storm(name: str, what: str, unit: str, figure: str, **goal) -> Row:
    return Row(name, f"20,000 connects, at most 1,000 under way: {what}", unit, PEERS, figure=figure, workload="connect_storm",
        connections=20_000, load_options=["--storm", "1000"], procs=(1,), **goal)


def storm(what: str, of: str) -> list[Row]:
    """Returns the rows of one kind of wait in the storm: the usual wait, and the longest of a thousand."""
    return [
        Row(f"storm_{of}_{figure}", f"{what} beside a spawn storm ({told})", "ms", ["gmp", "go"], best=2.0, figure=f"{of}_{figure}",
            workload="storm", procs=(1, 2))
        for figure, told in (("p50", "p50"), ("p999", "p99.9"))
    ]


ROWS = [
    Row("spawn_join", "spawn and join 10^6 goroutines", "ns", RUNTIMES, best=0.4),
    Row("yield_2", "yield, 2 goroutines", "ns", RUNTIMES, best=0.6),
    Row("yield_1000", "yield, 1000 goroutines", "ns", RUNTIMES, best=0.6),
    Row("ping_pong", "ping-pong over two unbuffered channels, a round trip", "ns", PEERS, best=0.6),
    Row("block_on_ready", "block_on: a ready future", "ns", ["gmp", "tokio"], at_most=10.0, procs=(1,)),
    Row("self_wake", "block_on: a future that wakes itself, a poll", "ns", ["gmp", "tokio"], at_most=20.0, procs=(1,)),
    Row("waker_ping_pong", "block_on: ping-pong by wakers, a round trip", "ns", ["gmp", "tokio"], best=0.6, of_row=(1.2, "event_ping_pong"),
        procs=(1, 2)),
    Row("event_ping_pong", "the same by two events, whose waits park", "ns", ["gmp"], procs=(1, 2)),
    Row("buffered_1x1", "buffered channel (128), 1 to 1, an item", "ns", PEERS, best=0.6),
    Row("buffered_4x4", "buffered channel (128), 4 to 4, an item", "ns", PEERS, best=0.6),
    Row("select", "select over two unbuffered channels, an item", "ns", RUNTIMES, best=0.55),
    Row("fan_in", "two unbuffered channels forwarded into one of 128, an item", "ns", RUNTIMES, best=0.5),
    Row("mutex_1", "mutex, 1 goroutine", "ns", PEERS, of_threads=1.05),
    Row("mutex_8", "mutex, 8 goroutines", "ns", PEERS, best=0.8),
    Row("skynet", "skynet, 10^6 leaves, a leaf", "ns", RUNTIMES, best=0.5, best_from_two=0.25, limit=30.0),
    Row("timer_stop", "timer, created and stopped", "ns", ["gmp", "go", "tokio"], best=0.55, best_from_two=0.9),
    Row("oversleep", "sleep of 1 ms, how much longer (p50)", "µs", PEERS, of_threads=1.0, plus=15.0),
    Row("parked", "10^6 goroutines parked: to create each", "ns", ["gmp", "go", "tokio", "threads"], of_threads=1.3,
        backed=MILLION),
    Row("parked_bytes", "10^6 goroutines parked: memory of each", "B", ["gmp", "go", "tokio", "threads"], at_most=4700.0,
        figure="bytes", workload="parked", backed=MILLION),
    Row("parked_cpu", "10^6 goroutines parked: to create each, CPU", "ns", ["gmp", "go", "tokio", "threads"], of_threads=1.3, figure="cpu",
        workload="parked", backed=MILLION),
    echo(1, best=0.95),
    echo(64, best=0.97),
    echo(1000, best=1.05),
    *[echo(connections, "unix", best=0.95) for connections in (1, 64, 1000)],
    *[echo(connections, "udp", best=0.95) for connections in (1, 64)],
    Row("echo_1000_tail", "echo, 1000 connections, p99 of an answer over p50", "×", PEERS, at_most=2.0, figure="tail", workload="echo_1000",
        connections=1000, procs=(1,)),
    resident("rss_idle", "4,000 connections that have said nothing yet: RSS of each", "resident", at_most=4621.0 + 64),
    resident("rss_idle_talked", "the same, each after a message: RSS of each", "talked_resident"),
    resident("rss_idle_tables", "the same, with page tables", "talked"),
    connect_storm("connect_storm_lost", "lost, or listener overflows", "connects", "lost", at_most=0.0),
    connect_storm("connect_storm_p50", "until the answer (p50)", "ms", "answered_p50"),
    connect_storm("connect_storm_p999", "until the answer (p99.9)", "ms", "answered_p999"),
    connect_storm("connect_storm_tail", "p99.9 over p50", "×", "value", at_most=10.0),
    Row("slow_readers", "by how much RSS changes in 30 s beside 64 slow readers", "KiB", RUNTIMES, at_most=1024.0, connections=64, seconds=30,
        load_options=["--slow", "64"], procs=(1,), most_reps=1),
    Row("hog", "P hogs: until one more goroutine starts (p50)", "ms", RUNTIMES, at_most=10.0),
    Row("blocking_marked", "100 goroutines, 20 blocking sleeps of 1 ms each, marked", "ms", ["gmp", "tokio", "threads"], at_most=30.0,
        procs=(2,)),
    Row("blocking", "the same, not marked", "ms", RUNTIMES, at_most=75.0, procs=(2,)),
    Row("cached_files", "1000 goroutines read cached files, a page", "ns", ["gmp", "go", "threads"], of_threads=1.1, procs=(2,)),
    Row("cached_files_cpu", "the same, CPU", "ns", ["gmp", "go", "threads"], of_threads=1.1, figure="cpu", workload="cached_files",
        procs=(2,)),
    Row("merge_sort", "fork-join merge sort of 10^6 u64", "ms", PEERS, of_threads=1.03),
    Row("idle", "10,000 idle connections for 5 s, CPU", "ms", RUNTIMES, at_most=0.0, connections=10_000, seconds=5,
        load_options=["--idle"], procs=(2,), most_reps=3),
    *storm("a yield", "yield"),
    *storm("a sleep of 1 ms", "sleep"),
    *storm("a spawn and a join", "join"),
    *storm("an echo", "echo"),
    *storm("a message of a thread", "thread"),
    Row("storm_max", "the longest of all these waits", "ms", ["gmp", "go"], at_most=50.0, workload="storm", procs=(1, 2)),
]
