"""Rules of the resolver, on a name server that a test speaks for, and once on a real one."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from fake_upstream import NXDOMAIN, SERVFAIL, FakeDns, Time, a, aaaa, cname, soa, srv
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher, textFileLogObserver
from twisted.names import authority, common, dns, server

from protogate.errors import ALWAYS, Abort, Phase
from protogate.upstream.query import LONGEST, Service
from protogate.upstream.resolver import DOUBT, Answer, Resolver, System, literal


class Bench:
    """A resolver and what it said."""

    def __init__(self, hosts: str = "/nonexistent") -> None:
        self.time = Time()
        self.dns = FakeDns()
        self.resolver = Resolver(self.time.wheel, self.dns, self.time.counted.append, hosts)

    def ask(self, host: str = "up.test") -> list[Any]:
        """What comes of asking: empty while it is awaited, then the addresses or the failure."""
        return self._take(self.resolver.addresses(host))

    def services(self, host: str = "_web._tcp.up.test") -> list[Any]:
        return self._take(self.resolver.look(host, True))

    @staticmethod
    def _take(answer: Any) -> list[Any]:
        told: list[Any] = []
        if isinstance(answer, Deferred):
            answer.addCallbacks(told.append, lambda failure: told.append(failure.value))
        else:
            told.append(answer)
        return told

    def say(self, records: Any, six: Any = ()) -> None:
        self.dns.say("A", records)
        self.dns.say("AAAA", six)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1%eth0"]
)
def test_literals_are_answered_at_once(host: str) -> None:
    bench = Bench()
    assert literal(host)
    assert bench.ask(host) == [(host,)]
    assert not bench.dns.asked


@pytest.mark.parametrize(
    "host", ["1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1.2.3.4.", "a.b", "::g", ":", "[::1]", "1.2.3.4\n", "",
             "fe80::1%", "10.0.0.1%eth0", "::\0"],
)  # fmt: skip
def test_other_texts_are_no_literals(host: str) -> None:
    assert not literal(host)


def test_both_families_ipv4_first() -> None:
    bench = Bench()
    told = bench.ask()
    assert bench.dns.asked == [("A", "up.test"), ("AAAA", "up.test")]
    bench.dns.say("AAAA", [aaaa("up.test", "2001:db8::1")])
    assert told == []
    bench.dns.say("A", [a("up.test", "10.0.0.1"), a("up.test", "10.0.0.2"), a("up.test", "10.0.0.1")])
    assert told == [("10.0.0.1", "10.0.0.2", "2001:db8::1")]


def test_one_query_for_all_who_ask() -> None:
    bench = Bench()
    told = [bench.ask(), bench.ask("UP.test"), bench.ask("up.test.")]
    assert len(bench.dns.asked) == 2
    bench.say([a("Up.Test", "10.0.0.1")])
    assert told == [[("10.0.0.1",)]] * 3
    assert bench.time.counted == ["dns_query"]


def test_ipv4_does_not_wait_long_for_ipv6() -> None:
    bench = Bench()
    told = bench.ask()
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    assert told == []
    bench.time.pass_by(0.2)
    assert told == [("10.0.0.1",)]
    assert bench.dns.open[0][2].called  # given up


def test_one_family_that_fails_does_no_harm() -> None:
    bench = Bench()
    told = bench.ask()
    bench.say(SERVFAIL, [aaaa("up.test", "::1")])
    assert told == [("::1",)]


@pytest.mark.parametrize(("ttl", "kept"), [(0, 1), (1, 1), (30, 30), (100_000, LONGEST)])
def test_an_answer_is_kept_for_its_ttl_within_bounds(ttl: int, kept: float) -> None:
    bench = Bench()
    bench.ask()
    bench.say([a("up.test", "10.0.0.1", ttl), a("up.test", "10.0.0.2", 100_000)])
    bench.time.clock.advance(kept - 0.1)
    assert bench.ask() == [("10.0.0.1", "10.0.0.2")]
    assert len(bench.dns.asked) == 2
    bench.time.clock.advance(0.2)
    bench.ask()
    assert len(bench.dns.asked) == 4


def test_an_old_answer_is_served_while_a_new_one_is_fetched() -> None:
    bench = Bench()
    bench.ask()
    bench.say([a("up.test", "10.0.0.1", 10)])
    bench.time.clock.advance(11)
    assert bench.ask() == [("10.0.0.1",)]
    assert bench.ask() == [("10.0.0.1",)]
    assert bench.time.counted == ["dns_query", "dns_query", "dns_stale", "dns_stale"]
    bench.say([a("up.test", "10.0.0.2", 10)])
    assert bench.ask() == [("10.0.0.2",)]


def test_an_old_answer_is_served_when_no_server_answers_but_not_for_ever() -> None:
    bench = Bench()
    bench.ask()
    bench.say([a("up.test", "10.0.0.1", 10)])
    bench.dns.zone = {("A", "up.test"): SERVFAIL, ("AAAA", "up.test"): SERVFAIL}
    bench.time.clock.advance(11)
    assert bench.ask() == [("10.0.0.1",)]
    assert bench.ask() == [("10.0.0.1",)]
    assert bench.time.counted.count("dns_failure") == 1  # a failure is remembered for a moment
    bench.time.clock.advance(LONGEST - 2)
    assert bench.ask() == [("10.0.0.1",)]
    bench.time.clock.advance(2)
    (reason,) = bench.ask()
    assert isinstance(reason, Abort)
    assert reason.error == "dns_error"


def test_no_such_name_is_an_answer_and_ends_the_old_one() -> None:
    bench = Bench()
    bench.ask()
    bench.say([a("up.test", "10.0.0.1", 10)])
    bench.dns.zone = {("A", "up.test"): NXDOMAIN, ("AAAA", "up.test"): NXDOMAIN}
    bench.time.clock.advance(11)
    (reason,) = bench.ask()
    assert (reason.status, reason.error, reason.phase, reason.retry) == (502, "dns_error", Phase.DNS, ALWAYS)
    assert "up.test" in reason.reason
    assert "up.test" not in reason.detail
    answer = bench.resolver.look("up.test")
    assert isinstance(answer, Answer)
    assert answer.values == ()


def test_a_name_without_addresses_is_remembered_as_its_zone_says() -> None:
    bench = Bench()
    told = bench.ask()
    bench.say([soa(300, 20)], [soa(300, 20)])
    assert told[0].error == "dns_error"
    bench.time.clock.advance(19)
    bench.ask()
    assert len(bench.dns.asked) == 2
    bench.time.clock.advance(2)
    bench.ask()
    assert len(bench.dns.asked) == 4


def test_a_failure_reaches_all_who_wait_and_is_not_asked_for_again_at_once() -> None:
    bench = Bench()
    told = [bench.ask(), bench.ask()]
    bench.say(SERVFAIL, SERVFAIL)
    assert all(len(each) == 1 and isinstance(each[0], Abort) for each in told)
    assert isinstance(bench.ask()[0], Abort)
    assert len(bench.dns.asked) == 2
    bench.time.clock.advance(1.1)
    bench.ask()
    assert len(bench.dns.asked) == 4


def test_who_gives_up_does_not_stop_the_query() -> None:
    bench = Bench()
    gone = bench.resolver.addresses("up.test")
    stays = bench.ask()
    assert isinstance(gone, Deferred)
    told: list[Any] = []
    gone.addErrback(lambda failure: told.append(failure.type))
    gone.cancel()
    assert told == [CancelledError]
    bench.say([a("up.test", "10.0.0.1")])
    assert stays == [("10.0.0.1",)]
    assert bench.ask() == [("10.0.0.1",)]


def test_one_who_is_told_may_make_another_give_up() -> None:
    bench = Bench()
    first, second = bench.resolver.addresses("up.test"), bench.resolver.addresses("up.test")
    third = bench.ask()
    assert isinstance(first, Deferred)
    assert isinstance(second, Deferred)
    told: list[Any] = []
    first.addCallback(lambda _: second.cancel())
    second.addErrback(lambda failure: told.append(failure.type))
    bench.say([a("up.test", "10.0.0.1")])
    assert told == [CancelledError]
    assert third == [("10.0.0.1",)]


def test_a_question_that_cannot_be_asked_is_a_failure() -> None:
    bench = Bench()

    def broken(name: str, timeout: Any = None) -> Any:
        raise OSError("too many open files")

    bench.dns.lookupAddress = bench.dns.lookupIPV6Address = broken  # type: ignore[method-assign]
    (reason,) = bench.ask()
    assert "too many open files" in reason.reason


def test_an_answer_that_is_none_is_a_failure() -> None:
    bench = Bench()
    told = bench.ask()
    bench.dns.open[0][2].callback(None)
    bench.dns.open[1][2].callback(([], None, []))
    assert isinstance(told[0], Abort)


# -- aliases


def test_an_alias_is_followed_inside_the_answer() -> None:
    bench = Bench()
    told = bench.ask()
    bench.say([cname("up.test", "Real.test", 5), a("real.test", "10.0.0.1", 60), a("other.test", "10.6.6.6")])
    assert told == [("10.0.0.1",)]
    bench.time.clock.advance(6)
    bench.ask()
    assert len(bench.dns.asked) == 4  # the shortest TTL of the chain counts


def test_an_alias_the_server_did_not_follow_is_asked_for() -> None:
    bench = Bench()
    told = bench.ask()
    bench.dns.say("A", [cname("up.test", "real.test")])
    bench.dns.say("AAAA", [])
    assert bench.dns.asked[-1] == ("A", "real.test")
    bench.dns.say("A", [a("real.test", "10.0.0.1")])
    assert told == [("10.0.0.1",)]


def test_aliases_in_a_circle_come_to_an_end() -> None:
    bench = Bench()
    circle = [cname("up.test", "b.test"), cname("b.test", "up.test")]
    for name in ("up.test", "b.test"):
        bench.dns.zone["A", name] = bench.dns.zone["AAAA", name] = circle[name == "b.test" :][:1]
    (reason,) = bench.ask()
    assert isinstance(reason, Abort)
    assert len(bench.dns.asked) < 40


# -- what needs no DNS


def test_hosts_file_comes_before_dns(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.9.9.9 up.test # comment\n::9 up.test\n")
    bench = Bench(str(hosts))
    assert bench.ask("Up.Test") == [("10.9.9.9", "::9")]
    assert not bench.dns.asked
    hosts.write_text("10.8.8.8 up.test\n")
    bench.time.clock.advance(61)
    assert bench.ask() == [("10.8.8.8",)]
    bench.resolver.doubt("up.test")
    assert not bench.dns.asked


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "app.localhost"])
def test_localhost_is_loopback(host: str) -> None:
    assert Bench().ask(host) == [("127.0.0.1", "::1")]


# -- doubt


def test_an_address_that_does_not_answer_makes_it_ask_again_but_not_too_often() -> None:
    bench = Bench()
    bench.ask()
    bench.say([a("up.test", "10.0.0.1", 3600)])
    bench.resolver.doubt("up.test")
    assert len(bench.dns.asked) == 2
    bench.time.clock.advance(DOUBT)
    bench.resolver.doubt("UP.test")
    bench.resolver.doubt("up.test")
    assert len(bench.dns.asked) == 4
    assert bench.ask() == [("10.0.0.1",)]
    bench.say([a("up.test", "10.0.0.2", 3600)])
    assert bench.ask() == [("10.0.0.2",)]


def test_doubt_does_not_read_the_hosts_file_at_each_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.9.9.9 up.test\n")
    bench = Bench(str(hosts))
    bench.ask()
    reads: list[str] = []
    local = bench.resolver.local
    monkeypatch.setattr(bench.resolver, "local", lambda host: reads.append(host) or local(host))
    bench.time.clock.advance(DOUBT)
    for _ in range(9):
        bench.resolver.doubt("up.test")
    assert reads == ["up.test"]
    bench.time.clock.advance(DOUBT)
    bench.resolver.doubt("up.test")
    assert len(reads) == 2
    assert not bench.dns.asked


def test_doubt_about_a_name_nobody_asked_for_does_nothing() -> None:
    bench = Bench()
    bench.resolver.doubt("up.test")
    assert not bench.dns.asked


# -- SRV


def test_services_in_order() -> None:
    bench = Bench()
    told = bench.services()
    name = "_web._tcp.up.test"
    bench.dns.say("SRV", [srv(name, 20, 1, 81, "c.test"), srv(name, 10, 5, 80, "A.test", 7), srv(name, 10, 0, 80, ".")])
    answer = told[0]
    assert answer.values == (Service(10, 5, "a.test", 80), Service(20, 1, "c.test", 81))
    assert answer.until == bench.time.wheel.now() + 7


def test_no_services_is_an_answer() -> None:
    bench = Bench()
    told = bench.services()
    bench.dns.say("SRV", NXDOMAIN)
    assert told[0].values == ()


# -- the end


def test_closing_tells_who_waits() -> None:
    bench = Bench()
    told = bench.ask()
    bench.dns.say("A", [a("up.test", "10.0.0.1")])
    bench.resolver.close()
    assert isinstance(told[0], Abort)
    assert bench.dns.stopped
    assert isinstance(bench.ask()[0], Abort)
    assert isinstance(bench.ask("10.0.0.1")[0], Abort)
    assert bench.time.idle


def test_names_nobody_needs_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protogate.upstream.resolver.MOST_NAMES", 3)
    bench = Bench()
    for number in range(10):
        bench.dns.zone["A", f"h{number}.test"] = [a(f"h{number}.test", "10.0.0.1", 1)]
        bench.dns.zone["AAAA", f"h{number}.test"] = []
        assert bench.ask(f"h{number}.test") == [("10.0.0.1",)]
        bench.time.clock.advance(2)
    assert len(bench.resolver._names) <= 3


# -- a real name server


@pytest_twisted.ensureDeferred
async def test_a_real_name_server(tmp_path: Path) -> None:
    from twisted.internet import reactor as installed

    reactor: Any = installed
    zone = authority.FileAuthority.__new__(authority.FileAuthority)
    common.ResolverBase.__init__(zone)
    zone.__dict__.update(
        _cache=None,
        records={
            b"up.test": [
                dns.Record_SOA(b"up.test", b"up.test", minimum=5),
                dns.Record_A("10.0.0.1", 30),
                dns.Record_A("10.0.0.2", 30),
                dns.Record_AAAA("2001:db8::1", 20),
            ],
            b"_web._tcp.up.test": [dns.Record_SRV(1, 2, 8080, b"up.test", 40)],
        },
        soa=(b"up.test", dns.Record_SOA(b"up.test", b"up.test", minimum=5)),
    )
    port = reactor.listenUDP(0, dns.DNSDatagramProtocol(server.DNSServerFactory([zone])), interface="127.0.0.1")
    written = StringIO()
    observer = textFileLogObserver(written)
    globalLogPublisher.addObserver(observer)
    time = Time()
    resolver = Resolver(time.wheel, System(reactor, servers=[("127.0.0.1", port.getHost().port)]), hosts="/nonexistent")
    addresses = await resolver.addresses("up.test")  # type: ignore[misc]
    assert sorted(addresses) == ["10.0.0.1", "10.0.0.2", "2001:db8::1"]
    services: Any = await resolver.look("_web._tcp.up.test", True)  # type: ignore[misc]
    assert services.values == (Service(1, 2, "up.test", 8080),)
    with pytest.raises(Abort) as caught:
        await resolver.addresses("missing.up.test")  # type: ignore[misc]
    assert caught.value.error == "dns_error"
    answer = resolver.look("missing.up.test")
    assert isinstance(answer, Answer)  # the server's word was an answer, not a failure
    resolver.close()
    await deferLater(reactor, 0)  # the last port is closed in a turn of its own
    globalLogPublisher.removeObserver(observer)
    assert written.getvalue() == ""
    await port.stopListening()


def test_the_system_resolver_reads_a_file_and_lets_go_of_it(tmp_path: Path) -> None:
    from twisted.internet.testing import MemoryReactorClock

    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.9\n")
    reactor = MemoryReactorClock()
    system = System(reactor, str(resolv))
    assert system.dynServers == [("127.0.0.9", 53)]
    assert len(reactor.getDelayedCalls()) == 1
    closed: list[bool] = []

    class Open:
        class transport:  # noqa: N801
            @staticmethod
            def loseConnection() -> None:
                closed.append(True)

    system.connections.append(Open)
    system.stop()
    assert not reactor.getDelayedCalls()
    assert closed == [True]
