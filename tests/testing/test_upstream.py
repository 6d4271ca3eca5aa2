"""Raw ends play their scripts and record."""

from __future__ import annotations

import pytest
from twisted.internet.interfaces import IHalfCloseableProtocol
from zope.interface.verify import verifyObject

from protogate.testing.reactor import MemoryReactor
from protogate.testing.transport import Net
from protogate.testing.upstream import Do, Expect, Raw, Upstream


def meet(*scripts):
    net, upstream, clients = Net(), Upstream(*scripts), []
    for _ in range(2):
        client = Raw()
        net.link(client, upstream.buildProtocol(None))
        clients.append(client)
    net.run()
    return net, upstream, clients


def test_a_script_answers_again_and_again():
    net, upstream, (client, _) = meet([Expect(b"ping"), b"pong", b"!"])
    verifyObject(IHalfCloseableProtocol, client)
    client.send(b"pi")
    net.run()
    assert client.received == b""
    client.send(b"ngpingping")
    net.run()
    assert client.take() == b"pong!" * 3
    assert client.received == b""
    assert upstream.received == [b"pingpingping", b""]


def test_each_connection_has_its_script_and_the_last_is_for_all_others():
    _, _, (one, two) = meet([b"first", Do.SILENCE], [b"second", Do.CLOSE])
    assert (one.received, one.eof, two.received, two.eof) == (b"first", False, b"second", True)


@pytest.mark.parametrize("how", list(Do))
def test_ends(how):
    net, upstream, (client, _) = meet([Expect(b"x"), b"bye", how])
    client.send(b"x")
    net.run()
    far = upstream.connections[0]
    if how is Do.RESET:
        assert client.lost is not None
    else:
        assert client.received == b"bye"
        assert client.eof is (how is not Do.SILENCE)
        assert (far.lost is not None) is (how is Do.CLOSE)
    client.send(b"x")
    net.run()
    if how is Do.FIN:
        assert far.received == b"xx", "still reading"


def test_without_a_script_it_only_records():
    net, upstream, (client, _) = meet()
    client.send(b"abc")
    client.finish()
    net.run()
    assert upstream.received[0] == b"abc"
    assert upstream.connections[0].eof
    client.close()
    net.run()
    upstream.connections[1].reset()
    net.run()
    assert all(connection.lost for connection in (client, upstream.connections[1]))


def test_a_script_that_never_ends_is_refused():
    with pytest.raises(ValueError, match="waits for nothing"):
        Upstream([b"x"])


def test_listens_on_a_reactor():
    reactor = MemoryReactor()
    reactor.listenTCP(80, upstream := Upstream([b"hi", Do.SILENCE]))
    assert reactor.find(("127.0.0.1", 80)).factory is upstream
