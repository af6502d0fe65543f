"""Draws lines over two logarithmic axes, as SVG."""

import math

from page import COLOURS, NAMES, escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 74, 96, 58, 50
STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.small{font-size:11px;fill:#555}.grid{stroke:#ddd}"
    ".minor{stroke:#f1f1f1}.axis{stroke:#555}.level{stroke:#c0392b;stroke-dasharray:2 3}.mark{fill:#c0392b;font-size:11px}"
)
# The dashes of a line, by the place of its number of Ps among all.
DASHES = ["", "7 4", "2 3"]


class Axis:
    """Whole powers of ten around the values, or of two if the sizes are powers of two."""

    def __init__(self, values: list[float], low: float, high: float, base: int = 10) -> None:
        self.base = base
        self.first = math.floor(math.log(min(values), base) + 1e-9)
        self.last = max(math.ceil(math.log(max(values), base) - 1e-9), self.first + 1)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        share = (math.log(value, self.base) - self.first) / (self.last - self.first)
        return self.low + share * (self.high - self.low)

    def ticks(self) -> list[float]:
        step = max(1, math.ceil((self.last - self.first) / 8))
        return [float(self.base) ** power for power in range(self.first, self.last + 1, step)]

    def minor(self) -> list[float]:
        if self.base != 10 or self.last - self.first > 4:
            return []
        return [times * 10.0**power for power in range(self.first, self.last) for times in range(2, 10)]


def told(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def plot(title: str, x_title: str, y_title: str, lines: dict[tuple[str, int], list[tuple[float, float]]], levels: list[tuple[float, str]],
        base: int) -> str:
    """Draws a line for each program and number of Ps. `levels` are the sizes at which gmp leaves a cache, with the cache's name."""
    points = [point for line in lines.values() for point in line]
    x = Axis([size for size, _ in points], LEFT, WIDTH - RIGHT, base)
    y = Axis([value for _, value in points], HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{LEFT}" y="20" class="title">{escape(title)}</text>']
    for value in y.minor():
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}" class="minor"/>')
    for value in y.ticks():
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y.at(value) + 4:.1f}" text-anchor="end" class="small">{told(value)}</text>')
    for value in x.ticks():
        parts.append(f'<line x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="grid"/>')
        parts.append(f'<text x="{x.at(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" class="small">{told(value)}</text>')
    inside = sorted((size, name) for size, name in levels if x.at(size) > LEFT and x.at(size) < WIDTH - RIGHT)
    for number, (size, name) in enumerate(inside):
        # Each name is a line lower than the last, so that neighbours do not overlap.
        row = TOP + 11 + 12 * (number % 3)
        parts.append(f'<line x1="{x.at(size):.1f}" x2="{x.at(size):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="level"/>')
        # The name is to the left of the line if there is no room to the right.
        aside, anchor = (-3, "end") if x.at(size) > WIDTH - RIGHT - 50 else (3, "start")
        parts.append(f'<text x="{x.at(size) + aside:.1f}" y="{row}" text-anchor="{anchor}" class="mark">{escape(name)}</text>')
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" class="axis"/>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{escape(y_title)}</text>')
    of_procs = sorted({procs for _, procs in lines})
    for number, ((peer, procs), line) in enumerate(lines.items()):
        dash = DASHES[of_procs.index(procs) % len(DASHES)]
        stroke = f'stroke="{COLOURS[peer]}" stroke-width="{2.5 if peer == "gmp" else 1.7}" stroke-dasharray="{dash}"'
        path = " ".join(f"{x.at(size):.1f},{y.at(value):.1f}" for size, value in line)
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        parts += [f'<circle cx="{x.at(size):.1f}" cy="{y.at(value):.1f}" r="2.5" fill="{COLOURS[peer]}"/>' for size, value in line]
        row = TOP + 8 + 18 * number
        parts.append(f'<line x1="{WIDTH - RIGHT + 8}" x2="{WIDTH - RIGHT + 34}" y1="{row}" y2="{row}" {stroke}/>')
        name = NAMES[peer] + (f", {procs} P" if procs else "")
        parts.append(f'<text x="{WIDTH - RIGHT + 38}" y="{row + 4}" class="small">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
