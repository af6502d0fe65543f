"""Writes the measurements of `run`: tables in Markdown, and bars."""

import statistics
from collections import Counter, defaultdict

from host import Calm
from rows import PEERS, ROWS, RUNTIMES, Row

NAMES = {"gmp": "gmp", "go": "Go", "tokio": "tokio", "may": "may", "threads": "threads"}


class Figures:
    """The runs of one row and one program at one number of processors."""

    def __init__(self, runs: list[dict], figure: str, is_calm: Calm) -> None:
        calm = [run for run in runs if is_calm(run)]
        self.disturbed = len(runs) - len(calm)
        # Disturbed runs count only if there are no others.
        used = calm or runs
        self.mark = "" if calm else "*"
        self.error = next((run["error"] for run in used if "error" in run), None)
        self.values = [run[figure] for run in used if run.get(figure) is not None]
        self.never = bool(used) and not self.values and not self.error

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


def collect(data: dict) -> dict[tuple[str, int, str], Figures]:
    is_calm = Calm(data["runs"], data["disturbed"])
    runs = defaultdict(list)
    for run in data["runs"]:
        runs[run["run"], run["procs"], run["peer"]].append(run)
    return {
        (row.name, procs, peer): Figures(found, row.figure, is_calm)
        for row in ROWS
        for (name, procs, peer), found in runs.items()
        if name == row.run
    }


def number(value: float | None) -> str:
    if value is None:
        return "never"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def goal(row: Row) -> str:
    if row.best:
        other = f", {row.of_row[0]:g} × {row.of_row[1]}" if row.of_row else ""
        later = f" / {row.best_from_two}" if row.best_from_two else ""
        return f"≤ {row.best}{later} × the best{other}"
    if row.of_threads:
        plus = f" + {row.plus:g} {row.unit}" if row.plus else ""
        times = f"{row.of_threads:g} × " if row.of_threads != 1 else ""
        return f"≤ {times}threads{plus}"
    return "–" if row.at_most is None else f"≤ {row.at_most:,g} {row.unit}"


def bound(row: Row, procs: int, figures: dict) -> float | None:
    """Returns the number that gmp must not exceed."""
    if row.at_most is not None:
        return row.at_most
    best = row.best_at(procs)
    if not (best or row.of_threads):
        return None
    others = ["threads"] if row.of_threads else [peer for peer in RUNTIMES if peer != "gmp"]
    found = [figures[key].median for peer in others if (key := (row.name, procs, peer)) in figures]
    found = [value for value in found if value is not None]
    limits = [min(found) * (best or row.of_threads) + row.plus] if found else []
    if row.of_row and (other := figures.get((row.of_row[1], procs, "gmp"))) and other.median is not None:
        limits.append(other.median * row.of_row[0])
    return min(limits, default=None)


def procs_of(row: Row, figures: dict) -> list[int]:
    return sorted({procs for name, procs, _ in figures if name == row.name})


def head(data: dict) -> str:
    machine, versions = data["machine"], data["versions"]
    named = {"gmp": "gmp", "rustc": "rustc", "go": "Go", "tokio": "tokio", "may": "may", "crossbeam": "crossbeam-channel", "rayon": "rayon"}
    of = ", ".join(f"{name} {versions[key]}" for key, name in named.items() if key in versions)
    return (
        f"{data['date']}: {machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}. {of}. "
        f"Medians of up to {data['reps']} runs, interleaved: a run beside which other programs used the machine, or its cores were moved, is left out; * "
        f"marks a figure for which there are only such runs. Less is better in every row.\n"
    )


def cells(row: Row, procs: list[int], figures: dict, peer: str) -> str:
    found = [figures.get((row.name, p, peer)) for p in procs]
    if not any(found):
        return "–"
    return " / ".join("–" if f is None else ("error" if f.error else number(f.median) + f.mark) for f in found)


