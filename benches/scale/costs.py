"""The costs of README.md, those before the first goroutine runs, beside tokio's."""

import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from host import BIN, HERE, Calm
from page import number
from rows import Row

PROCESSES, SMOKE_PROCESSES = 25, 3
ALL = ["gmp", "gmp_plain", "tokio", "tokio_more"]
NAMES = {"gmp": "gmp", "gmp_plain": "gmp, without default features", "tokio": "tokio, `rt-multi-thread`", "tokio_more": "tokio, with `net`, `time`, .."}
RATIOS = [("gmp", "tokio"), ("gmp_plain", "tokio"), ("gmp", "tokio_more")]
# The name, the run, its figure, the title, the unit, and the goal as a multiple of tokio's figure.
COSTS = [
    ("start_stop", "start_stop", "value", "start + first spawn + stop", "µs", 0.7),
    ("size", "compile", "bytes", "the stripped program", "KiB", 1.2),
    ("compile", "compile", "value", "cold build, wall time", "s", 0.5),
    ("compile", "compile", "cpu", "cold build, CPU time", "s", None),
]


def hello(peer: str) -> list[str]:
    """Returns the package and features that cargo builds. The two programs of a runtime are one package with other features."""
    options = {"gmp_plain": ["--no-default-features"], "tokio_more": ["--features", "more"]}
    return ["--package", f"hello-{package(peer)}", *options.get(peer, [])]


def package(peer: str) -> str:
    return peer.split("_")[0]


def program(peer: str) -> Path:
    return BIN / f"hello-{peer}"


def cargo(peer: str, target: str, *options: str) -> str:
    """Builds the program in this folder. Returns the error, or an empty text."""
    command = ["cargo", "build", "--release", "--locked", "--target-dir", target, *hello(peer), *options]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return done.stderr[-2000:] if done.returncode else ""


def build(peers: list[str]) -> None:
    for peer in ("tokio_more", "tokio", "gmp_plain", "gmp"):
        if package(peer) in peers:
            if refused := cargo(peer, str(HERE / "target")):
                raise SystemExit(refused)
            if package(peer) != peer:
                shutil.copy(program(package(peer)), program(peer))


def costs(only: str, peers: list[str]) -> list[Row]:
    chosen = [peer for peer in ALL if package(peer) in peers]
    found = [Row("start_stop", "start + first spawn + stop", "µs", chosen, procs=(1, 2)), Row("compile", "cold build", "s", chosen, procs=(1,))]
    return [row for row in found if re.search(only, row.name) or (row.name == "compile" and re.search(only, "size"))]


def start_stop(peer: str, procs: int, processes: int = PROCESSES) -> dict:
    took = []
    for _ in range(processes):
        done = subprocess.run([str(program(peer)), str(procs)], capture_output=True, text=True, timeout=20)
        told = re.fullmatch(r"5050 (\d+)\n", done.stdout)
        if done.returncode != 0 or not told:
            return {"error": (done.stderr.strip() or f"said {done.stdout!r}").splitlines()[-1]}
        took.append(int(told[1]) / 1e3)
    return {"value": statistics.median(took), "least": min(took), "most": max(took)}


def compile_cold(peer: str) -> dict:
    with tempfile.TemporaryDirectory() as target:
        before, start = cpu_of_children(), time.monotonic()
        refused = cargo(peer, target, "--offline", "--jobs=2", "--config=profile.release.debug=false", "--config=profile.release.strip=true")
        took, used = time.monotonic() - start, cpu_of_children() - before
        if refused:
            return {"error": refused.strip().splitlines()[-1]}
        size = (Path(target) / "release" / f"hello-{package(peer)}").stat().st_size
    return {"value": took, "cpu": used, "bytes": size / 1024}


def cpu_of_children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_cost(row: Row, peer: str, procs: int) -> dict:
    return start_stop(peer, procs) if row.name == "start_stop" else compile_cold(peer)


def page(data: dict, head: str) -> str:
    text = f"# What is paid before anything runs\n\n{head}\nMedians (least .. most); * where others used the machine, or its cores were moved, beside all runs.\n\n"
    text += f"| | P | {' | '.join(NAMES[peer] for peer in ALL)} | {' | '.join(f'`{of}` × `{beside}`' for of, beside in RATIOS)} | goal |\n{'| --- ' * (len(ALL) + len(RATIOS) + 3)}|\n"
    is_calm = Calm(data["runs"], data["disturbed"])
    for _, run_of, figure, title, unit, goal in COSTS:
        for procs in sorted({run["procs"] for run in data["runs"] if run["row"] == run_of}):
            told, middle = [], {}
            for peer in ALL:
                runs = [run for run in data["runs"] if (run["row"], run["peer"], run["procs"]) == (run_of, peer, procs)]
                calm = [run for run in runs if is_calm(run)]
                values = [run[figure] for run in calm or runs if figure in run]
                if not values:
                    told.append(next((f"error: {run['error']}" for run in runs if "error" in run), "–"))
                    continue
                middle[peer] = statistics.median(values)
                mark = "" if calm or figure == "bytes" else "*"
                told.append(f"{number(middle[peer])}{mark} ({number(min(values))} .. {number(max(values))})")
            ratios = [f"{middle[of] / middle[beside]:.2f}" if of in middle and beside in middle else "–" for of, beside in RATIOS]
            of = procs if run_of == "start_stop" else "–"
            text += f"| {title}, {unit} | {of} | {' | '.join(told)} | {' | '.join(ratios)} | {f'≤ {goal}' if goal else '–'} |\n"
    return text
