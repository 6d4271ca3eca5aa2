"""accessList: who may come in."""

from __future__ import annotations

import ipaddress
import random
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import Abort, ConfigError
from protogate.exchange.pipeline import run
from protogate.expression import cidr
from protogate.expression.template import compile as template
from protogate.governance.accesslist import AccessListFactory
from protogate.governance.binding import bind
from protogate.governance.networks import Networks, Tags, merged, network
from protogate.message import Response
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans, Service
from protogate.testing.module import ModuleContract
from protogate.testing.reactor import MemoryReactor


def build(**params):
    return AccessListFactory().build(params)


def admits(module, fakes, ip):
    try:
        module.process(fakes.Exchange(ip=ip))
    except Abort:
        return False
    return True


def test_a_list_that_others_could_write_is_warned_of():
    def warned(**params):
        return [warning.path for warning in build(**params).warnings]

    assert warned(deny=["192.0.2.7", {"url": "http://lists.test/deny"}]) == [("deny", 1, "url")]
    assert warned(allow={"url": "http://lists.test/allow"}) == [("allow", "url")]
    assert warned(tags={"url": "http://lists.test/tags"}, deny=["AT"]) == [("tags", "url")]
    assert warned(deny={"url": "https://lists.test/deny"}) == []
    assert warned(deny={"url": "http://127.0.0.1:8080/deny"}) == []
    assert warned(deny={"url": {"upstream": "lists", "path": "/deny"}}) == []


@pytest.mark.parametrize(
    ("lists", "ip", "admitted"),
    [
        ({"deny": ["10.0.0.0/8"]}, "10.1.2.3", False),
        ({"deny": ["10.0.0.0/8"]}, "11.0.0.0", True),
        ({"deny": ["10.0.0.0/8"]}, "2001:db8::1", True),
        ({"deny": ["192.0.2.7"]}, "192.0.2.7", False),
        ({"deny": ["192.0.2.7"]}, "192.0.2.6", True),
        ({"allow": ["10.0.0.0/8"]}, "10.255.255.255", True),
        ({"allow": ["10.0.0.0/8"]}, "9.255.255.255", False),
        ({"allow": ["10.0.0.0/8"]}, "::1", False),
        ({"allow": ["0.0.0.0/0"]}, "255.255.255.255", True),
        ({"allow": ["2001:db8::/32"]}, "2001:db8:ffff::1", True),
        ({"allow": ["2001:db8::/32"]}, "2001:db9::", False),
        ({"allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"]}, "10.1.0.1", False),
        ({"allow": ["10.1.0.0/16"], "deny": ["10.0.0.0/8"]}, "10.1.0.1", False),
        ({"allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"]}, "10.2.0.1", True),
        ({"deny": ["10.0.0.0/8"]}, "::ffff:10.0.0.1", False),
        ({"deny": ["::ffff:10.0.0.0/104"]}, "10.0.0.1", False),
        ({"deny": ["::ffff:10.0.0.1"]}, "10.0.0.1", False),
        ({"deny": ["::/0"]}, "10.0.0.1", True),
        ({"allow": []}, "10.0.0.1", False),
        ({"deny": []}, "10.0.0.1", True),
        ({"deny": ["10.0.0.0/8"]}, "", True),
        ({"allow": ["0.0.0.0/0", "::/0"]}, "", False),
    ],
)
def test_who_may_come_in(fakes, lists, ip, admitted):
    assert admits(build(**lists), fakes, ip) is admitted


def test_denial_says_who_and_why_to_operators_and_little_to_strangers(fakes):
    with pytest.raises(Abort) as caught:
        build(deny=["10.0.0.0/8"]).process(fakes.Exchange(ip="10.0.0.1"))
    abort = caught.value
    assert (abort.who, abort.status, abort.error, abort.detail) == (
        "client",
        403,
        "http_request_denied",
        "access denied",
    )
    assert abort.reason == "accessList: 10.0.0.1 is on the deny list"
    for ip, reason in (("10.0.0.1", "10.0.0.1 is not on the allow list"), ("", "a client without an address is in no")):
        with pytest.raises(Abort, match=f"accessList: {reason}") as caught:
            build(allow=["192.0.2.0/24"], status=404).process(fakes.Exchange(ip=ip))
        assert caught.value.status == 404


