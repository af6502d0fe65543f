"""Goroutines for gdb, in a process or in a core file.

    (gdb) source tools/gmp-gdb.py
    (gdb) info goroutines
    (gdb) goroutine 7 bt
    (gdb) goroutine all bt

`goroutine ID COMMAND` runs any command that looks at frames (`bt`, `frame 3`, `info locals`) on the stack of a goroutine that
does not run. Frame 0 is the selected thread's own; the goroutine's frames are its callers, as long as the command lasts. The
script changes nothing in the process.

runtime/src/host/native/debugger.rs describes the data that this script reads. Works on x86-64, with the library's own context
switch.
"""

import re

import gdb
from gdb.unwinder import Unwinder, register_unwinder

VERSION = 2
FIELDS = (
    "version chunks chunks_len gs_in_a_chunk size_of_g word id name reason stack_top sp reasons reasons_len".split()
)
STATUSES = {1: "runnable", 2: "running", 3: "waiting"}


def words(address, count=1):
    memory = gdb.selected_inferior().read_memory(address, 8 * count).tobytes()
    return [int.from_bytes(memory[at : at + 8], "little") for at in range(0, 8 * count, 8)]


def text(address, length):
    return gdb.selected_inferior().read_memory(address, length).tobytes().decode(errors="replace")


def where(name):
    try:
        return int(gdb.parse_and_eval(f"(unsigned long)&'{name}'"))
    except gdb.error:
        # Without debug information the symbol ends with a hash.
        found = re.search(rf"^(0x[0-9a-f]+) +{name}", gdb.execute(f"info variables {name}", to_string=True), re.M)
        if not found:
            raise gdb.GdbError("no gmp in this program, or no symbols")
        return int(found[1], 16)


class Goroutine:
    def __init__(self, g, table):
        self.id = words(g + table["id"])[0]
        self.status = words(g + table["word"])[0] & 7
        self.sp = None
        if self.status != 2 and table["sp"] < 1 << 63 and words(g + table["stack_top"])[0]:
            self.sp = words(g + table["sp"])[0]
        arc = words(g + table["name"])[0]
        # The text is behind the two counts of the Arc.
        self.name = text(*words(arc + 16, 2)) if arc else None
        self.reason = words(g + table["reason"])[0] & 0xFF
        if self.reason < table["reasons_len"]:
            self.reason = text(*words(table["reasons"] + 16 * self.reason, 2))

    def __str__(self):
        name = f" '{self.name}'" if self.name else ""
        reason = f", {self.reason}" if self.status == 3 else ""
        return f"goroutine {self.id}{name} [{STATUSES[self.status]}{reason}]"


def goroutines():
    """Returns the goroutines that have not ended, oldest first."""
    at = where("gmp::host::native::debugger::TABLE")
    table = dict(zip(FIELDS, words(at, len(FIELDS))))
    if table["version"] != VERSION:
        raise gdb.GdbError(f"the program's table has version {table['version']}, this script reads {VERSION}")
    chunks = words(table["chunks"], 2 * table["chunks_len"])[::2] if table["chunks_len"] else []
    gs = [first + n * table["size_of_g"] for first in chunks for n in range(table["gs_in_a_chunk"])]
    live = [Goroutine(g, table) for g in gs if words(g + table["word"])[0] & 7 in STATUSES]
    return sorted(live, key=lambda g: g.id)


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Jump(Unwinder):
    """While `sp` is set, the caller of the innermost frame is the frame that was saved there."""

    def __init__(self):
        super().__init__("gmp")
        self.sp = self.innermost = None

    def __call__(self, pending):
        rsp = pending.read_register("rsp")
        if self.sp is None or int(rsp) != self.innermost:
            return None
        # In the order in which `suspend` has pushed them: the label to jump to, rbx, rbp.
        label, rbx, rbp = words(self.sp, 3)
        info = pending.create_unwind_info(FrameId(gdb.Value(self.sp).cast(rsp.type), pending.read_register("rip")))
        for register, value in (("rip", label), ("rbx", rbx), ("rbp", rbp), ("rsp", self.sp + 24)):
            info.add_saved_register(register, gdb.Value(value).cast(pending.read_register(register).type))
        return info


JUMP = Jump()
register_unwinder(None, JUMP, replace=True)


def on_stack(g, command):
    JUMP.innermost, JUMP.sp = int(gdb.newest_frame().read_register("rsp")), g.sp
    gdb.invalidate_cached_frames()
    try:
        gdb.execute(command)
    finally:
        JUMP.sp = None
        gdb.invalidate_cached_frames()


class InfoGoroutines(gdb.Command):
    """The goroutines that have not ended: id, name, status, and what they wait for."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STACK)

    def invoke(self, _arg, _from_tty):
        for g in goroutines():
            print(g)


class OnGoroutine(gdb.Command):
    """goroutine ID COMMAND, goroutine all COMMAND: runs a command on the stack of a goroutine that does not run."""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, arg, _from_tty):
        which, _, command = arg.partition(" ")
        if not command:
            raise gdb.GdbError("goroutine ID COMMAND, for example: goroutine 7 bt")
        chosen = [g for g in goroutines() if which in ("all", str(g.id))]
        if not chosen:
            raise gdb.GdbError(f"no goroutine {which}")
        for g in chosen:
            print(g)
            if g.sp is not None:
                on_stack(g, command)
            elif g.status == 2:
                print("it runs, on a thread: thread apply all bt")
            else:
                print("it has no stack that can be shown")


InfoGoroutines()
OnGoroutine()
