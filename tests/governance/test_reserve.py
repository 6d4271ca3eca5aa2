"""What clients must not say, because modules say it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from zope.interface import implementer

from protogate.governance.reserve import KNOWN, LONGEST, hide, reserve
from protogate.interfaces import IReservingModule
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange


@implementer(IReservingModule)
class Speaker:
    def __init__(self, reserves=(), hides=()):
        self.reserves, self.hides = reserves, hides

    def process(self, exchange):
        return None


def stages(*modules):
    return {"PRE_REQUEST": [SimpleNamespace(module=module, shadow=False) for module in modules]}


def reserved(*modules):
    return reserve(stages(*modules))


def test_modules_that_reserve_nothing_cost_nothing():
    assert reserved(object(), Speaker()) is None
    assert hide(stages(object(), Speaker())) is None


def test_a_module_in_the_shadow_reserves_nothing_yet_and_hides_all_the_same():
    shadowed = {"PRE_REQUEST": [SimpleNamespace(module=Speaker([b"x-user"], ["key"]), shadow=True)]}
    assert reserve(shadowed) is None
    assert hide(shadowed)(b"/?key=1") == b"/?key=***"


@pytest.mark.parametrize(
    "name", [b"x-user", b"x_user", b"x-user-id", b"x_user_id", b"x-user_id", b"x.user", b"x!user~id", b"x_user.id"]
)
def test_fields_of_a_reserved_name_are_taken_out_however_it_is_spelled(name):
    made = exchange(headers=[(b"accept", b"*/*"), (name, b"root"), (b"x-users", b"kept"), (name, b"again")])
    reserved(Speaker([b"x-user"]), Speaker([b"x_user_id"]))(made)
    assert made.request.headers == [(b"accept", b"*/*"), (b"x-users", b"kept")]


def test_no_number_of_names_makes_it_forget_or_remember_too_much():
    reserve = reserved(Speaker([b"x-user"]))
    for number in range(3 * KNOWN):
        made = exchange(headers=[(b"x-%d" % number, b"1"), (b"x_user", b"root"), (b"y" * (LONGEST + 1), b"2")])
        reserve(made)
        assert len(made.request.headers) == 2
    assert len(reserve._known) <= KNOWN


def test_trailers_of_a_reserved_name_are_taken_out_too():
    made = exchange()
    giver = Giver([b"a", b"b"], None, [(b"x-sum", b"1"), (b"x_user", b"root")])
    made.request.body = giver.body
    reserved(Speaker([b"x-user"]))(made)
    taker = Taker(made.request.body)
    assert (taker.data, taker.trailers) == (b"ab", [(b"x-sum", b"1")])


def test_other_trailers_pass_as_they_are():
    made = exchange()
    trailers = [(b"x-sum", b"1")]
    made.request.body = Giver([], None, trailers).body
    reserved(Speaker([b"x-user"]))(made)
    assert Taker(made.request.body).trailers is trailers


def test_what_flows_through_a_tunnel_is_left_alone():
    made = exchange(body=b"")
    made.request.upgrade = b"websocket"
    before = made.request.body
    reserved(Speaker([b"x-user"]))(made)
    assert made.request.body is before


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (b"/a?key=secret", b"/a?key=***"),
        (b"/a?x=1&key=secret&y=key", b"/a?x=1&key=***&y=key"),
        (b"/a?%6Bey=secret&key=more", b"/a?%6Bey=***&key=***"),
        (b"/a?my+key=secret&my%20key=s", b"/a?my+key=***&my%20key=***"),
        (b"/a?keys=1&KEY=2", b"/a?keys=1&KEY=2"),
        (b"/a?key", b"/a?key"),
        (b"/key=1", b"/key=1"),
    ],
)
def test_hidden_parameters_stand_in_no_record(target, told):
    assert hide(stages(Speaker(hides=["key"]), Speaker(hides=["my key"])))(target) == told