def test_exception_handle_continue_lets_nobody_in(fakes):
    entry = Module(name="accessList", action_param={"deny": ["192.0.2.0/24"]}, exception_handle="continue")
    (bound,) = bind([entry], fakes.finder(AccessListFactory()))["PRE_REQUEST"]
    assert not bound.opens
    with pytest.raises(Abort):
        run([bound], fakes.Exchange(ip="192.0.2.1"))


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1/8", "10.0.0.0/33", "10.0.0/8", "010.0.0.0/8", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0.0/ 8", "x", ""],
)
def test_what_is_no_network(text):
    with pytest.raises(ConfigError) as caught:
        build(deny=["10.0.0.0/8", text])
    assert caught.value.path == ("deny", 1)
    assert text in caught.value.message


def test_bits_behind_the_prefix_are_told_apart():
    with pytest.raises(ConfigError, match=r"did you mean .?10\.0\.0\.0/8"):
        build(deny=["10.0.0.1/8"])
    with pytest.raises(ConfigError):
        build(deny=["::ffff:10.0.0.0/90"])


def test_only_some_of_many_faults_are_listed():
    with pytest.raises(ConfigFaults) as caught:
        build(deny=["no"] * 50, allow=[5, None, ["10.0.0.0/8"]])
    faults = caught.value.faults
    assert [fault.path for fault in faults[:20]] == [("deny", index) for index in range(20)]
    assert (faults[20].path, faults[20].message) == (("deny",), "and 30 more that are no network")
    assert [fault.path for fault in faults[21:]] == [("allow", 0), ("allow", 1), ("allow", 2)]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "expected allow, deny, or both"),
        ({"deny": "10.0.0.0/8"}, "expected a list"),
        ({"deny": [], "status": 200}, "from 400 to 599"),
        ({"denny": []}, 'did you mean "deny"'),
    ],
)
def test_what_cannot_be_built(params, message):
    with pytest.raises(ConfigError, match=message):
        build(**params)


def test_empty_allow_list_is_a_warning():
    assert [warning.path for warning in build(allow=[]).warnings] == [("allow",)]
    assert build(allow=["10.0.0.0/8"], deny=[]).warnings == []


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_ranges_hold_the_same_addresses_and_do_not_touch(ranges):
    out = merged(ranges)
    assert {n for first, last in out for n in range(first, last + 1)} == {
        n for first, last in ranges for n in range(first, last + 1)
    }
    assert all(one[1] + 1 < other[0] for one, other in pairwise(out))


@given(st.ip_addresses(), st.integers(0, 128))
def test_network_agrees_with_ipaddress(address, prefix):
    prefix = min(prefix, address.max_prefixlen)
    made = ipaddress.ip_network((address, prefix), strict=False)
    if made.version == 6 and int(made.network_address) >> 32 == 0xFFFF:
        return  # IPv4 in its IPv6 form: see the table above
    first = int(made.network_address)
    assert network(str(made)) == (made.version, (first, first + made.num_addresses - 1))


@given(st.text(alphabet="0123456789abcdef:./ %-+", max_size=24))
def test_network_refuses_what_conditions_refuse(text):
    try:
        cidr.compile(text)
    except ConfigError:
        assert network(text) is None


@given(st.lists(st.ip_addresses(v=4), max_size=20), st.integers(8, 32), st.ip_addresses(v=4))
def test_look_up_agrees_with_a_linear_scan(addresses, prefix, address):
    made = [ipaddress.ip_network((one, prefix), strict=False) for one in addresses]
    networks = Networks([network(str(one)) for one in made])
    for candidate in (address, *addresses):
        assert ((4, int(candidate)) in networks) == any(candidate in one for one in made)


@pytest.mark.unwatched
def test_a_hundred_thousand_networks_are_built_and_asked_fast(fakes):
    source = random.Random(7)
    texts = [f"{ipaddress.IPv4Address(source.getrandbits(24) << 8)}/24" for _ in range(60_000)]
    texts += [f"{ipaddress.IPv6Address(source.getrandbits(48) << 80)}/48" for _ in range(40_000)]
    entry = Module(name="accessList", action_param={"deny": texts})
    began = process_time()
    (bound,) = bind([entry], fakes.finder(AccessListFactory()))["PRE_REQUEST"]
    assert process_time() - began < 3.0  # half a second, but for tracing and slow machines
    assert not admits(bound.module, fakes, texts[0].replace(".0/24", ".77"))
    exchange = fakes.Exchange(ip="127.0.0.1")
    began = process_time()
    for _ in range(1000):
        bound.process(exchange)
    assert process_time() - began < 0.5  # a scan over all would take half a minute


# -- by text


