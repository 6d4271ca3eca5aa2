"""cache: whatever happens, nobody is given what is somebody else's."""

from __future__ import annotations

from random import Random

import pytest
from caches import REFUSED, Scene, say
from twisted.internet.defer import Deferred

CONTROLS = (
    "private, max-age=60",
    "no-store",
    "max-age=60",
    "max-age=2, stale-while-revalidate=5, stale-if-error=5",
    "max-age=2, proxy-revalidate",
    None,
)


@pytest.mark.parametrize("seed", range(30))
def test_an_answer_to_somebody_is_for_nobody_else(seed):
    """
    Clients with and without credentials ask, wait, leave and fail at random; the origin says in each answer for whom it
    was made, and never that others may have it.  Who says who it is may be given what was made for nobody, never what
    was made for somebody else.
    """
    random = Random(seed)
    pending = []

    def answer(request):
        who = request.headers.get(b"authorization") or request.headers.get(b"cookie") or b"nobody"
        made = say(random.choice(CONTROLS), b"for " + who, etag=f'"{who.decode()}"', vary=random.choice([[], "x-a"]))
        if random.random() < 0.2:
            return say("no-store", b"for " + who, 503)
        if random.random() < 0.5:
            return made
        late = Deferred()
        pending.append((late, made))
        return late

    scene = Scene(answer=answer, wait="1s")
    clients = []
    for _ in range(300):
        act = random.random()
        if act < 0.7:
            who = random.choice(["", "authorization: ann", "authorization: bob", "cookie: carol"])
            headers = [who] if who else []
            if random.random() < 0.2:
                headers.append(
                    random.choice(["cache-control: no-cache", "cache-control: max-stale", 'if-none-match: "x"'])
                )
            clients.append((who.partition(": ")[2].encode() or b"nobody", scene.get(*headers)))
        elif act < 0.85 and pending:
            late, made = pending.pop(random.randrange(len(pending)))
            if late.called:
                continue
            if random.random() < 0.2:
                late.errback(REFUSED)
            else:
                late.callback(made)
        elif act < 0.9 and clients:
            client = random.choice(clients)[1]
            if not client.over:
                client.leave()
        else:
            scene.wait(random.choice([0.2, 1.5]))
    for late, made in pending:
        if not late.called:
            late.callback(made)
    scene.wait(2)
    seen = 0
    for who, client in clients:
        if client.status == 200:
            assert client.data in (b"for " + who, b"for nobody")
            seen += 1
    assert seen > 50
    assert scene.cache.flights == {}
    assert scene.cache.store.coming == 0