def verdict(row: Row, procs: list[int], figures: dict) -> str:
    told = []
    for p in procs:
        mine, limit = figures.get((row.name, p, "gmp")), bound(row, p, figures)
        if mine is None or mine.median is None or limit is None:
            told.append("–")
        elif mine.median <= limit:
            told.append("yes")
        else:
            told.append(f"**{mine.median / limit:.2f} ×**" if limit else f"**{number(mine.median)}**")
    return told[0] if len(set(told)) == 1 else " / ".join(told)


def main_table(figures: dict, wanted: list[int], rows: list[Row]) -> str:
    lines = ["| workload | " + " | ".join(NAMES[peer] for peer in PEERS) + " | to reach | reached |", "| --- " * 8 + "|"]
    for row in rows:
        procs = [p for p in procs_of(row, figures) if p in wanted]
        if procs:
            middle = " | ".join(cells(row, procs, figures, peer) for peer in PEERS)
            lines.append(f"| {row.title}, {row.unit} | {middle} | {goal(row)} | {verdict(row, procs, figures)} |")
    return "\n".join(lines) + "\n"


def table(data: dict) -> str:
    figures = collect(data)
    text = f"# gmp beside Go, tokio, may and threads\n\n{head(data)}\n"
    text += (
        "Two numbers in a cell are one P and two; a single one is of one P for echo, and of two for what blocks and for what is idle. "
        "\"never\": not within the time limit. \"The best\" is the best of Go, tokio and may. In the last column, what is not "
        "reached stands as the factor by which it is missed.\n\n"
    )
    text += main_table(figures, [1, 2], ROWS)
    text += echo_table(data)
    more = sorted({procs for _, procs, _ in figures} - {1, 2})
    if more:
        keys = Counter((run["run"], run["peer"], run["procs"]) for run in data["runs"] if run["procs"] in more)
        times = max(keys.values())
        runs = "one run" if times == 1 else f"{times} runs"
        text += f"\n## More processors than cores\n\n{' / '.join(map(str, more))} processors, {runs} of each.\n\n"
        text += main_table(figures, more, ROWS)
    text += "\n## Every figure\n\nmedian (least .. most); d: runs beside which others used the machine, or its cores were moved, and which do not count "
    text += "as long as there are others.\n\n| row | P | program | figure | d |\n| --- | --- | --- | --- | --- |\n"
    for row in ROWS:
        for procs in procs_of(row, figures):
            for peer in PEERS:
                if found := figures.get((row.name, procs, peer)):
                    text += f"| {row.name} | {procs} | {NAMES[peer]} | {spread(row, found)} | {found.disturbed or ''} |\n"
    return text


def spread(row: Row, found: Figures) -> str:
    if found.error:
        return f"error: {found.error}"
    if found.never:
        return "never"
    return f"{number(found.median)} {row.unit} ({number(min(found.values))} .. {number(max(found.values))})"


def echo_table(data: dict) -> str:
    """Returns the further figures of the echo rows."""
    lines, is_calm = [], Calm(data["runs"], data["disturbed"])
    for row in [row for row in ROWS if row.connections and row.name == row.run and not row.load_options]:
        for peer in RUNTIMES:
            runs = [run for run in data["runs"] if (run["run"], run["peer"]) == (row.run, peer) and "p99" in run]
            calm = [run for run in runs if is_calm(run)] or runs
            if calm:
                rate, p50, p99 = (statistics.median(run[name] for run in calm) for name in ("rate", "p50", "p99"))
                lines.append(f"| {row.kind} | {row.connections:,} | {NAMES[peer]} | {rate:,.0f} | {p50:,.0f} | {p99:,.0f} |\n")
    if not lines:
        return ""
    head = "\nEcho, one processor, the load on the other core:\n\n"
    columns = "| | connections | | answers a second | p50, µs | p99, µs |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + columns + "".join(lines)


# The README's rows: the library's main purposes. The table always adds the row that misses its goal by most.
MISSION = ["spawn_join", "ping_pong", "select", "echo_64", "parked_bytes"]


def worst(figures: dict) -> tuple[float, Row, int]:
    """Returns the row of the whole page that misses its goal by most: the factor, the row, and the number of processors."""
    missed = []
    for row in ROWS:
        for procs in procs_of(row, figures):
            mine, limit = figures.get((row.name, procs, "gmp")), bound(row, procs, figures)
            if mine and mine.median is not None and limit:
                missed.append((mine.median / limit, row, procs))
    return max(missed, key=lambda found: found[0])


