"""cache: what is kept, and for whom (RFC 9111, 3 and 4.1; RFC 9213)."""

from __future__ import annotations

import pytest
from caches import REFUSED, Scene, date, kept, say

from protogate.identity.identity import Identity
from protogate.testing.bodies import Giver

# -- 3: what is kept


@pytest.mark.parametrize(
    "control",
    [
        "max-age=60",
        "MAX-AGE=60",
        'max-age="60"',
        "s-maxage=60",
        "public, max-age=60",
        'max-age=60, unknown, x=y, z="a,b"',
        "max-age=99999999999999999999",
        "must-understand, no-store, max-age=60",
    ],
)
def test_kept_where_the_origin_says_so(control):
    assert kept(say(control))


@pytest.mark.parametrize(
    "control",
    [
        "no-store, max-age=60",
        "private, max-age=60",
        'private="x-a", max-age=60',
        "max-age=0",
        "max-age=-1",
        "max-age=1.5",
        "max-age=abc",
        "max-age",
        "max-age =60",
        "max-age= 60",
        "max-age='60'",
        "max-age=60, max-age=0",
        "s-maxage=0, max-age=60",
        "no-cache, max-age=60",
        'no-cache="x-a", max-age=60',
        "public",
        "",
        None,
    ],
)
def test_not_given_again_where_it_does_not(control):
    assert not kept(say(control))


@pytest.mark.parametrize(
    "status", [200, 203, 204, 300, 301, 302, 307, 308, 400, 403, 404, 405, 410, 414, 499, 500, 501, 503, 599]
)
def test_any_final_status_is_kept_that_says_how_long(status):
    assert kept(say(status=status, content=b""))


@pytest.mark.parametrize("status", [206, 401, 407, 425, 428, 429, 431, 511])
def test_these_statuses_never(status):
    assert not kept(say(status=status))


def test_must_understand_a_status_that_is_not():
    assert not kept(say("must-understand, max-age=60", status=299))
    assert not kept(say("must-understand, no-store, max-age=60", status=299))


@pytest.mark.parametrize("name", ["authorization: Bearer a", "cookie: a=b"])
def test_what_belongs_to_somebody_is_kept_only_where_the_origin_says_so(name):
    assert not kept(say("max-age=60"), name)
    assert kept(say("public, max-age=60"), name)
    assert kept(say("s-maxage=60"), name)
    assert kept(say("max-age=60, must-revalidate"), name)
    assert not kept(say("max-age=60, proxy-revalidate"), name)


def test_credentials_are_what_the_file_says_and_authorization():
    assert kept(say(), "cookie: a=b", credentials=["x-api-key"])
    assert not kept(say(), "x-api-key: a", credentials=["x-api-key"])
    assert not kept(say(), "authorization: a", credentials=["x-api-key"])
    assert not kept(say(), "authorization: a", credentials=[])


def test_somebody_whom_the_gateway_knows_is_somebody():
    class Known:
        name, stage, timeout, opens, proceeds, outlives, applies, count = "a", "b", 0, True, True, False, None, print
        module = None

        @staticmethod
        def process(exchange):
            exchange.identity = Identity("ada", "key", {})

    scene = Scene(behind=(Known,))
    scene.answers = [say(), say("public, max-age=60"), say()]
    assert [scene.get().told for _ in range(3)] == [
        "fwd=uri-miss; fwd-status=200; detail=credentials",
        "fwd=uri-miss; fwd-status=200; stored",
        "hit; ttl=60",
    ]


def test_an_answer_that_sets_a_cookie_is_not_kept_unless_without_it():
    assert not kept(say("public, max-age=60", set_cookie="a=b"))
    scene = Scene(stripCookies=True)
    first = scene.keep(say("max-age=60", set_cookie="a=b"))
    assert first.field("set-cookie") == "a=b"
    second = scene.get()
    assert (second.data, second.field("set-cookie")) == (b"hello", None)


def test_fields_for_one_client_are_not_kept():
    scene = Scene()
    scene.keep(say(proxy_authenticate="Basic", proxy_authentication_info="a", x_a="1"))
    second = scene.get()
    assert second.field("x-a") == "1"
    assert second.field("proxy-authenticate") is None
    assert second.field("proxy-authentication-info") is None


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"FOO"])
def test_other_methods_are_not_answered(method):
    scene = Scene()
    scene.keep(say(), say(content=b"other"))
    assert scene.ask(method=method).data == b"other"


def test_a_get_with_a_body_is_none_of_ours():
    scene = Scene()
    scene.answers = [say(), say()]
    for _ in range(2):
        told = scene.get(body=Giver([b"x"], 1).body).told
        assert told == "fwd=bypass; fwd-status=200"
    assert scene.asked == 2


