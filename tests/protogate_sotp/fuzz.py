"""
Coverage-guided fuzzing of what reads SOTP: an input that runs code in a new way is kept, and changed further.

    python tests/protogate_sotp/fuzz.py [--rounds 100000] [--seed 1] [--what frames|server|client]

Seeds are the vectors.  Whatever comes: nothing is raised but what the reader says of itself, no more than a bound is
held, and the same bytes in other pieces mean the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from sotp_ends import HELLO, VECTORS, End, frames
from twisted.internet.defer import Deferred

import protogate_sotp
from protogate.context import Limits
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate_sotp.fields import Bad
from protogate_sotp.frames import HEAD, Hello, Reader, frame
from protogate_sotp.heads import read_request, read_response, read_trailers

HERE = str(Path(protogate_sotp.__file__).parent)
SIZES = Hello(data=1 << 14, heads=1 << 14).sizes
LIMITS = Limits()
LONGEST = 4096
"""Bytes of an input."""
INTERESTING = [b"\0", b"\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xd5\x50\x01", b"\x00\x01"]


class Coverage:
    """Which steps from line to line have been taken in the package, C{new} since somebody looked."""

    def __init__(self) -> None:
        self.edges: set[tuple[Any, int, int]] = set()
        self.new = False

    def enter(self, frame: FrameType, event: str, argument: object) -> Any:
        """For sys.settrace."""
        code = frame.f_code
        if not code.co_filename.startswith(HERE):
            return None
        last = 0

        def line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            edge = (code, last, frame.f_lineno)
            if edge not in self.edges:
                self.edges.add(edge)
                self.new = True
            last = frame.f_lineno
            return line

        return line

    def run(self, function: Any, data: bytes) -> bool:
        """Whether that took a new step."""
        self.new = False
        before = sys.gettrace()  # of who measures the coverage of the tests
        sys.settrace(self.enter)
        try:
            function(data)
        finally:
            sys.settrace(before)
        return self.new


def mutated(dice: random.Random, corpus: list[bytes]) -> bytes:
    """One of the corpus, changed a little; mostly at frames' edges."""
    data = bytearray(dice.choice(corpus))
    for _ in range(1 << dice.randrange(4)):
        at, kind = dice.randrange(len(data) + 1), dice.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << dice.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = dice.randrange(256)
        elif kind == 2:
            del data[at : at + dice.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = dice.choice(INTERESTING)
        elif kind == 4:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            data[at:at] = other[start : start + dice.randrange(1, 60)]
        elif kind == 5:
            data[at : at + dice.randrange(9)] = dice.randbytes(dice.randrange(9))
        elif kind == 6:
            data += dice.choice(corpus)
        else:
            data[at:at] = frame(
                dice.randrange(12), dice.randrange(4), dice.randrange(6), dice.randbytes(dice.randrange(20))
            )
    return bytes(data[:LONGEST])


def read_frames(data: bytes) -> None:
    """The reader alone, whole and in pieces; then each payload as each of the things it might be."""
    whole = Reader(SIZES)
    out = whole.feed(data)
    parts, again, half = Reader(SIZES), [], len(data) // 2
    for piece in (data[:half], data[half : half + 1], data[half + 1 :]):
        if parts.fault is None:
            again += parts.feed(piece)
    assert (whole.fault is None) is (parts.fault is None)
    assert joined(out) == joined(again)
    assert whole.waiting < HEAD + max(SIZES)
    for _, _, _, payload in out:
        read_request(payload, LIMITS)
        for read in (read_response, read_trailers):
            with suppress(Bad):
                read(payload)


def joined(frames: list[Any]) -> list[Any]:
    """With the pieces of a DATA in one: its last piece alone has the flags."""
    out: list[Any] = []
    for kind, flags, stream, payload in frames:
        if out and kind == 3 and out[-1][0] == 3 and out[-1][2] == stream and not out[-1][1]:
            out[-1] = (kind, flags, stream, out[-1][3] + payload)
        else:
            out.append((kind, flags, stream, payload))
    return out


def serve(data: bytes) -> None:
    """A server that has read a HELLO."""
    end = End(limits=LIMITS)

    def answer(request: Request) -> Any:
        if request.malformed is not None:
            return Response(request.malformed.status)
        if request.body is not None and len(request.headers) % 2:
            Taker(request.body)
            return Response(200, [], Giver([b"x" * 100], close=False).body)
        return Response(200) if request.body is None else Deferred()

    end.app.answer = answer
    _look_over(end, data)


def ask(data: bytes) -> None:
    """A client that has asked twice."""
    end = End("client", limits=LIMITS)
    for body in (None, Giver([b"x"], close=False).body):
        answer: Deferred[Response] = end.end.handle(Request(b"POST", b"/7/x", body=body))
        answer.addCallbacks(lambda response: Taker(response.body), lambda failure: None)
    _look_over(end, data)


def _look_over(end: End, data: bytes) -> None:
    end.feed(HELLO)
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        if piece:
            end.end.dataReceived(piece)
    frames(end.wire.take())
    for stream in end.end.streams.values():
        assert sum(map(len, getattr(stream.incoming, "held", None) or ())) <= len(data)
    end.wire.lost(end.end, ConnectionError())
    assert end.end.busy == 0
    end.app.check()


KINDS = {"frames": read_frames, "server": serve, "client": ask}


def seeds() -> list[bytes]:
    """The vectors: frames, heads within frames, and the bytes of faults."""
    made = [bytes.fromhex(each["hex"]) for each in VECTORS["frames"]]
    for kind, group in ((1, "requests"), (1, "bad requests"), (2, "responses"), (2, "bad responses"), (4, "trailers")):
        made += [
            frame(kind, at % 2 if kind != 4 else 0, 1, bytes.fromhex(each["hex"]))
            for at, each in enumerate(VECTORS[group])
        ]
    made += [bytes.fromhex(each["hex"]).removeprefix(HELLO) for each in VECTORS["faults"]]
    return [each for each in made if each]


def fuzz(what: str, rounds: int, seed: int) -> tuple[int, int, list[bytes]]:
    """
    (edges that the seeds took, edges in the end, corpus).

    @raise Exception: whatever the code raised; the input is in the message.
    """
    dice, coverage, corpus = random.Random(seed), Coverage(), []
    for data in seeds():
        if coverage.run(KINDS[what], data):
            corpus.append(data)
    first = len(coverage.edges)
    for _ in range(rounds):
        data = mutated(dice, corpus)
        try:
            new = coverage.run(KINDS[what], data)
        except BaseException as error:
            error.add_note(f"input: {data.hex()}")
            raise
        if new:
            corpus.append(data)
    return first, len(coverage.edges), corpus


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", choices=KINDS, default="frames")
    options = parser.parse_args()
    begun = time.monotonic()
    first, last, corpus = fuzz(options.what, options.rounds, options.seed)
    spent = time.monotonic() - begun
    print(f"{options.what}: {options.rounds} inputs in {spent:.0f} s, {first} → {last} edges, {len(corpus)} kept")


if __name__ == "__main__":
    main()