def readme_table(data: dict) -> str:
    figures = collect(data)
    ratio, row, procs = worst(figures)
    rows = [found for found in ROWS if found.name in [*MISSION, row.name]]
    told = f"The row of the whole page that misses its goal by most: {row.title}, {ratio:.2f} × at {'one P' if procs == 1 else f'{procs} Ps'}.\n"
    return f"{head(data)}\n{main_table(figures, [1, 2], rows)}\n{told}"


WIDTH, LEFT, RIGHT, BAR, LIMIT = 800, 60, 130, 11, 10.0
COLOURS = {"gmp": "#0b6e4f", "go": "#4aa3c7", "tokio": "#c98a3a", "may": "#9a7fb5", "threads": "#9aa0a6"}
SCALE = (WIDTH - LEFT - RIGHT) / LIMIT


def svg(data: dict) -> str:
    """Draws the time of each program as a multiple of gmp's, and gmp's goal, for each row and number of processors."""
    figures, parts, y = collect(data), [], 74
    for row in ROWS:
        shown = [p for p in procs_of(row, figures) if p in (1, 2) and (f := figures.get((row.name, p, "gmp"))) and f.median]
        if shown:
            parts.append(f'<text x="10" y="{y + 10}" class="row">{escape(row.title)}</text>')
            y += 17
        for procs in shown:
            mine, top, told = figures[row.name, procs, "gmp"].median, y, []
            parts.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">P = {procs}</text>')
            for peer in PEERS:
                found = figures.get((row.name, procs, peer))
                if found is None or found.error:
                    continue
                rectangle, text = bar(peer, found.median, mine, row.unit, y)
                parts.append(rectangle)
                told.append(text)
                y += BAR + 2
            if (limit := bound(row, procs, figures)) and limit / mine <= LIMIT:
                x = LEFT + limit / mine * SCALE
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 2}" y2="{y}" class="goal"/>')
            parts += told
            y += 6
        y += 8 if shown else 0
    grid = "".join(
        f'<line x1="{LEFT + at * SCALE}" x2="{LEFT + at * SCALE}" y1="64" y2="{y}" class="grid"/>'
        f'<text x="{LEFT + at * SCALE}" y="58" text-anchor="middle" class="small">{at} ×</text>'
        for at in (0, 1, 2, 4, 6, 8, 10)
    )
    legend = "".join(
        f'<rect x="{LEFT + 85 * i}" y="28" width="11" height="11" fill="{COLOURS[peer]}"/>'
        f'<text x="{LEFT + 16 + 85 * i}" y="38">{NAMES[peer]}</text>'
        for i, peer in enumerate(PEERS)
    )
    x = LEFT + 85 * len(PEERS)
    legend += f'<line x1="{x}" x2="{x}" y1="26" y2="41" class="goal"/><text x="{x + 8}" y="38">where gmp\'s bar should end, or before</text>'
    style = (
        "text{font:12px sans-serif;fill:#222}.row{font-weight:bold}.small{font-size:10px;fill:#555;stroke:#fff;stroke-width:3px;paint-order:stroke}.grid{stroke:#ddd}"
        ".goal{stroke:#c0392b;stroke-width:2}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" viewBox="0 0 {WIDTH} {y + 10}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="10" y="18">Multiples of what gmp takes; shorter is better</text>{grid}{"".join(parts)}{legend}</svg>\n'
    )


def bar(peer: str, value: float | None, mine: float, unit: str, y: int) -> tuple[str, str]:
    ratio = LIMIT if value is None else value / mine
    length = min(ratio, LIMIT) * SCALE
    told = "never" if value is None else f"{number(value)} {unit}" + (f" ({ratio:.0f} ×)" if ratio > LIMIT else "")
    return (
        f'<rect x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" fill="{COLOURS[peer]}"/>',
        f'<text x="{LEFT + length + 5:.1f}" y="{y + 9}" class="small">{told}</text>',
    )


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
