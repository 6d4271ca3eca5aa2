"""Both ends of a gateway do at random what they may, and what not: nothing is left behind, no window is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from two import BOTH, CANCEL, Asked, Client, Two

from h2frames import FRAME, TABLE, WINDOW, data, fields, headers, ping, priority, req, res, rst, settings, window

pytestmark = pytest.mark.parametrize("engine", BOTH)
SEEDS, STEPS = 12, 250
TOLD = {"connectionWindow": "128KiB", "streams": 12, "resets": 1_000_000}


class Storm:
    """One of them, by its seed."""

    def __init__(self, two: Two, seed: int, faults: bool) -> None:
        self.two, self.chance, self.faults = two, random.Random(seed), faults
        self.clients: list[Client] = []
        self.next: dict[Client, int] = {}
        self.sending: dict[tuple[Client, int], bool] = {}  # streams whose client has not ended
        self.log: list[str] = []

    def client(self) -> Client:
        """One that is connected."""
        self.clients = [client for client in self.clients if not client.peer.closed]
        if len(self.clients) < 2:
            client = self.two.client({WINDOW: self.chance.choice((0, 100, 65535, 1 << 20))})
            self.clients.append(client)
            self.next[client] = 1
        return self.chance.choice(self.clients)

    # -- what a client does

    def ask(self) -> None:
        """A request, right or wrong."""
        client, chance = self.client(), self.chance
        number = self.next[client]
        self.next[client] += 2
        more, end = [], chance.random() < 0.5
        if not end and chance.random() < 0.3:
            more.append((b"content-length", b"%d" % chance.choice((0, 5, 5000))))
        if self.faults and chance.random() < 0.1:
            more.append(chance.choice([(b"X-A", b"1"), (b"connection", b"close"), (b"x-a", b" b"), (b"te", b"gzip")]))
        client.write(req(number, b"/a", b"GET" if end else b"POST", more, end))
        if not end:
            self.sending[client, number] = True

    def send(self) -> None:
        """Content, trailers, the end."""
        found = [key for key, open_ in self.sending.items() if open_ and not key[0].peer.closed]
        if not found:
            return
        client, number = self.chance.choice(found)
        if number in client.resets:
            self.sending[client, number] = False
            return
        room = min(client.room(), self.stream_room(client, number))
        size = min(self.chance.choice((0, 1, 500, 5000, 16_000)), max(room - 300, 0))
        end = self.chance.random() < 0.3
        if self.chance.random() < 0.1:
            client.write(headers(number, fields([(b"x-sum", b"1")])))
            end = True
        else:
            pad = self.chance.choice((None, 0, 200)) if room > size + 300 else None
            client.write(data(number, bytes(size), end, pad if size < 16_000 else None))
        if end:
            self.sending[client, number] = False

    @staticmethod
    def stream_room(client: Client, number: int) -> int:
        """What the gateway takes on a stream."""
        return 65535 + client.peer.credit[number] - client.peer.spent[number]

    def give_up(self) -> None:
        """RST_STREAM, of any stream that there was."""
        client = self.client()
        if self.next[client] > 1:
            number = self.chance.randrange(1, self.next[client], 2)
            self.sending[client, number] = False
            client.write(rst(number, self.chance.choice((0, 8, 2))))

    def open(self) -> None:
        """Windows, on either side."""
        chance = self.chance
        if chance.random() < 0.5:
            client = self.client()
            if self.next[client] > 1:
                client.write(
                    window(chance.choice((0, chance.randrange(1, self.next[client], 2))), chance.randrange(1, 60_000))
                )
        elif self.two.asked:
            asked = chance.choice(self.two.asked)
            if not asked.end.peer.closed:
                asked.end.write(window(chance.choice((0, asked.stream)), chance.randrange(1, 60_000)))

    def chatter(self) -> None:
        """What means little."""
        client = self.client()
        said = self.chance.choice(
            (
                ping(),
                priority(self.next[client]),
                settings((WINDOW, self.chance.randrange(70_000))),
                settings((TABLE, 0)),
                settings((TABLE, 4096)),
                settings((FRAME, 20_000)),
            )
        )
        client.write(said)

    # -- what an origin does

    def asked(self) -> Asked | None:
        """A request that is open."""
        found = [
            asked
            for asked in self.two.asked
            if asked.reset is None and not asked.end.peer.closed and (asked.end, asked.stream) not in self.ended
        ]
        return self.chance.choice(found) if found else None

    ended: set[tuple[Any, int]]
    begun: set[tuple[Any, int]]

    def answer(self) -> None:
        """The next part of an answer."""
        asked, chance = self.asked(), self.chance
        if asked is None:
            return
        key, number = (asked.end, asked.stream), asked.stream
        if key not in self.begun:
            self.begun.add(key)
            if chance.random() < 0.2:
                asked.end.write(res(number, b"103", end=False))
            end = chance.random() < 0.2
            asked.end.write(res(number, chance.choice((b"200", b"404", b"204" if end else b"200")), end=end))
            if end:
                self.ended.add(key)
            return
        peer = asked.end.peer
        room = min(65535 + peer.credit[0] - sum(peer.spent.values()), 65535 + peer.credit[number] - peer.spent[number])
        size = min(chance.choice((0, 1, 3000, 16_000)), max(room - 300, 0))
        what = chance.random()
        if what < 0.1:
            asked.end.write(rst(number, chance.choice((0, 2, 8, 7))))
            self.ended.add(key)
        elif what < 0.2:
            asked.end.write(headers(number, fields([(b"x-sum", b"1")])))
            self.ended.add(key)
        else:
            end = what < 0.4
            asked.end.write(
                data(number, bytes(size), end, chance.choice((None, 0, 100)) if room > 300 and size < 9000 else None)
            )
            if end:
                self.ended.add(key)

    def pause(self) -> None:
        """A client stops reading for a while, or goes on."""
        client = self.client()
        (client.transport.resumeProducing if self.chance.random() < 0.6 else client.transport.pauseProducing)()

    def time(self) -> None:
        """Some of it passes."""
        self.two.advance(self.chance.choice((0.01, 0.5, 3)))

    def leave(self) -> None:
        """A client goes."""
        if self.chance.random() < 0.2:
            client = self.client()
            (client.transport.abortConnection if self.chance.random() < 0.5 else client.transport.loseConnection)()

    def run(self, steps: int) -> None:
        """So many things happen."""
        self.ended, self.begun = set(), set()
        weights: dict[Callable[[], None], int] = {
            self.ask: 20, self.send: 25, self.answer: 35, self.give_up: 8, self.open: 10, self.chatter: 3,
            self.pause: 4, self.time: 2, self.leave: 2,
        }  # fmt: skip
        for _ in range(steps):
            self.chance.choices(list(weights), list(weights.values()))[0]()
            if self.chance.random() < 0.7:
                self.two.run()

    def settle(self) -> None:
        """All clients give up what they have; nobody closes anything."""
        for client in [client for client in self.clients if not client.peer.closed]:
            client.transport.resumeProducing()
            self.two.run()
            if client.peer.closed:
                continue
            for number in range(1, self.next[client], 2):
                if number not in client.resets:
                    client.write(rst(number, CANCEL))
            self.two.run()


@pytest.mark.parametrize("faults", [False, True], ids=["as they may", "and with faults"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_left_of_a_storm(engine: str, seed: int, faults: bool) -> None:
    with Two(engine, None, told=TOLD, early=True, pool={"maxPerEndpoint": 2}, timeouts={"clientIdle": "1h"}) as two:
        storm = Storm(two, seed, faults)
        storm.run(STEPS)
        storm.settle()
        two.advance(40)  # uploads that their upstream does not take, though it has answered
        for link in two.links():
            assert not link.streams, (type(link), link.streams)
            assert not link.blocked
            assert not link.late_ones
            assert not link._resets, link._resets
        owed = (64 << 10) + max((link._lost for link in two.links("Server")), default=0)  # what ngh2 never credits
        for client in storm.clients:
            if not client.peer.closed:
                assert 0 <= (128 << 10) - client.room() <= owed, "what is owed is less than half of the window"
                client.send(req(storm.next[client], b"/last"))
                assert two.asked[-1].all(b":path") == [b"/last"], "it serves"
        for asked in two.asked:
            peer = asked.end.peer
            assert asked.message.ended or asked.reset is not None or asked.stream in peer.ours or peer.closed
        assert two.counts("malformed_frame") == 0
        for end in (*two.clients, *two.origin.connections):
            # Two that reset the same stream at the same time do not answer each other.
            end.peer.faults = [fault for fault in end.peer.faults if "answers RST_STREAM" not in fault]
        assert len(two.records) >= len(two.asked) - len(storm.clients) - two.counts("stream_refused")
