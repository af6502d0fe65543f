"""Writes the measurements of `run --shapes`: gmp beside the best peer, round by round."""

import math
import statistics
from collections import Counter, defaultdict

from host import Calm
from page import NAMES, head, number
from rows import PEERS, RUNTIMES, Row
from shapes import MOST_AT, NONE_ABOVE, OF_FLOOR, SHAPES

# The least number of rounds for a ratio, and for an interval.
LEAST, FOR_INTERVAL = 3, 6


def interval(values: list[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of the median, by the order of the values; `None` if there are too few."""
    ordered, n = sorted(values), len(values)
    if n < FOR_INTERVAL:
        return None
    # The largest number of values that may be left out at either end.
    out, below = 0, 0.5**n
    while 2 * (below + math.comb(n, out + 1) * 0.5**n) <= 0.05:
        out += 1
        below += math.comb(n, out) * 0.5**n
    return ordered[out], ordered[n - 1 - out]


def spread(ratios: list[float], mark: str = "") -> str:
    text = f"**{statistics.median(ratios):.2f}**{mark} ({min(ratios):.2f} .. {max(ratios):.2f})"
    if found := interval(ratios):
        text += f", 95 %: {found[0]:.2f} .. {found[1]:.2f}"
    return text


class Pair:
    """One row at one number of Ps: each program's figures, and gmp's ratios, by rounds, to the program that gmp is compared with, and
    to its floor."""

    def __init__(self, row: Row, procs: int, runs: list[dict], is_calm: Calm) -> None:
        self.row, self.procs = row, procs
        self.of, self.seen = defaultdict(dict), {run["peer"] for run in runs}
        # A peer that fails in some rounds has its figures of the others.
        self.failed = Counter(run["peer"] for run in runs if "error" in run)
        for run in runs:
            if run.get(row.figure) is not None:
                self.of[run["peer"]][run["rep"]] = run[row.figure]
        # A peer that fails in all rounds, as one that finds no room for its stacks, says so in its cell, and gmp is compared with others.
        self.error = next((run["error"] for run in runs if "error" in run and run["peer"] == "gmp"), None)
        self.medians = {peer: statistics.median(found.values()) for peer, found in self.of.items()}
        held = ["threads"] if row.of_threads else [peer for peer in RUNTIMES if peer != "gmp"]
        known = [peer for peer in held if peer in self.medians]
        self.best = min(known, key=self.medians.get) if known else None
        # A row with a number as its goal is compared with that number.
        self.limit = row.best_at(procs) or row.of_threads or (1.0 if row.at_most else None)
        self.runs, self.is_calm = runs, is_calm
        self.ratios, self.mark = self.ratios_to(self.best, row.at_most)
        self.of_floor, self.floor_mark = self.ratios_to("threads") if procs in row.floor else ([], "")

    def ratios_to(self, other: str | None, number: float | None = None) -> tuple[list[float], str]:
        """Returns the ratios of the quiet rounds. As on the other page, disturbed rounds count only if too few others are left: *."""
        mine, against = self.of.get("gmp", {}), self.of.get(other, {})
        loud = {run["rep"] for run in self.runs if run["peer"] in ("gmp", other) and not self.is_calm(run)}
        rounds = sorted(set(mine) & set(against)) if not number else sorted(mine)
        quiet = [rep for rep in rounds if rep not in loud]
        enough = len(quiet) >= LEAST
        return [mine[rep] / (number or against[rep]) for rep in (quiet if enough else rounds)], "" if enough else "*"

    def told(self) -> str:
        if self.error:
            return f"error: {self.error}"
        if len(self.ratios) < LEAST:
            return f"{len(self.ratios)} rounds: too few"
        return spread(self.ratios, self.mark)

    def told_of_floor(self) -> str:
        return spread(self.of_floor, self.floor_mark) if len(self.of_floor) >= LEAST else "–"

    def against(self) -> str:
        return f"{self.row.at_most:.3g} {self.row.unit}" if self.row.at_most else NAMES.get(self.best, "–")

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def floor_ratio(self) -> float | None:
        return statistics.median(self.of_floor) if len(self.of_floor) >= LEAST else None

    @property
    def at_floor(self) -> bool:
        """Returns `True` if gmp is close to its floor. A floor that gmp undercuts is none, and reaches nothing."""
        return self.floor_ratio is not None and 1 / OF_FLOOR <= self.floor_ratio <= OF_FLOOR

    def verdict(self) -> str:
        found, of_floor = interval(self.ratios), interval(self.of_floor)
        if not self.limit or not found:
            return "–"
        if found[1] <= self.limit:
            return "yes"
        if self.at_floor and of_floor and of_floor[1] <= OF_FLOOR:
            return "by its floor"
        missed = found[0] > self.limit and not (self.at_floor or (of_floor and of_floor[0] <= OF_FLOOR <= of_floor[1]))
        return "no" if missed else "not decided"

    def figure(self, peer: str) -> str:
        if peer not in self.of:
            return "failed" if self.failed[peer] else "never" if peer in self.seen else "–"
        values = self.of[peer].values()
        text = f"{number(self.medians[peer])} ({number(min(values))} .. {number(max(values))})"
        return text + (f", {self.failed[peer]} failed" if self.failed[peer] else "")


def pairs(data: dict) -> list[Pair]:
    is_calm, runs = Calm(data["runs"], data["disturbed"]), defaultdict(list)
    for run in data["runs"]:
        runs[run["run"], run["procs"]].append(run)
    return [Pair(row, procs, runs[key], is_calm) for row in SHAPES for procs in row.procs if (key := (row.run, procs)) in runs]


def summary(found: list[Pair]) -> str:
    """Returns how many shapes reach their goal, without the rows that have a goal of their own."""
    shapes = [pair for pair in found if pair.row.best == MOST_AT and len(pair.ratios) >= LEAST]
    if not shapes:
        return ""
    most = [pair for pair in shapes if pair.ratio <= MOST_AT]
    by_floor = [pair for pair in shapes if pair.ratio > MOST_AT and pair.at_floor]
    above = sorted((pair for pair in shapes if pair.ratio > NONE_ABOVE), key=lambda pair: pair.ratio, reverse=True)
    floors = sum(pair.floor_ratio is not None for pair in shapes)
    return (
        f"{len(most) + len(by_floor)} of {len(shapes)} are reached (four fifths are to be): {len(most)} take at most {MOST_AT} times the "
        f"best peer, and {len(by_floor)} others at most {OF_FLOOR} times their floor{named(by_floor)}. Floors were "
        f"measured for {floors}. Above {NONE_ABOVE} times the best peer: {len(above)}{named(above)}.\n"
    )


def named(found: list[Pair]) -> str:
    def one(pair: Pair) -> str:
        of_floor = f", {pair.floor_ratio:.2f} times its floor" if pair.floor_ratio is not None else ""
        return f"`{pair.row.name}` at P = {pair.procs} ({pair.ratio:.2f}{of_floor})"

    return f": {', '.join(map(one, found))}" if found else ""


def table(data: dict) -> str:
    found = pairs(data)
    text = f"# Shapes of real programs: gmp beside Go, tokio and may\n\n{head(data)}\n"
    text += (
        "Medians of the rounds (least .. most). The ratio is the median of gmp's figure over that of the peer with the least median, "
        "each in the same round; * where others used the machine, or its cores were moved, beside all rounds but a few. "
        "A limit counts as kept, or as missed, when the 95 % interval of that median lies wholly on one side. *To the floor* is gmp's "
        f"figure over that of the program without a runtime (threads, where the row has one), likewise; {OF_FLOOR} keeps a limit, too.\n\n"
    )
    peers = [peer for peer in PEERS if any(peer in pair.of for pair in found)]
    text += "| row | P | " + " | ".join(NAMES[peer] for peer in peers) + " | beside | ratio | limit | to the floor | kept |\n"
    text += "| --- " * (len(peers) + 7) + "|\n"
    for pair in found:
        middle = " | ".join(pair.figure(peer) for peer in peers)
        limit = f"{pair.limit:.3g}" if pair.limit else "–"
        start = f"| {pair.row.title}, {pair.row.unit} (`{pair.row.name}`) | {pair.procs} | {middle} | {pair.against()} "
        text += f"{start}| {pair.told()} | {limit} | {pair.told_of_floor()} | {pair.verdict()} |\n"
    return f"{text}\n{summary(found)}"