@pytest.mark.parametrize(
    ("lists", "values", "admitted"),
    [
        ({"deny": ["bad"]}, ["bad"], False),
        ({"deny": ["bad"]}, ["good"], True),
        ({"deny": ["bad"]}, [], True),
        ({"deny": ["bad"]}, ["good", "bad"], False),
        ({"deny": ["bad"]}, ["bad", "good"], False),
        ({"deny": ["bad"]}, ["good,\tbad ,x"], False),
        ({"allow": ["good"]}, ["good"], True),
        ({"allow": ["good"]}, ["good", "bad"], False),
        ({"allow": ["good"]}, ["bad", "good"], False),
        ({"allow": ["good"]}, ["Good"], False),
        ({"allow": ["good"]}, [], False),
        ({"allow": ["good"]}, [""], False),
        ({"allow": ["good"]}, [", ,"], False),
        ({"allow": ["good", "bad"], "deny": ["bad"]}, ["bad"], False),
    ],
)
def test_a_list_of_texts(lists, values, admitted):
    bound = AppContract().build({"by": "${request.headers['x-app']}", **lists})
    made = exchange(headers=[(b"x-app", value.encode()) for value in values])
    if admitted:
        assert bound.process(made) is None
    else:
        with pytest.raises(Abort, match="accessList: ") as caught:
            bound.process(made)
        assert caught.value.status == 403


def test_lists_of_services():
    bound = AppContract().build({"by": "${request.service}", "deny": ["1002"]})
    made = exchange()
    made.request.service = "1002"
    with pytest.raises(Abort, match=r'accessList: \$\{request\.service\} = "1002" is on the deny list'):
        bound.process(made)
    made.request.service = "1001"
    assert bound.process(made) is None


class AppContract(ModuleContract, SynchronousTestCase):
    factory = AccessListFactory
    good = ({"by": "${request.headers['x-app']}", "allow": ["good"]},)
    bad = (
        ({"by": "fixed", "deny": []}, "by"),
        ({"by": "${request.path}", "tags": {"file": "/nowhere"}, "deny": []}, "by"),
        ({"by": "${request.path}", "deny": [7]}, "deny"),
        ({"deny": {"file": "/nowhere/at/all"}}, "deny"),
        ({"deny": [{"file": "/nowhere", "url": "http://a.test"}]}, "deny"),
        ({"deny": [{"url": "nothing"}]}, "deny"),
        ({"deny": [{"url": "http://a.test/", "interval": "0s"}]}, "interval"),
        ({"deny": [], "failOpen": "yes"}, "failOpen"),
        ({"deny": ["AT"], "tags": "AT"}, "tags"),
    )

    def runTest(self):
        """So that it can be made by hand."""


# -- from files and URLs


def test_entries_from_a_file_add_to_those_of_the_configuration(tmp_path, fakes):
    path = tmp_path / "blocked"
    path.write_text("# who was bad\n10.0.0.0/8  # all of them\r\n\n2001:db8::/32\n")
    module = build(deny=["192.0.2.7", {"file": str(path)}])
    denied = [ip for ip in ("192.0.2.7", "10.1.1.1", "2001:db8::1", "192.0.2.8") if not admits(module, fakes, ip)]
    assert denied == ["192.0.2.7", "10.1.1.1", "2001:db8::1"]


@pytest.mark.parametrize("text", ["10.0.0.0/8\n10.0.0.1/8\n", "x", "10.0.0.0/8 AT"])
def test_a_fault_in_a_file_names_file_and_line(tmp_path, text):
    path = tmp_path / "blocked"
    path.write_text(text)
    line = len(text.strip().splitlines())
    with pytest.raises(
        ConfigError, match=f"{path}: line {line}: .*no network|{path}: line {line}: .*bits set"
    ) as caught:
        build(deny=[{"file": str(path)}])
    assert caught.value.path == ("deny", 0)


def listing(answer):
    reactor = MemoryReactor()
    service = Service(answer)
    return reactor, FakeMeans({"http://lists.test:80": service}, reactor=reactor)


def test_nobody_comes_in_before_a_list_is_there(fakes):
    waiting = Deferred()
    reactor, means = listing(lambda request: waiting)
    module = build(deny={"url": "http://lists.test/blocked"})
    assert module.asks == {"http://lists.test:80": ("deny",)}
    module.start(means, None)
    with pytest.raises(Abort, match=r"http://lists\.test:80/blocked could not be read yet") as caught:
        module.process(fakes.Exchange())
    assert (caught.value.who, caught.value.status) == ("gateway", 503)
    waiting.callback(Response(200, body=Whole(b"10.0.0.0/8")))
    reactor.run()
    assert admits(module, fakes, "11.0.0.1")
    assert not admits(module, fakes, "10.0.0.1")
    module.stop()


