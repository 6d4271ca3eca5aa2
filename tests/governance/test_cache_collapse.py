"""cache: many clients, one question to the upstream."""

from __future__ import annotations

from caches import REFUSED, Scene, say
from twisted.internet.defer import Deferred

from protogate.message import Response
from protogate.testing.bodies import Giver


def crowd(scene, count=5, *headers):
    return [scene.get(*headers) for _ in range(count)]


def test_one_asks_for_all():
    scene, late = Scene(), Deferred()
    scene.answers = [late]
    clients = crowd(scene)
    assert (scene.asked, [client.response for client in clients]) == (1, [None] * 5)
    late.callback(say())
    assert {client.data for client in clients} == {b"hello"}
    assert clients[0].told == "fwd=uri-miss; fwd-status=200; stored"
    assert clients[1].told == "fwd=uri-miss; collapsed; ttl=60"
    assert (scene.asked, scene.counted["collapsed"]) == (1, 4)


def test_content_whose_length_is_known_is_shared_while_it_comes():
    scene, giver = Scene(), Giver([b"hel"], 5, close=False)
    late = Deferred()
    scene.answers = [late]
    clients = crowd(scene, 3)
    late.callback(say(body=giver.body))
    assert [client.data for client in clients] == [b"hel"] * 3
    clients.append(scene.get())
    giver.write(b"lo")
    giver.finish()
    assert [client.data for client in clients] == [b"hello"] * 4
    assert scene.asked == 1


def test_content_whose_length_is_not_known_is_waited_for():
    scene, giver = Scene(), Giver([b"hel"], close=False)
    scene.answers = [say(body=giver.body)]
    first, second = scene.get(), scene.get()
    assert (first.data, second.response) == (b"hel", None)
    giver.write(b"lo")
    giver.finish()
    assert (first.data, second.data, scene.asked) == (b"hello", b"hello", 1)


def test_a_slow_reader_holds_up_nobody():
    scene, giver = Scene(), Giver([b"he", b"l", b"lo"], 5)
    scene.answers = [say(body=giver.body)]
    slow, quick = scene.get(limit=1), scene.get()
    assert (slow.data, quick.data) == (b"he", b"hello")
    slow.taker.resume()
    slow.taker.resume()
    slow.taker.resume()
    assert slow.data == b"hello"
    assert slow.taker.finished


def test_an_answer_for_one_is_for_one():
    scene, late = Scene(), Deferred()
    scene.answers = [late, *(say("private", content=b"%d" % number) for number in range(9))]
    clients = crowd(scene, 4)
    late.callback(say("private", content=b"first"))
    assert [client.data for client in clients] == [b"first", b"0", b"1", b"2"]
    before = scene.asked
    more = Deferred()
    scene.answers.insert(0, more)
    crowd(scene, 3)
    assert scene.asked == before + 3, "nobody waits where there was nothing to share"
    more.callback(say("private"))


def test_who_says_who_asks_shares_with_its_like_only():
    scene, late, mine = Scene(), Deferred(), Deferred()
    scene.answers = [mine, late, say("no-store", b"also mine")]
    somebody, also = crowd(scene, 2, "authorization: a")
    nobody, neither = crowd(scene, 2)
    mine.callback(say(content=b"mine"))
    assert (somebody.data, also.data) == (b"mine", b"also mine")
    assert (nobody.response, neither.response) == (None, None)
    late.callback(say())
    assert (nobody.data, neither.data) == (b"hello", b"hello")
    assert scene.get("authorization: b").data == b"hello"


def test_what_is_for_somebody_takes_nothing_from_others():
    scene = Scene()
    scene.keep(say("max-age=10", etag='"a"'))
    scene.wait(11)
    scene.answers = [say("max-age=10", b"mine"), Response(304, protocol="HTTP/1.1"), Response(304, protocol="HTTP/1.1")]
    assert scene.get("authorization: a").data == b"mine"
    assert scene.get("authorization: b").data == b"hello"
    assert scene.get().told == "fwd=stale; fwd-status=304; ttl=10"


def test_a_leader_that_fails_hands_over():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say()]
    clients = crowd(scene, 3)
    late.errback(REFUSED)
    assert [client.status for client in clients] == [502, 200, 200]
    assert scene.asked == 2


def test_so_does_one_that_is_answered_500():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say()]
    clients = crowd(scene, 3)
    late.callback(say("no-store", status=500))
    assert [client.status for client in clients] == [500, 200, 200]


def test_so_does_one_that_leaves_before_the_answer():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say()]
    clients = crowd(scene, 3)
    clients[0].leave()
    assert [client.status for client in clients] == [None, 200, 200]
    assert (scene.asked, scene.cache.flights) == (2, {})


def test_one_that_leaves_within_the_content_harms_nobody():
    for length in (5, None):
        scene, giver = Scene(), Giver([b"hel"], length, close=False)
        scene.answers = [say(body=giver.body)]
        first, second = scene.get(), scene.get()
        first.leave()
        assert not giver.stopped
        giver.write(b"lo")
        giver.finish()
        assert (second.data, scene.asked, scene.cache.flights) == (b"hello", 1, {})


