"""What requests leave to the garbage collector, of our own."""

from __future__ import annotations

import gc

from protogate.testing.gateway import MemoryGateway


def garbage(gateway: MemoryGateway, ask: bytes, times: int = 5) -> set[str]:
    """Names of our types of which something refers to itself when a request is over."""
    gateway.ask(ask)
    gateway.advance(1)
    gc.collect()
    flags = gc.get_debug()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(times):
            gateway.ask(ask)
        gateway.advance(1)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__.startswith("protogate")}
