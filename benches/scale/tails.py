"""The cells of README.md, "Tails": a server in one process; its probes, and the load that keeps it busy, in others."""

import json
import re
import statistics
import subprocess
import time
from dataclasses import dataclass

from host import BIN, Calm, cpus_of_server, last_cpu
from page import NAMES, number
from rows import Row

ALL = ["gmp", "go", "tokio"]
CONNECTIONS, EVERY, BUSY = 64, 100, 1000
# Seconds beyond the time in which the probes are sent.
LONGER = 20
LIMIT = 1.1


@dataclass(frozen=True)
class Cell(Row):
    probes: int = 0


CELLS = {
    "alone": "nothing",
    "compute": "100 that compute for 100 µs",
    "storm": "a storm of spawns",
    "timers": "10,000 timers a second",
    "connections": "1,000 busy connections",
    "hog": "a hog",
    "blocking": "a blocking call",
    "blocking_marked": "a blocking call, marked",
}


def cells(only: str, probes: int) -> list[Cell]:
    return [Cell(name, f"beside {title}", "µs", ALL, workload=f"tail_{name}", procs=(1, 2), probes=probes)
        for name, title in CELLS.items() if re.search(only, name)]


def load(address: str, server: int, connections: int, *options: str) -> subprocess.Popen:
    command = ["taskset", "-c", last_cpu(), str(BIN / "peer-load"), "--to", f"tcp:{address}", "--server", str(server)]
    command += ["--connections", str(connections), "--seconds", "120", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_cell(cell: Cell, peer: str, procs: int) -> dict:
    command = ["taskset", "-c", cpus_of_server(procs), str(BIN / f"peer-{peer}"), cell.run, "--procs", str(procs), "--n", str(cell.probes)]
    started = [server := subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
    try:
        ports = server.stdout.readline().split()
        if len(ports) != 2:
            return {"error": "the server died before it listened"}
        if cell.name == "connections":
            started.append(load(ports[1], server.pid, BUSY))
            time.sleep(1)
            if started[1].poll() is not None:
                return {"error": "the load of the connections ended before the probes began"}
        started.append(load(ports[0], server.pid, CONNECTIONS, "--every", str(EVERY), "--messages", str(cell.probes)))
        told, refused = server.communicate(timeout=cell.probes * EVERY / 1e6 + LONGER)
    except subprocess.TimeoutExpired:
        return {"value": None}
    finally:
        for process in started:
            process.kill()
            process.wait()
    if server.returncode != 0:
        return {"error": (refused.strip() or "died").splitlines()[-1]}
    found = json.loads(told)
    if found["probes"] != (expected := cell.probes // CONNECTIONS * CONNECTIONS):
        return {"error": f"{found['probes']:.0f} probes of {expected}"}
    return found


def page(data: dict, head: str) -> str:
    text = f"# Tails: from ready to run\n\n{head}\n"
    probes = data["probes"] // CONNECTIONS * CONNECTIONS
    text += (
        f"µs: p50 / p99 / p99.9 of {probes:,} probes a run, each the median of the runs; those beside which others used the machine, or its cores were moved, count "
        f"where there are no others, with *. The ratio is gmp's p99.9 over the best one's of the others, and is to be at most {LIMIT}. "
        "never: not all probes were read in time.\n\n"
    )
    text += f"| beside | P | {' | '.join(NAMES[peer] for peer in ALL)} | ratio | kept |\n{'| --- ' * (len(ALL) + 4)}|\n"
    is_calm = Calm(data["runs"], data["disturbed"])
    for name, title in CELLS.items():
        for procs in sorted({run["procs"] for run in data["runs"] if run["row"] == name}):
            told, tails = [], {}
            for peer in ALL:
                runs = [run for run in data["runs"] if (run["row"], run["peer"], run["procs"]) == (name, peer, procs)]
                text_of, tail = cell_of(runs, is_calm)
                told.append(text_of)
                if tail is not None:
                    tails[peer] = tail
            best = min((tail for peer, tail in tails.items() if peer != "gmp"), default=None)
            ratio = tails["gmp"] / best if best and "gmp" in tails else None
            verdict = "–" if ratio is None else "yes" if ratio <= LIMIT else "**no**"
            text += f"| {title} (`{name}`) | {procs} | {' | '.join(told)} | {'–' if ratio is None else f'{ratio:.2f}'} | {verdict} |\n"
    return text


def cell_of(runs: list[dict], is_calm: Calm) -> tuple[str, float | None]:
    if not runs:
        return "–", None
    if error := next((run["error"] for run in runs if "error" in run), None):
        return f"error: {error}", None
    calm = [run for run in runs if is_calm(run)]
    used = calm or runs
    # A run that never ended is longer than any other.
    known = [run for run in used if run["value"] is not None]
    if 2 * len(known) <= len(used):
        return "never", None
    middle = {figure: statistics.median(run[figure] for run in known) for figure in ("p50", "p99", "value")}
    return " / ".join(number(value) for value in middle.values()) + ("" if calm else "*"), middle["value"]
