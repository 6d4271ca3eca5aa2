"""
Instructions, counted by callgrind: a bench runs itself again under it, and says there what is to be counted.

    with counted("get"):        in the child; everything else is left out
        ...
    totals([__file__, "--child"])      in the parent: {"get": …}

Rules
- The same on each run within half a per cent, whatever else the machine does.
- What the switching itself takes is counted once, as nothing, and taken off.
- The collector does not run meanwhile: it would fall into whatever is counted then.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from processes import binary

NOTHING: Final = "nothing"
_trigger: Final = re.compile(r"^desc: Trigger: .* (\S+)$", re.MULTILINE)
_total: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def control(*arguments: str) -> None:
    """Tell the callgrind that runs us."""
    subprocess.run(["callgrind_control", *arguments, str(os.getpid())], check=True, capture_output=True, timeout=120)


@contextmanager
def counted(label: str) -> Iterator[None]:
    """
    In the child: count what happens inside.

    @param label: of the profile, without white space.
    """
    gc.disable()
    control("--instr=on")
    control("--dump=begin")
    control(f"--dump={NOTHING}")
    yield
    control(f"--dump={label}")
    control("--instr=off")
    gc.enable()


def valgrind(tool: str, arguments: Sequence[str], *options: str, seconds: float = 900.0, **more: str) -> str:
    """Run a program of Python under it; returns what it says at the end.  @param more: variables of its environment."""
    program = binary("valgrind")
    if program is None:
        raise SystemExit("valgrind is missing (Debian: apt-get install valgrind)")
    done = subprocess.run(
        [program, f"--tool={tool}", *options, sys.executable, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0", **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode:
        raise SystemExit(f"{arguments} under {tool}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stderr


def totals(arguments: Sequence[str], keep: str = "", **more: str) -> dict[str, int]:
    """
    Run a program of Python, and count.

    @param keep: where its last profile goes, for callgrind_annotate.
    @return: instructions by label.
    """
    with tempfile.TemporaryDirectory(prefix="protogate-callgrind-") as folder:
        out = Path(folder, "out")
        valgrind("callgrind", arguments, "--instr-atstart=no", f"--callgrind-out-file={out}", **more)
        found: dict[str, int] = {}
        for path in Path(folder).iterdir():
            text = path.read_text()
            trigger, total = _trigger.search(text), _total.search(text)
            if trigger and total:
                found[trigger[1]] = int(total[1])
                if keep and trigger[1] not in (NOTHING, "begin"):
                    Path(keep).write_text(text)
    nothing = found.pop(NOTHING)
    found.pop("begin", None)
    return {label: total - nothing for label, total in found.items()}
