"""
Makes docs/http2-conformance.md from the tables of cases.

    python tests/conformance/h2page.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from h2case import Case
from h2client_cases import client
from h2differs import DIFFERS, REASONS
from h2server_cases import server
from h2shared import SHARED

PAGE = Path(__file__).parents[2] / "docs" / "http2-conformance.md"
ROLES = {"server": SHARED[False].cases | server.cases, "client": SHARED[True].cases | client.cases}
"""The cases of each role, by name."""
EVERY = [(role, case) for role, cases in ROLES.items() for case in cases.values()]
HEAD = """\
# What HTTP/2 is held to

<!-- made by tests/conformance/h2page.py: change the tables there -->

The suite in `tests/conformance` plays {count} rules of RFC 9113 (HTTP/2), RFC 7541 (HPACK), RFC 8441 and, where these
lean on it, RFC 9110 against the codec, frame by frame: {servers} to its server, {clients} to its client, each with both
engines, whole and cut into single bytes. A peer made of raw bytes plays the other end; protogate's own code never does.
Whatever the rule at hand, the peer also looks at all that protogate sends: order and size of frames, states of streams,
windows, compression, fields.

Each rule expects what the text of the RFC asks for:

- *closed CODE*: a connection error; GOAWAY with that code, then the end of the connection.
- *reset CODE*: a stream error; RST_STREAM with that code. Everything else on the connection goes on.
- *answer STATUS*: the request is answered; a client takes the response.
- *refused*: the application hears that there is no response; no frame may follow, since the stream has ended both ways.
- *open*: nothing happens, and the connection goes on.

Wherever the connection goes on, another exchange is tried on it. A malformed message is never handed on as a good one.

## Differences

In {differing} of {played} an engine does what another paragraph allows instead. The column *differs* says which engine,
and what is seen; a letter says why:

"""
TABLE = """
## {title}

| section | what is asked for | expected | differs |
|---|---|---|---|
"""
LETTERS = dict(zip(REASONS, "abc", strict=True))


def page() -> str:
    """The whole page."""
    differing = sum(len(engines) for engines in DIFFERS.values())
    parts = [
        HEAD.format(
            count=len(EVERY),
            servers=len(ROLES["server"]),
            clients=len(ROLES["client"]),
            differing=differing,
            played=2 * len(EVERY),
        )
    ]
    parts += [f"- *{letter}*: {why}\n" for why, letter in LETTERS.items()]
    for role, title in (("server", "A server"), ("client", "A client")):
        parts.append(TABLE.format(title=title))
        parts += rows(role, ROLES[role].values())
    return "".join(parts)


def rows(role: str, cases: Iterable[Case]) -> list[str]:
    """One row for all cases that ask for the same, with the same to say."""
    counts: dict[str, int] = {}
    for case in sorted(cases, key=order):
        section = case.section if case.section[:4] in ("7541", "8441") else f"9113 {case.section}"
        differs = "; ".join(
            f"{engine}: {seen} ({LETTERS[why]})" for engine, (seen, why) in DIFFERS.get((role, case.name), {}).items()
        )
        row = f"| {section} | {case.must} | {' or '.join(case.expect)} | {differs} |\n"
        counts[row] = counts.get(row, 0) + 1
    return [row if count == 1 else row.replace(" | ", f" | ({count} ×) ", 1) for row, count in counts.items()]


def order(case: Case) -> tuple[int, list[int]]:
    """By RFC, then by section."""
    document, _, rest = case.section.rpartition(" ")
    numbers = [int(n) if n.isdigit() else ord(n) for n in rest.split(".")]
    return int(document or 0), numbers


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
