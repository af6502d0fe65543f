#!/usr/bin/env python3
"""Makes a crate of the files in docs/models.md, outside of the workspace, and runs the commands of that document.

The only change is the path of gmp. Fails when a command fails, when the compiler warns, or when no model has run.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = ROOT / "target/outside/mailbox"
text = (ROOT / "docs/models.md").read_text()

# The first line of each block names its file.
files = re.findall(r"^```(?:toml|rust,ignore)\n(?:#|//) (\S+)\n(.*?)^```$", text, re.M | re.S)
commands = re.search(r"^## Commands$.*?^```sh\n(.*?)^```$", text, re.M | re.S)[1].splitlines()
assert [name for name, _ in files] == ["Cargo.toml", "src/lib.rs", "tests/loom_answer.rs"], files
assert len(commands) == 2, commands
for name, content in files:
    if name == "Cargo.toml":
        here = content.replace('path = "../gmp/runtime"', f'path = "{ROOT}/runtime"')
        assert here != content, "the path of gmp has changed"
        # Cargo looks for a workspace in the folders above, which are the repository's.
        content = here + "\n[workspace]\n"
    path = CRATE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # An unchanged file is not written, so that cargo does not compile it again.
    if not path.exists() or path.read_text() != content:
        path.write_text(content)

for command, expected in zip(commands, ["what_is_published_is_there ... ok", "model an_owner_that_waits_hears_the_answer"]):
    env = {name: value for name, value in os.environ.items() if name not in ("RUSTFLAGS", "CARGO_TARGET_DIR")}
    ran = subprocess.run(command, shell=True, cwd=CRATE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"$ {command}\n{ran.stdout}")
    own_warning = re.search(r"^warning: (?!unused manifest)", ran.stdout, re.M)
    if ran.returncode != 0 or expected not in ran.stdout or own_warning:
        sys.exit(f"failed: {command}: expected {expected!r}, no warning, status 0 and not {ran.returncode}")
