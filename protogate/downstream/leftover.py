"""
What a gateway that was killed leaves of a UNIX socket: its file, and Twisted's lock, a link C{PATH.lock} to its id.

Twisted takes both away where no process has that id any more.  In a container each gateway has the same one, mostly 1:
the lock of the one before looks like a lock of its own, and the port could never be opened again.

Rules
- Only a lock with our own id is looked at, and only where nobody listens on the socket.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def clear(path: str) -> None:
    """Take away what is left there of a process that had our id before us; does nothing where nothing is."""
    lock = f"{path}.lock"
    with suppress(OSError):
        if os.readlink(lock) != str(os.getpid()) or _listened(path):
            return
        os.unlink(lock)
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def _listened(path: str) -> bool:
    """Whether somebody listens, or may do so, on that socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # its queue is full, say
            return True
    return True