@pytest.mark.parametrize(
    "header", ["x-http-method-override: POST", "x-original-url: /admin", "x-rewrite-url: /admin", 'if-match: "a"']
)
def test_what_origins_may_take_for_something_else_is_passed_by(header):
    scene = Scene()
    scene.keep(say(), say(content=b"other"), say(content=b"third"))
    assert scene.get(header).data == b"other"
    assert scene.get().data == b"hello"


def test_no_answer_of_the_gateways_own_is_kept():
    assert not kept(say("public, max-age=60", protocol=""))
    scene = Scene()
    scene.answers = [REFUSED, say()]
    assert scene.get().status == 502
    assert scene.get().data == b"hello"


def test_a_broken_answer_is_not_kept():
    scene = Scene()
    giver = Giver([b"hel"], 5, close=False)
    scene.answers = [say(body=giver.body), say(content=b"whole")]
    first = scene.get()
    giver.abort(REFUSED)
    assert first.taker.reason is REFUSED
    assert scene.get().data == b"whole"
    assert (scene.counted["cut_off"], scene.cache.store.coming) == (1, 0)


def test_what_is_kept_is_what_came_piece_by_piece_and_with_its_trailers():
    scene = Scene()
    scene.answers = [say(body=Giver([b"a", b"bc", b"def"], None, [(b"x-sum", b"6")]).body)]
    first, second = scene.get(), scene.get()
    assert first.taker.got == second.taker.got == [b"a", b"bc", b"def"]
    assert list(second.taker.trailers) == [(b"x-sum", b"6")]
    assert second.response.body.length == 6


# -- 4.1: Vary


def test_vary():
    scene = Scene()
    scene.answers = [
        say(content=b"de", vary="Accept-Language, X-A"),
        say(content=b"fr", vary="Accept-Language, X-A"),
        say(content=b"none", vary="accept-language,x-a"),
    ]
    assert scene.get("accept-language: de").data == b"de"
    assert scene.get("accept-language: fr").data == b"fr"
    assert scene.get().data == b"none"
    assert scene.get("accept-language: DE ").data == b"de"
    assert scene.get("accept-language: fr").data == b"fr"
    assert scene.get().data == b"none"
    assert scene.asked == 3


def test_selecting_fields_are_compared_over_all_their_lines():
    scene = Scene()
    scene.keep(say(vary="x-a"), say("no-store", b"other"), headers=["x-a: 1", "x-a: 2"])
    assert scene.get("x-a: 1 ,  2").data == b"hello"
    assert scene.get("x-a: 1").data == b"other"


def test_an_empty_field_is_another_one_than_none():
    scene = Scene()
    scene.keep(say(vary="x-a"), say("no-store", b"other"))
    assert scene.get("x-a:").data == b"other"


@pytest.mark.parametrize("vary", ["*", "x-a, *", ["x-a", "*"], "not a token", ", ".join(f"x-{n}" for n in range(17))])
def test_what_nobody_can_select_is_not_kept(vary):
    assert not kept(say(vary=vary))


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "via", "x-user"])
def test_what_the_gateway_has_written_selects_nothing(name):
    class Adds:
        name, stage, timeout, opens, proceeds, outlives, applies, count = "a", "b", 0, True, True, False, None, print
        module = None

        @staticmethod
        def process(exchange):
            exchange.request.headers.set(b"x-user", b"ada")

    scene = Scene(behind=(Adds,))
    scene.answers = [say(vary=name)]
    assert scene.get().told == "fwd=uri-miss; fwd-status=200; detail=vary"


# -- RFC 9213: targeted fields


@pytest.mark.parametrize(
    ("targeted", "control", "hit"),
    [
        ("max-age=60", "no-store", True),
        ("max-age=60", "private", True),
        ("no-store", "max-age=60", False),
        ("max-age=0", "max-age=60", False),
        ("private", "max-age=60", False),
        ("max-age=60, max-age=0", None, False),
        ("max-age=0, max-age=60", None, True),
        ("max-age=60;a=b, x=(1 2)", "no-store", False),
        ("max-age=60;a=b, x=?0", "no-store", True),
        ('max-age="60"', "max-age=60", False),
        ("max-age=60.5", "max-age=60", False),
        ("MAX-AGE=60", "max-age=60", True),
        ("max-age=60,", "no-store", False),
        ("", "max-age=60", True),
        ("no-store=?0, max-age=60", None, True),
    ],
)
def test_cdn_cache_control(targeted, control, hit):
    assert kept(say(control, cdn_cache_control=targeted)) is hit


def test_expires_does_not_count_next_to_a_targeted_field():
    assert not kept(say(None, cdn_cache_control="public", expires=date(60)))


def test_targeted_fields_in_order():
    fields = {"edge_cache_control": "max-age=60", "cdn_cache_control": "no-store"}
    assert kept(say(None, **fields), targeted=["edge-cache-control", "cdn-cache-control"])
    assert not kept(say(None, **fields))
    assert not kept(say(None, cdn_cache_control="max-age=60"), targeted=[])
