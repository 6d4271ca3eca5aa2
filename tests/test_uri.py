"""protogate.uri: the authority, the canonical path, query and cookies."""

from __future__ import annotations

import posixpath
import re
from ipaddress import IPv6Address
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.uri import _USUAL, PARAMETERS, authority, canonical, cookies_of, host_of, query_of, usual

# Authority


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        (b"a", "a", None),
        (b"a:0", "a", 0),
        (b"a:80", "a", 80),
        (b"a:00080", "a", 80),
        (b"a:00000065535", "a", 65535),
        (b"A.Test:8080", "a.test", 8080),
        (b"a.test.", "a.test", None),
        (b"a.test.:80", "a.test", 80),
        (b"my_service", "my_service", None),
        (b"xn--bcher-kva.test", "xn--bcher-kva.test", None),
        (b"a!$&'()*+,;=~b", "a!$&'()*+,;=~b", None),
        (b"192.0.2.1", "192.0.2.1", None),
        (b"192.0.2.1:443", "192.0.2.1", 443),
        (b"[::1]", "::1", None),
        (b"[::1]:8080", "::1", 8080),
        (b"[2001:DB8:0:0::1]:1", "2001:db8::1", 1),
        (b"[1:2:3:4:5:6:192.0.2.1]", "1:2:3:4:5:6:c000:201", None),
    ],
)
def test_authority_gives_host_and_port(value: bytes, host: str, port: int | None) -> None:
    assert authority(value) == (host, port)
    assert host_of(value) == host


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "the host is empty"),
        (b":80", "the host is empty"),
        (b"::1", "an IPv6 address needs brackets"),
        (b"a:80:80", "an IPv6 address needs brackets"),
        (b"[::1", "the closing bracket is missing"),
        (b"[", "the closing bracket is missing"),
        (b"[::1]x", "only a colon and a port"),
        (b"[::1]80", "only a colon and a port"),
        (b"[fe80::1%25eth0]", "a zone id"),
        (b"[fe80::1%eth0]", "a zone id"),
        (b"[v1.fe80::a]", "IPvFuture"),
        (b"[::g]", "not a host name"),
        (b"[]", "not a host name"),
        (b"[1.2.3.4]", "not an IPv6 address"),
        (b"[1::2::3]", "not an IPv6 address"),
        (b"[::ffff:1.2.3.04]", "not an IPv6 address"),
        (b"a:", "the port is missing"),
        (b"[::1]:", "the port is missing"),
        (b"a:65536", "above 65535"),
        (b"a:100000", "above 65535"),
        (b"a:+80", "not a number"),
        (b"a:-1", "not a number"),
        (b"a: 80", "not visible ASCII"),
        (b"a:8_0", "not a number"),
        ("a:\uff18\uff10".encode(), "not visible ASCII"),
        ("ä.test".encode(), "not visible ASCII"),
        (b"a\n", "not visible ASCII"),
        (b" a", "not visible ASCII"),
        (b"a\x00", "not visible ASCII"),
        (b"user@a", "user information"),
        (b"user:secret@a:80", "user information"),
        (b"a%2eb", "percent-encoding"),
        (b".", "a label of the host is empty"),
        (b".a", "a label of the host is empty"),
        (b"a..b", "a label of the host is empty"),
        (b"a..", "a label of the host is empty"),
        (b"a/b", "not a host name"),
        (b"a?b", "not a host name"),
        (b"a#b", "not a host name"),
        (b"a\\b", "not a host name"),
        (b"http://a", "not a number"),
    ],
)
def test_authority_refuses(value: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        authority(value)
    assert str(caught.value).isprintable()
    assert host_of(value) == ""


def test_a_long_authority_is_not_quoted_whole() -> None:
    with pytest.raises(ValueError, match="…") as caught:
        authority(b"@" * 10_000)
    assert len(str(caught.value)) < 250


LABEL = st.from_regex(rb"[a-z0-9_~!$&'()*+,;=-]+", fullmatch=True)


@given(st.lists(LABEL, min_size=1, max_size=5), st.one_of(st.none(), st.integers(0, 65535)), st.booleans())
def test_registered_names_are_read_as_urlsplit_reads_them(labels: list[bytes], port: int | None, rooted: bool) -> None:
    host = b".".join(labels)
    value = host + b"." * rooted + (b"" if port is None else b":%d" % port)
    assert authority(value) == (host.decode(), port)
    split = urlsplit(f"http://{value.decode()}/")
    assert (str(split.hostname).removesuffix("."), split.port) == (host.decode(), port)


@given(st.ip_addresses(v=6), st.integers(0, 65535))
def test_every_ipv6_address_comes_in_its_canonical_form(address: IPv6Address, port: int) -> None:
    assert authority(b"[%s]:%d" % (address.exploded.upper().encode(), port)) == (str(address), port)


@given(st.one_of(st.binary(max_size=20), st.text(alphabet="aZ0.:[]%@-1f", max_size=12).map(str.encode)))
def test_host_of_never_raises_and_agrees_with_authority(value: bytes) -> None:
    try:
        host, port = authority(value)
    except ValueError:
        assert host_of(value) == ""
    else:
        assert host_of(value) == host != ""
        assert port is None or 0 <= port <= 65535
        again = f"[{host}]" if ":" in host else host
        assert authority(again.encode()) == (host, None)


# Path


@pytest.mark.parametrize(
    ("path", "form", "plain"),
    [
        (b"/", "/", True),
        (b"/a", "/a", True),
        (b"/a/", "/a/", True),
        (b"/a/b.c;d=1/~e", "/a/b.c;d=1/~e", True),
        (b"/.well-known/acme", "/.well-known/acme", True),
        (b"/...a/..b/c..", "/...a/..b/c..", True),
        # Repeated slashes count as one, and are forwarded.
        (b"//", "/", True),
        (b"//b", "/b", True),
        (b"/a//b", "/a/b", True),
        (b"/a///", "/a/", True),
        # Spelling.
        (b"/%61%2Db", "/a-b", True),
        (b"/caf%c3%a9", "/caf%C3%A9", True),
        ("/café".encode(), "/caf%C3%A9", True),
        (b'/a|b"{}^`<>[]', "/a%7Cb%22%7B%7D%5E%60%3C%3E%5B%5D", True),
        (b"/a%20b", "/a%20b", True),
        (b"/%40%3A%21", "/%40%3A%21", True),
        # Escaped slashes stay.
        (b"/a%2Fb", "/a%2Fb", True),
        (b"/a%2fb", "/a%2Fb", True),
        (b"/a%5cb", "/a%5Cb", True),
        (b"/@scope%2fname", "/@scope%2Fname", True),
        # Double encoding stays double.
        (b"/%252e%252e/b", "/%252e%252e/b", True),
        (b"/%2561", "/%2561", True),
        (b"/%252fb", "/%252fb", True),
        # Dot segments are resolved, and then the form is forwarded.
        (b"/a/../b", "/b", False),
        (b"/a/%2e%2e/b", "/b", False),
        (b"/a/.%2e/b", "/b", False),
        (b"/a/%2E./b", "/b", False),
        (b"/a/./b", "/a/b", False),
        (b"/./a", "/a", False),
        (b"/a/.", "/a/", False),
        (b"/a/..", "/", False),
        (b"/a/b/..", "/a/", False),
        (b"/a//../b", "/b", False),
        (b"/a/b/../../c/", "/c/", False),
        (b"/a%2Fb/../c", "/c", False),
        (b"/.", "/", False),
    ],
)
def test_canonical_form(path: bytes, form: str, plain: bool) -> None:
    assert canonical(path) == (form, plain)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        # Not a path.
        (b"", "does not start with a slash"),
        (b"*", "does not start with a slash"),
        (b"a/b", "does not start with a slash"),
        (b"http://a/b", "does not start with a slash"),
        (b"%2fa", "does not start with a slash"),
        # Percent-encoding.
        (b"/a/%", "without two hex digits"),
        (b"/a/%2", "without two hex digits"),
        (b"/a/%zz", "without two hex digits"),
        (b"/a/%2%65", "without two hex digits"),
        (b"/%u002e", "without two hex digits"),
        ("/%\uff12e".encode(), "without two hex digits"),
        # Control characters and what a path cannot hold.
        (b"/%00", "control character %00"),
        (b"/a%0d%0ab", "control character %0d"),
        (b"/a%1F", "control character %1F"),
        (b"/a%7f", "control character %7f"),
        (b"/a\x00", "must be percent-encoded"),
        (b"/a\r\nb", "must be percent-encoded"),
        (b"/a\x7f", "must be percent-encoded"),
        (b"/a b", "must be percent-encoded"),
        (b"/a\tb", "must be percent-encoded"),
        (b"/\\b", "must be percent-encoded"),
        (b"/\\..\\b", "must be percent-encoded"),
        (b"/a#b", "must be percent-encoded"),
        (b"/a?b", "must be percent-encoded"),
        # Climbing.
        (b"/..", "climbs above the root"),
        (b"/../a", "climbs above the root"),
        (b"/a/../../b", "climbs above the root"),
        (b"/a/%2e%2e/%2e%2e/b", "climbs above the root"),
        (b"//..", "climbs above the root"),
        # Dot segments for others.
        (b"/a/%2e%2e%2fb", "parsers do not agree"),
        (b"/a%2f..%2fb", "parsers do not agree"),
        (b"/public%2f..%2fadmin", "parsers do not agree"),
        (b"/a%2F..", "parsers do not agree"),
        (b"/a%2f.%2fb", "parsers do not agree"),
        (b"/.%2fb", "parsers do not agree"),
        (b"/..%5cb", "parsers do not agree"),
        (b"/a%5c..%5Cb", "parsers do not agree"),
        (b"/a%5c%2e%2e", "parsers do not agree"),
        (b"/a/..;/b", "parsers do not agree"),
        (b"/..;x=1/", "parsers do not agree"),
        (b"/a/.;x=1/b", "parsers do not agree"),
        (b"/a/%2e%2e%3bx/b", "parsers do not agree"),
        (b"/a;x%2f..;y/b", "parsers do not agree"),
        (b"/....//b", "parsers do not agree"),
        (b"/a/.../b", "parsers do not agree"),
        (b"/a/..%20/b", "parsers do not agree"),
        (b"/a/..%3fb", "parsers do not agree"),
        (b"/a/..%23", "parsers do not agree"),
        (b"/%c0%ae%c0%ae/b", "parsers do not agree"),
        (b"/a%c0%af..%c0%afb", "parsers do not agree"),
        (b"/a/%e0%80%ae./b", "parsers do not agree"),
        (b"/..%c1%9cb", "parsers do not agree"),
        # Empty segments for others.
        (b"/;x/admin", "parsers do not agree"),
        (b"/;/admin", "parsers do not agree"),
        (b"/a/%3bx=1/b", "parsers do not agree"),
        (b"/a/;/", "parsers do not agree"),
        # Also where a plain dot segment would take it away again.
        (b"/a/..;x/../b", "parsers do not agree"),
    ],
)
def test_paths_that_are_refused(path: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        canonical(path)


PIECES = st.sampled_from(
    [
        b"/",
        b"a",
        b"B",
        b".",
        b"..",
        b"%2e",
        b"%2E",
        b"%2f",
        b"%5C",
        b"%41",
        b"%c3%a9",
        b"%25",
        b"\xff",
        b"|",
        b";",
        b"//",
        b"~",
    ]
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=14).map(lambda pieces: b"/" + b"".join(pieces)),
    st.binary(max_size=12).map(lambda rest: b"/" + rest),
)
CANONICAL = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2}|%25)*")


