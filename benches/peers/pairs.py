"""Writes what `run --shapes` has measured: gmp beside the best peer, round by round."""

import math
import statistics
from collections import Counter, defaultdict

from page import NAMES, head, number
from rows import PEERS, RUNTIMES, Row
from shapes import MOST_AT, NONE_ABOVE, SHAPES

# Below so many rounds no ratio is told, and so many are needed for an interval.
LEAST, FOR_INTERVAL = 3, 6


def interval(values: list[float]) -> tuple[float, float] | None:
    """Where the median lies, by the order of the values, with 95 %; nothing if they are too few."""
    ordered, n = sorted(values), len(values)
    if n < FOR_INTERVAL:
        return None
    # The most values that may be left out at either end.
    out, below = 0, 0.5**n
    while 2 * (below + math.comb(n, out + 1) * 0.5**n) <= 0.05:
        out += 1
        below += math.comb(n, out) * 0.5**n
    return ordered[out], ordered[n - 1 - out]


class Pair:
    """One row at one number of Ps: each program's figures, and gmp's ratios to the one it is held against, by rounds."""

    def __init__(self, row: Row, procs: int, runs: list[dict], quiet_below: float) -> None:
        self.row, self.procs = row, procs
        self.of, self.seen = defaultdict(dict), {run["peer"] for run in runs}
        # A peer that fails in some rounds has its figures of the others.
        self.failed = Counter(run["peer"] for run in runs if "error" in run)
        for run in runs:
            if run.get(row.figure) is not None:
                self.of[run["peer"]][run["rep"]] = run[row.figure]
        fatal = (run for run in runs if "error" in run and (run["peer"] == "gmp" or run["peer"] not in self.of))
        self.error = next((f"{NAMES[run['peer']]}: {run['error']}" for run in fatal), None)
        self.medians = {peer: statistics.median(found.values()) for peer, found in self.of.items()}
        held = ["threads"] if row.of_threads else [peer for peer in RUNTIMES if peer != "gmp"]
        known = [peer for peer in held if peer in self.medians]
        self.best = min(known, key=self.medians.get) if known else None
        # A row that has a number to reach is held against that.
        self.limit = row.best_at(procs) or row.of_threads or (1.0 if row.at_most else None)
        loud = {run["rep"] for run in runs if run["peer"] in ("gmp", self.best) and run["others"] >= quiet_below}
        mine, against = self.of.get("gmp", {}), self.of.get(self.best, {})
        rounds = sorted(set(mine) & set(against)) if not row.at_most else sorted(mine)
        quiet = [rep for rep in rounds if rep not in loud]
        self.disturbed = len(rounds) - len(quiet)
        # As on the other page, what was disturbed counts only where too little else is there.
        self.mark = "" if len(quiet) >= LEAST else "*"
        used = quiet if len(quiet) >= LEAST else rounds
        self.ratios = [mine[rep] / (row.at_most or against[rep]) for rep in used]

    def told(self) -> str:
        if self.error:
            return f"error: {self.error}"
        if len(self.ratios) < LEAST:
            return f"{len(self.ratios)} rounds: too few"
        median = statistics.median(self.ratios)
        text = f"**{median:.2f}**{self.mark} ({min(self.ratios):.2f} .. {max(self.ratios):.2f})"
        if found := interval(self.ratios):
            text += f", 95 %: {found[0]:.2f} .. {found[1]:.2f}"
        return text

    def against(self) -> str:
        return f"{self.row.at_most:.3g} {self.row.unit}" if self.row.at_most else NAMES.get(self.best, "–")

    def verdict(self) -> str:
        found = interval(self.ratios)
        if not self.limit or not found:
            return "–"
        if found[1] <= self.limit:
            return "yes"
        return "no" if found[0] > self.limit else "not decided"

    def figure(self, peer: str) -> str:
        if peer not in self.of:
            return "never" if peer in self.seen else "–"
        values = self.of[peer].values()
        text = f"{number(self.medians[peer])} ({number(min(values))} .. {number(max(values))})"
        return text + (f", {self.failed[peer]} failed" if self.failed[peer] else "")


def pairs(data: dict) -> list[Pair]:
    runs = defaultdict(list)
    for run in data["runs"]:
        runs[run["run"], run["procs"]].append(run)
    return [Pair(row, procs, runs[key], data["disturbed"]) for row in SHAPES for procs in row.procs if (key := (row.run, procs)) in runs]


def summary(found: list[Pair]) -> str:
    """How many of the shapes are where they are to be; the rows with a goal of their own are not counted."""
    shapes = [pair for pair in found if pair.row.best == MOST_AT and len(pair.ratios) >= LEAST]
    if not shapes:
        return ""
    medians = {(pair.row.name, pair.procs): statistics.median(pair.ratios) for pair in shapes}
    most = sum(ratio <= MOST_AT for ratio in medians.values())
    above = sorted(((ratio, *key) for key, ratio in medians.items() if ratio > NONE_ABOVE), reverse=True)
    names = ", ".join(f"`{name}` at P = {procs}: {ratio:.2f}" for ratio, name, procs in above) or "none"
    return f"{most} of {len(shapes)} reach {MOST_AT} times the best peer (four fifths are to). Above {NONE_ABOVE}: {names}.\n"


def table(data: dict) -> str:
    found = pairs(data)
    text = f"# Shapes of real programs: gmp beside Go, tokio and may\n\n{head(data)}\n"
    text += (
        "Medians of the rounds (least .. most). The ratio is the median of gmp's figure over that of the peer with the least median, "
        "each in the same round; * where others used the machine beside all rounds but a few. "
        "A limit counts as kept, or as missed, when the 95 % interval of that median lies wholly on one side.\n\n"
    )
    peers = [peer for peer in PEERS if any(peer in pair.of for pair in found)]
    text += "| row | P | " + " | ".join(NAMES[peer] for peer in peers) + " | beside | ratio | limit | kept |\n"
    text += "| --- " * (len(peers) + 6) + "|\n"
    for pair in found:
        middle = " | ".join(pair.figure(peer) for peer in peers)
        limit = f"{pair.limit:.3g}" if pair.limit else "–"
        start = f"| {pair.row.title}, {pair.row.unit} (`{pair.row.name}`) | {pair.procs} | {middle} | {pair.against()} "
        text += f"{start}| {pair.told()} | {limit} | {pair.verdict()} |\n"
    return f"{text}\n{summary(found)}"
