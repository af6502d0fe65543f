"""The curves of README.md: the runs and their sizes, and the verdict on a curve."""

import math
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from host import Calm
from page import NAMES, number
from plot import plot
from rows import Row

ALL, NO_TOKIO = ["gmp", "go", "tokio"], ["gmp", "go"]
TENS = [10**power for power in range(1, 7)]
TWOS = [2**power for power in range(13)]
PAGE, LINE = 4096, 64
# A factor beyond the logarithm, for the error of a median.
SLACK = 1.25
PS = "Ps"


@dataclass(frozen=True)
class Touched:
    """The memory that one of a curve's things touches each time: the bytes of the lines, and the pages."""

    bytes: int
    pages: float


GOROUTINE, TIMER, CONNECTION, CHANNEL = Touched(1024, 2), Touched(192, 192 / PAGE), Touched(2048, 3), Touched(640, 640 / PAGE)


@dataclass(frozen=True)
class Curve:
    name: str
    title: str
    # The things that a size counts.
    things: str
    sizes: list[int]
    # Returns the number of operations at a size.
    n: object = None
    unit: str = "ns"
    peers: list[str] = field(default_factory=lambda: ALL)
    touched: Touched | None = None
    # Which of the program's figures; and the workload, if its name is not the curve's.
    figure: str = "value"
    workload: str = ""
    procs: tuple[int, ...] = (1, 2)
    limit: float = 120.0

    @property
    def each(self) -> str:
        """Returns the unit of work that a value is for."""
        if self.things == "connections":
            return "for 10^6 round trips"
        return "an arm" if self.things == "arms" else "an operation"

    @property
    def base(self) -> int:
        return 2 if self.sizes[1] == 2 else 10

    def point(self, size: int, smoke: bool) -> "Point":
        name, run = f"{self.name}/{size}", f"scale_{self.workload or self.name}"
        procs = (size,) if self.things == PS else self.procs
        if self.things == "connections":
            return Point(name, self.title, "s", self.peers, workload="echo", connections=size, procs=procs, limit=self.limit, curve=self.name,
                size=size)
        n = max(self.n(size) // (50 if smoke else 1), 1)
        return Point(name, self.title, self.unit, self.peers, workload=run, procs=procs, options=["--n", str(n), "--size", str(size)],
            limit=self.limit, figure="value", curve=self.name, size=size)


@dataclass(frozen=True)
class Point(Row):
    curve: str = ""
    size: int = 0


CURVES = [
    Curve("yield", "a yield", "goroutines", TENS, lambda size: max(2_000_000, 3 * size), touched=GOROUTINE),
    Curve("ping_pong", "a round trip over two unbuffered channels", "goroutines", TENS, lambda size: max(500_000, 2 * size), touched=GOROUTINE),
    Curve("parked_one", "to create one that waits on the channel of all", "goroutines", TENS, lambda size: max(200_000, size),
        touched=GOROUTINE),
    Curve("parked_one_wake", "to wake one, and see its end", "goroutines", TENS, touched=GOROUTINE, figure="wake", workload="parked_one"),
    Curve("parked_own", "to create one that waits on its own channel", "goroutines", TENS, lambda size: max(200_000, size), touched=GOROUTINE),
    Curve("parked_own_wake", "to wake one on its own channel, and see its end", "goroutines", TENS, touched=GOROUTINE, figure="wake",
        workload="parked_own"),
    Curve("timer_stop", "a timer, armed and stopped", "timers", TENS, lambda size: 500_000, touched=TIMER),
    Curve("timer_fire", "a timer, armed and fired: CPU", "timers", TENS, lambda size: max(size, min(200 * size, 100_000)), touched=TIMER),
    Curve("connections", "a round trip of 64 bytes: CPU of the server for 10^6", "connections", [1, 10, 100, 1000, 10_000, 20_000], unit="s",
        touched=CONNECTION, procs=(1,)),
    Curve("select", "a select, for each of its arms", "arms", TWOS[:6], lambda size: 500_000 // (size + 1) + 1_000, touched=CHANNEL),
    Curve("select_dynamic", "a select made at run time, for each of its arms", "arms", TWOS, lambda size: 1_000_000 // (size + 1) + 500,
        peers=NO_TOKIO, touched=CHANNEL),
    Curve("channels", "a number through one of so many channels", "channels", [1, 10, 100, 1000], lambda size: 2_000_000, touched=CHANNEL),
    Curve("procs_yield", "a yield, of two goroutines for each P", PS, TWOS[:7], lambda size: 1_000_000),
    Curve("procs_transfer", "a transfer among two goroutines for each P", PS, TWOS[:7], lambda size: 20, unit="µs", limit=20.0),
]
# The curves that are run. A curve without `n` takes its figure from another curve's run.
RUN = [curve for curve in CURVES if curve.n or curve.things == "connections"]


def points(only: str, most: int, smoke: bool) -> list[Point]:
    # Curves that share a run are chosen together.
    chosen = {curve.workload or curve.name for curve in CURVES if re.search(only, curve.name)}
    found = []
    for curve in [curve for curve in RUN if curve.name in chosen]:
        sizes = [size for size in curve.sizes if size <= most]
        if smoke:
            sizes = [1, 4] if curve.things == PS else [1, 8, 32] if curve.things == "arms" else sizes[:2] + sizes[2:3]
        found += [curve.point(size, smoke) for size in sizes]
    return found


def levels_of_machine() -> list[dict]:
    """Returns the caches of the first CPU in bytes, and the second TLB's reach in pages: that of /proc, or 1,536."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        read = {name: (folder / name).read_text().strip() for name in ("level", "type", "size")}
        if read["type"] != "Instruction":
            size, unit = re.fullmatch(r"(\d+)([KM]?)", read["size"]).groups()
            found.append({"name": f"L{read['level']}", "bytes": int(size) * {"": 1, "K": 1 << 10, "M": 1 << 20}[unit]})
    told = re.search(r"^TLB size\s*: (\d+) 4K pages", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    found.append({"name": "TLB", "pages": int(told[1]) if told else 1536, "assumed": not told})
    return found


def left_at(level: dict, touched: Touched) -> float:
    """Returns the size from which on the things no longer fit into the level."""
    return level["bytes"] / touched.bytes if "bytes" in level else level["pages"] / touched.pages


def left_between(levels: list[dict], touched: Touched | None, before: int, after: int) -> list[str]:
    """Returns the levels that are left between two sizes. Other programs share a level, so half of it counts."""
    if not touched:
        return []
    return [level["name"] for level in levels if before < left_at(level, touched) <= 2 * after]


def exponent(line: list[tuple[int, float]]) -> float | None:
    """Returns the slope by least squares, with both axes logarithmic."""
    if len(line) < 2:
        return None
    xs, ys = [math.log(size) for size, _ in line], [math.log(value) for _, value in line]
    return statistics.linear_regression(xs, ys).slope


def logarithm(size: int) -> float:
    return 1 + math.log2(size)


@dataclass
class Judged:
    exponent: float | None
    # The smaller size, the larger one, and the factor between their values.
    biggest: tuple[int, int, float] | None
    # The steps beyond the logarithm, each with the levels that gmp leaves there. A step without a level breaks the rule.
    steps: list[tuple[int, int, float, list[str]]]

    @property
    def kept(self) -> bool:
        return all(levels for *_, levels in self.steps)


def judge(line: list[tuple[int, float]], levels: list[dict], touched: Touched | None) -> Judged:
    pairs = list(zip(line, line[1:]))
    biggest = max(((a, b, after / before) for (a, before), (b, after) in pairs), key=lambda step: step[2], default=None)
    steps, base = [], 0
    for at in range(1, len(line)):
        size, value = line[at]
        bound = SLACK * min(before * logarithm(size) / logarithm(of) for of, before in line[base:at])
        if value > bound:
            before = line[at - 1]
            steps.append((before[0], size, value / before[1], left_between(levels, touched, before[0], size)))
            # The sizes after a step are compared with those from the step on.
            base = at
    return Judged(exponent(line), biggest, steps)


def lines(curve: Curve, data: dict) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Returns the medians of the runs by size, for each program and number of Ps, which is 0 if the size is that number."""
    found, is_calm = {}, Calm(data["runs"], data["disturbed"])
    names = {f"{curve.workload or curve.name}/{size}": size for size in curve.sizes}
    for run in data["runs"]:
        if (size := names.get(run["row"])) is not None and (value := run.get(curve.figure)) is not None:
            procs = 0 if curve.things == PS else run["procs"]
            found.setdefault((run["peer"], procs), {}).setdefault(size, []).append((is_calm(run), value))
    medians = {}
    for key in sorted(found, key=lambda key: (ALL.index(key[0]), key[1])):
        line = []
        for size, values in sorted(found[key].items()):
            calm = [value for quiet, value in values if quiet]
            line.append((size, statistics.median(calm or [value for _, value in values])))
        medians[key] = line
    return medians


def disturbed(data: dict) -> str:
    is_calm = Calm(data["runs"], data["disturbed"])
    loud = sum(not is_calm(run) for run in data["runs"])
    return f"{loud} of {len(data['runs'])} runs were beside others on the machine, or its cores were moved" + ("; they count where a point has no other." if loud else ".")


def page(data: dict, head: str, out: Path) -> str:
    """Writes the plots beside the page, and returns the page."""
    levels = data["levels"]
    told = ", ".join(f"{level['name']} {level['bytes'] >> 10:,} KiB" if "bytes" in level else
        f"{level['name']} {level['pages']:,} pages{' (assumed)' if level['assumed'] else ''}" for level in levels)
    text = f"# Curves: the cost of one operation against size\n\n{head}\n{disturbed(data)} Levels: {told}.\n\n"
    rows = "| curve | program | exponent | biggest step | beyond the logarithm | at most log n |\n| --- | --- | --- | --- | --- | --- |\n"
    plots = ""
    for curve in CURVES:
        found = lines(curve, data)
        if not found:
            continue
        at = [(left_at(level, curve.touched), f"{level['name']} left") for level in levels] if curve.touched else []
        out.joinpath(f"{curve.name}.svg").write_text(
            plot(f"{curve.title[0].upper()}{curve.title[1:]}", curve.things, f"{curve.unit} {curve.each}", found, at, curve.base))
        plots += f"\n## `{curve.name}`: {curve.title}\n\n![{curve.title} against the number of {curve.things}]({curve.name}.svg)\n\n"
        sizes = sorted({size for line in found.values() for size, _ in line})
        plots += f"| {curve.things} | {' | '.join(f'{size:,}' for size in sizes)} |\n| --- {'| --- ' * len(sizes)}|\n"
        for (peer, procs), line in found.items():
            values = dict(line)
            name = NAMES[peer] + (f", {procs} P" if procs else "")
            plots += f"| {name}, {curve.unit} | {' | '.join(number(values[size]) if size in values else 'never' for size in sizes)} |\n"
            rows += judged_row(curve, name, judge(line, levels, curve.touched))
    return text + rows + plots


def judged_row(curve: Curve, name: str, judged: Judged) -> str:
    step = lambda a, b, times: f"{times:.2f} × from {a:,} to {b:,}"
    slope = "–" if judged.exponent is None else f"{judged.exponent:+.2f}"
    biggest = step(*judged.biggest) if judged.biggest else "–"
    beyond = "; ".join(f"{step(a, b, times)}: {', '.join(f'{level} left' for level in levels) or '**no level left**'}"
        for a, b, times, levels in judged.steps) or "none"
    verdict = "–" if curve.things == PS else "yes" if judged.kept else "**no**"
    return f"| `{curve.name}` | {name} | {slope} | {biggest} | {beyond} | {verdict} |\n"