@given(PATHS)
def test_the_form_is_canonical_itself(path: bytes) -> None:
    try:
        form, plain = canonical(path)
    except ValueError:
        return
    assert canonical(form.encode("ascii")) == (form, True)
    assert CANONICAL.fullmatch(form)
    assert "//" not in form
    assert not {".", ".."} & set(form.split("/"))
    # However often somebody decodes it: no dot segment turns up behind a slash or a backslash.
    seen = unquote_to_bytes(form).replace(b"\\", b"/")
    assert not {b".", b".."} & {segment.partition(b";")[0] for segment in seen.split(b"/")}
    # What is forwarded as it came means the same as the form.
    if plain:
        assert re.sub(rb"/+", b"/", unquote_to_bytes(path)) == re.sub(rb"/+", b"/", unquote_to_bytes(form))


@given(st.lists(st.sampled_from(["a", "b", ".", "..", "", "c d", "é"]), min_size=1, max_size=10))
def test_dot_segments_are_resolved_as_posixpath_does(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    try:
        form, _ = canonical(quote(path).encode())
    except ValueError as error:
        assert "climbs" in str(error)  # noqa: PT017
        return
    assert form.rstrip("/") == quote("/" + posixpath.normpath(path).strip("/")).rstrip("/")


@given(st.binary(min_size=1, max_size=8))
def test_what_quote_encodes_is_its_own_form(segment: bytes) -> None:
    path = "/x" + quote(segment, safe="")
    if not re.search(rb"[\x00-\x1f\x7f]", segment) and not re.search(rb"[/\\]\.+ *([;/\\]|\Z)", segment):
        assert canonical(path.encode()) == (path, True)


# Query and cookies


@pytest.mark.parametrize(
    ("target", "parameters"),
    [
        (b"/a", {}),
        (b"/a?", {}),
        (b"/a?&&", {}),
        (b"/a?x", {"x": ""}),
        (b"/a?x=1&y=2", {"x": "1", "y": "2"}),
        (b"/a?x=1&x=2", {"x": "1"}),
        (b"/a?x=1;y=2", {"x": "1;y=2"}),
        (b"/a?x=a=b?c", {"x": "a=b?c"}),
        (b"/a?=1", {"": "1"}),
        (b"/a?a+b=c+d%2Be", {"a b": "c d+e"}),
        (b"/a?x=%E4%B8%8A", {"x": "上"}),
        (b"/a?%78=%zz%4", {"x": "%zz%4"}),
        (b"/a?x=%ff", {"x": "\ufffd"}),
        (b"/a?x=\xff", {"x": "\ufffd"}),
    ],
)
def test_query(target: bytes, parameters: dict[str, str]) -> None:
    assert query_of(target) == parameters


@given(st.text(alphabet="ab=&+%41 ;", max_size=30))
def test_query_is_read_as_urllib_reads_it(query: str) -> None:
    assert query_of(b"/?" + query.encode()) == dict(reversed(parse_qsl(query, keep_blank_values=True)))


@given(st.binary(max_size=60))
def test_query_and_cookies_take_anything(data: bytes) -> None:
    for text in (*query_of(data).items(), *cookies_of([data]).items()):
        assert all(part.encode() is not None for part in text)


def test_the_number_of_parameters_is_bounded() -> None:
    target = b"/?" + b"&".join(b"p%d=%d" % (n, n) for n in range(PARAMETERS + 5))
    parameters = query_of(target)
    assert len(parameters) == PARAMETERS
    assert parameters[f"p{PARAMETERS - 1}"] == str(PARAMETERS - 1)


@pytest.mark.parametrize(
    ("lines", "cookies"),
    [
        ([], {}),
        ([b""], {}),
        ([b"sid=1"], {"sid": "1"}),
        ([b"sid=1; lang=en"], {"sid": "1", "lang": "en"}),
        ([b"sid=1;lang=en ;"], {"sid": "1", "lang": "en"}),
        ([b"sid=1", b"sid=2; x=y"], {"sid": "1", "x": "y"}),
        ([b"a=b=c"], {"a": "b=c"}),
        ([b'q="x y"'], {"q": '"x y"'}),
        ([b"p=%41"], {"p": "%41"}),
        ([b"flag; =x; sid="], {"sid": ""}),
        ([b"a=\xc3\xa9; b=\xff"], {"a": "\xc3\xa9", "b": "\xff"}),
        ([b"\x0ba=\x0b1"], {"\x0ba": "\x0b1"}),
    ],
)
def test_cookies(lines: list[bytes], cookies: dict[str, str]) -> None:
    assert cookies_of(lines) == cookies


def test_the_number_of_cookies_is_bounded_over_all_lines() -> None:
    lines = [b"; ".join(b"c%d=%d" % (n, n) for n in range(start, start + 700)) for start in (0, 700)]
    assert len(cookies_of([*lines, b"late=1"])) == PARAMETERS


@given(
    st.lists(st.sampled_from([b"/", b"//", b"a", b"a.b", b".", b";", b"%41", b"~", b" ", b"\xff", b"?"]), max_size=6)
)
def test_the_short_way_finds_just_those_paths_usual_that_the_pattern_does(parts: list[bytes]) -> None:
    path = b"".join(parts)
    assert usual(path) is (_USUAL(path) is not None)
