"""The fake name server answers what a real resolver asks."""

from __future__ import annotations

from twisted.internet.interfaces import IResolver
from twisted.internet.task import Clock
from twisted.names.error import DNSNameError
from zope.interface.verify import verifyObject

from protogate.testing.names import Names
from protogate.upstream.resolver import Resolver
from protogate.wheel import Wheel


def test_addresses_of_both_kinds(tmp_path):
    names = Names({"a.test": ["192.0.2.1", "2001:db8::1"]}, {"_http._tcp.a.test": [(1, 2, 80, "a.test")]}, ttl=5)
    verifyObject(IResolver, names)
    clock = Clock()
    clock.advance(1000)
    (tmp_path / "hosts").write_text("")
    resolver = Resolver(Wheel(clock), names, hosts=str(tmp_path / "hosts"))
    box = []
    found = resolver.addresses("a.test")
    found = found if isinstance(found, (list, tuple)) else found.addBoth(box.append) and box[0]
    assert sorted(found) == ["192.0.2.1", "2001:db8::1"]
    answers, _, _ = names.lookupService("_http._tcp.a.test").result
    assert (answers[0].payload.port, answers[0].ttl) == (80, 5)
    assert names.asked == ["a.test", "a.test", "_http._tcp.a.test"]
    resolver.close()


def test_an_unknown_name_is_no_name():
    box = []
    Names().lookupAddress("b.test").addErrback(box.append)
    assert box[0].check(DNSNameError)