def test_everybody_does_where_the_configuration_says_so(fakes):
    _, means = listing(lambda request: Deferred())
    module = build(allow=[{"url": "http://lists.test/known"}], failOpen=True)
    module.start(means, None)
    assert admits(module, fakes, "10.0.0.1")
    module.stop()


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ('["blocked","a,b"]', True),
        ('["a,b","blocked"]', True),
        ('["a,b","other"]', False),
        ('["blocked,a"]', False),
        ('[["blocked"],"a,b"]', False),
        ('["blocked,a', False),
        ('[{"blocked": 1, "blocked": 2}, 1]', False),
    ],
)
def test_a_list_that_is_told_as_json_is_read(fakes, text, denied):
    module = build(by=template("${request.headers['x-groups']}"), deny=["blocked"])
    made = exchange(headers=[(b"x-groups", text.encode())])
    if denied:
        with pytest.raises(Abort, match="deny list"):
            module.process(made)
    else:
        module.process(made)
    allowing = build(by=template("${request.headers['x-groups']}"), allow=["blocked", "a,b"])
    with pytest.raises(Abort, match="allow list"):
        allowing.process(made)


def test_a_list_is_kept_over_a_reload(fakes):
    reactor, means = listing(lambda request: Response(200, body=Whole(b"10.0.0.0/8")))
    first = build(deny={"url": "http://lists.test/blocked"})
    first.start(means, None)
    reactor.run()
    _, later = listing(lambda request: Deferred())
    second = build(deny=["192.0.2.7", {"url": "http://lists.test/blocked"}])
    second.start(later, first)
    first.stop()
    assert [admits(second, fakes, ip) for ip in ("10.0.0.1", "192.0.2.7", "192.0.2.8")] == [False, False, True]
    second.stop()


def test_a_list_that_becomes_one_of_something_else_is_read_anew(fakes):
    reactor, means = listing(lambda request: Response(200, body=Whole(b"10.0.0.1")))
    first = build(deny={"url": "http://lists.test/blocked"})
    first.start(means, None)
    reactor.run()
    reactor, later = listing(lambda request: Response(200, body=Whole(b"10.0.0.1")))
    second = build(deny={"url": "http://lists.test/blocked"}, by=template("${source.ip}"))
    second.start(later, first)
    first.stop()
    with pytest.raises(Abort, match="could not be read yet"):
        second.process(fakes.Exchange(ip="10.0.0.1"))
    reactor.run()
    assert not admits(second, fakes, "10.0.0.1")
    second.stop()


# -- tags


TABLE = """
10.0.0.0/8      AT
10.1.0.0/16     DE   # within the one above
10.1.2.0/24     CH
10.1.2.128/25\tLI
10.255.255.255  IT
2001:db8::/32   AT
"""


@pytest.mark.parametrize(
    ("ip", "tag"),
    [
        ("9.255.255.255", ""),
        ("10.0.0.0", "AT"),
        ("10.1.0.0", "DE"),
        ("10.1.2.0", "CH"),
        ("10.1.2.127", "CH"),
        ("10.1.2.128", "LI"),
        ("10.1.3.0", "DE"),
        ("10.2.0.0", "AT"),
        ("10.255.255.255", "IT"),
        ("11.0.0.0", ""),
        ("2001:db8::7", "AT"),
        ("2001:db9::", ""),
        ("", ""),
    ],
)
def test_the_tag_of_an_address(tmp_path, fakes, ip, tag):
    path = tmp_path / "countries"
    path.write_text(TABLE)
    for each in ("AT", "DE", "CH", "LI", "IT"):
        assert admits(build(tags={"file": str(path)}, deny=[each]), fakes, ip) is (each != tag)
        assert admits(build(tags={"file": str(path)}, allow=[each]), fakes, ip) is (each == tag)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.0/8", "line 1: expected a network and a tag"),
        ("10.0.0.0/8 AT DE", "line 1: expected a network and a tag"),
        ("AT 10.0.0.0/8", "line 1: .*no network"),
        ("10.0.0.0/8 AT\n10.0.0.0/8 AT\n10.0.0.0/8 DE", "line 3: 10.0.0.0/8 has two tags, AT and DE"),
    ],
)
def test_what_is_no_table(tmp_path, text, why):
    path = tmp_path / "countries"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        build(tags={"file": str(path)}, deny=["AT"])
    assert caught.value.path == ("tags",)


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 8), st.sampled_from("ABC")), max_size=12),
    st.integers(0, 255),
)
def test_the_narrowest_network_gives_the_tag(found, last):
    table = {}
    for number, width, tag in found:
        first = number >> width << width
        table[4, (first, first + (1 << width) - 1)] = tag
    holding = [(end - first, tag) for (_, (first, end)), tag in table.items() if first <= last <= end]
    assert Tags(table.items()).find((4, last)) == min(holding, default=(0, ""))[1]