def test_content_that_breaks_off_is_asked_for_again_by_those_who_have_seen_nothing_of_it():
    scene, giver = Scene(), Giver([b"hel"], close=False)
    scene.answers = [say(body=giver.body), say()]
    first, second = scene.get(), scene.get()
    giver.abort(REFUSED)
    assert first.taker.reason is REFUSED
    assert (second.data, scene.asked) == (b"hello", 2)


def test_content_that_breaks_off_breaks_off_for_all_who_read_it():
    scene, giver = Scene(), Giver([b"hel"], 5, close=False)
    scene.answers = [say(body=giver.body), say()]
    clients = crowd(scene, 2)
    giver.abort(REFUSED)
    assert [client.taker.reason for client in clients] == [REFUSED, REFUSED]
    assert scene.get().data == b"hello"


def test_content_that_is_too_large_is_asked_for_by_each():
    scene, giver = Scene(objectSize="4B"), Giver([b"hel"], close=False)
    scene.answers = [say(body=giver.body), say(content=b"again")]
    first, second = scene.get(), scene.get()
    giver.write(b"lo")
    assert second.data == b"again"
    giver.finish()
    assert first.data == b"hello"
    assert scene.cache.flights == {}


def test_who_waits_does_so_for_a_time():
    scene, late = Scene(wait="500ms"), Deferred()
    scene.answers = [late, say(content=b"own")]
    first, second = scene.get(), scene.get()
    scene.wait(0.4)
    assert second.response is None
    scene.wait(0.2)
    assert (first.response, second.data) == (None, b"own")
    late.callback(say())
    assert first.data == b"hello"


def test_nobody_waits_where_the_file_says_so():
    scene, late = Scene(wait="0s"), Deferred()
    scene.answers = [late, say(content=b"own")]
    scene.get()
    assert scene.get().data == b"own"
    late.callback(say())


def test_who_waits_may_leave():
    scene, late = Scene(), Deferred()
    scene.answers = [late]
    first, second, third = crowd(scene, 3)
    second.leave()
    late.callback(say())
    assert (first.data, third.data) == (b"hello", b"hello")


def test_who_wants_a_new_answer_does_not_wait_for_an_old_one():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say(content=b"new")]
    scene.get()
    assert scene.get("cache-control: no-cache").data == b"new"
    late.callback(say())


def test_another_variant_is_asked_for():
    scene, late = Scene(), Deferred()
    scene.answers = [late, say(content=b"fr", vary="accept-language")]
    german, french, also = (
        scene.get("accept-language: de"),
        scene.get("accept-language: fr"),
        scene.get("accept-language: de"),
    )
    late.callback(say(content=b"de", vary="accept-language"))
    assert (german.data, french.data, also.data, scene.asked) == (b"de", b"fr", b"de", 2)


def test_one_asks_whether_it_is_still_good():
    scene, late = Scene(), Deferred()
    scene.keep(say("max-age=1", etag='"a"'))
    scene.wait(2)
    scene.answers = [late]
    clients = crowd(scene, 3)
    late.callback(Response(304, [(b"cache-control", b"max-age=60")], protocol="HTTP/1.1"))
    assert ([client.data for client in clients], scene.asked) == ([b"hello"] * 3, 2)


def test_what_must_be_asked_each_time_is_asked_by_each():
    scene, late = Scene(), Deferred()
    scene.keep(say("no-cache", etag='"a"'))
    scene.answers = [late, *(Response(304, protocol="HTTP/1.1") for _ in range(3))]
    clients = crowd(scene, 3)
    assert scene.asked == 4
    late.callback(Response(304, protocol="HTTP/1.1"))
    assert [client.data for client in clients] == [b"hello"] * 3


def test_an_origin_that_fails_is_asked_once_and_all_are_given_what_is_stale():
    scene, late = Scene(staleIfError="1m"), Deferred()
    scene.keep(say("max-age=1"))
    scene.wait(2)
    scene.answers = [late]
    clients = crowd(scene, 3)
    late.errback(REFUSED)
    assert ([client.data for client in clients], scene.asked) == ([b"hello"] * 3, 2)


def test_in_the_background_one_asks_at_a_time():
    scene, late = Scene(), Deferred()
    scene.keep(say("max-age=1, stale-while-revalidate=60"))
    scene.wait(2)
    scene.answers = [late, say(content=b"newer")]
    assert [client.data for client in crowd(scene, 3)] == [b"hello"] * 3
    scene.wait(10)
    assert [client.data for client in crowd(scene, 3)] == [b"hello"] * 3
    assert scene.asked == 2
    late.errback(REFUSED)
    assert scene.get().data == b"hello"
    assert scene.asked == 2, "an origin that failed a moment ago is left alone for a moment"
    scene.wait(2)
    scene.get()
    assert (scene.get().data, scene.asked) == (b"newer", 3)


def test_in_the_background_nobodys_credentials_are_used_unless_the_answer_may_be_shared():
    for control, sent in (("max-age=1", None), ("max-age=1, public", b"Bearer a")):
        scene = Scene()
        scene.keep(say(f"{control}, stale-while-revalidate=60"), say(control))
        scene.wait(2)
        scene.get("authorization: Bearer a")
        assert scene.origin.requests[1].headers.get(b"authorization") == sent
