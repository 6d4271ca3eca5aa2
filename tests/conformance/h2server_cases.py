r"""
Rules that bind a server.

Its application answers C{/} with C{ok}, C{/big} with a MiB, C{/sink} with the length of what it read, once all of it
has come, and C{/hold} never: that one reads nothing, either.
"""

from __future__ import annotations

from collections.abc import Callable

from h2case import MALFORMED, OPEN, Item, Table, answer, closed, reset

from h2frames import (
    CONTINUATION,
    DATA,
    END_STREAM,
    EXTENDED,
    PREFACE,
    STREAMS,
    TABLE,
    TOP,
    WINDOW,
    Field,
    continuation,
    data,
    fields,
    goaway,
    headers,
    integer,
    literal,
    many,
    ping,
    priority,
    promise,
    raw,
    req,
    request,
    rst,
    settings,
    string,
    window,
)
from h2peer import Peer

server = Table()
"""The cases."""
UPLOAD = req(1, b"/sink", b"POST", end=False)
SHUT = {WINDOW: 0}
"""With this, an answer is begun, and its stream stays half-closed (remote)."""
CLOSED = ("closed STREAM_CLOSED", "reset STREAM_CLOSED")

# -- 3.4 preface

server(
    "3.4-http1",
    "What does not begin with the preface is a connection error.",
    [],
    closed("PROTOCOL_ERROR"),
    preface=b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
)
server(
    "3.4-nearly",
    "Also when it is nearly the preface.",
    [],
    closed("PROTOCOL_ERROR"),
    preface=PREFACE[:-4] + b"\r\n\n\n" + settings(),
)
server("3.4-no-settings", "SETTINGS must come next.", [], closed("PROTOCOL_ERROR"), preface=PREFACE + req(1))
server("3.4-ping-first", "And nothing else.", [], closed("PROTOCOL_ERROR"), preface=PREFACE + ping())
server("3.4-empty-settings", "They may be empty.", [req(1)], answer(), preface=PREFACE + settings())
server(
    "3.4-at-once",
    "A client may ask before it has seen the server's SETTINGS.",
    [],
    answer(),
    preface=PREFACE + settings() + req(1),
)

# -- 4.3

server(
    "4.3-reset-stream",
    "The block of a request that is reset at once still counts for the table.",
    [
        headers(1, fields(request(b"/hold")) + literal(b"x-kept", b"1", 0x40))
        + rst(1)
        + headers(3, fields(request()) + b"\xbe")
    ],
    answer(),
    stream=3,
)
server(
    "4.3-too-large",
    "So does that of a request whose fields are too many to be taken.",
    [
        headers(1, fields([*request(), *many(15000)]) + literal(b"x-kept", b"1", 0x40), last=False)
        + b"".join(continuation(1, fields(many(16000)), last) for last in (False, False, False, False, True)),
        headers(3, fields(request()) + b"\xbe"),
    ],
    answer(),
    stream=3,
)

# -- 5.1 states

for name, frame in {
    "data": data(1, b"x"),
    "headers": req(1),
    "trailers": headers(1, fields([(b"x-a", b"1")])),
}.items():
    server(
        f"5.1-half-closed-{name}",
        "Behind END_STREAM: a stream error of type STREAM_CLOSED.",
        [req(1, b"/big"), frame],
        reset("STREAM_CLOSED"),
        said=SHUT,
    )
    server(
        f"5.1-closed-{name}",
        "On a stream where all is said: a connection error of type STREAM_CLOSED, at most.",
        [req(1), frame],
        (*closed("STREAM_CLOSED"), *reset("STREAM_CLOSED"), *answer()),
    )
    server(
        f"5.1-reset-{name}",
        "On a stream that the client itself reset: likewise.",
        [req(1, b"/hold"), rst(1), frame],
        (*CLOSED, *OPEN),
    )
for name, frame in {"window": window(1, 9), "priority": priority(1), "rst": rst(1)}.items():
    server(
        f"5.1-half-closed-{name}",
        "WINDOW_UPDATE, PRIORITY and RST_STREAM may come behind END_STREAM.",
        [req(1, b"/hold"), frame],
        OPEN,
    )
    server(f"5.1-closed-{name}", "And while the peer cannot know that the stream is closed.", [req(1), frame], answer())
server(
    "5.1-half-closed-continuation",
    "CONTINUATION behind END_STREAM is a connection error.",
    [req(1, b"/big"), raw(CONTINUATION, 4, 1)],
    closed("PROTOCOL_ERROR"),
    said=SHUT,
    section="6.10",
)
server("5.1.1-even", "Clients' streams have odd numbers.", [req(2)], closed("PROTOCOL_ERROR"))
server(
    "5.1.1-lower",
    "A new stream has a higher number than all before.",
    [req(5), req(3)],
    closed("PROTOCOL_ERROR"),
    stream=3,
)
server("5.1.1-skipped", "Numbers may be left out.", [req(1), req(99)], answer(), stream=99)
server("5.1.1-top", "The highest number may be used.", [req(TOP)], answer(), stream=TOP, then=False)
server(
    "5.1.1-passed-data",
    "A number that was left out is closed, not idle: STREAM_CLOSED, if not PROTOCOL_ERROR.",
    [req(5, b"/hold"), data(3, b"x")],
    (*closed("STREAM_CLOSED", "PROTOCOL_ERROR"), *reset("STREAM_CLOSED")),
    stream=3,
)


def full(peer: Peer) -> bytes:
    """As many requests as there may be."""
    return b"".join(req(1 + 2 * n, b"/hold") for n in range(peer.settings[STREAMS]))


def freed(peer: Peer) -> bytes:
    """None of them is wanted any more."""
    return b"".join(rst(1 + 2 * n) for n in range(peer.settings[STREAMS]))


server(
    "5.1.2-beyond",
    "A stream beyond SETTINGS_MAX_CONCURRENT_STREAMS is a stream error.",
    [full, req(1999)],
    reset("REFUSED_STREAM", "PROTOCOL_ERROR"),
    stream=1999,
    then=False,
)
server("5.1.2-again", "Streams that are over count no more.", [full, freed, req(3001)], answer(), stream=3001)

# -- 5.2, 6.9 windows


def held(stream: int, size: int) -> Callable[[Peer], bytes]:
    """So much has come, and no more; then nothing is sent."""

    def look(peer: Peer) -> bytes:
        assert len(peer.messages[stream].content) == size, f"{len(peer.messages[stream].content)} of {size}"
        return b""

    return look


server("6.9.1-closed", "Nothing is sent into a window of 0.", [req(1, b"/big"), held(1, 0)], OPEN, said=SHUT)
server(
    "6.9.1-one",
    "Nor more than there is room for.",
    [req(1, b"/big"), held(1, 1), window(1, 7), held(1, 8)],
    OPEN,
    said={WINDOW: 1},
)
server(
    "6.9.1-initial",
    "At first there is room for 65,535 bytes on the connection.",
    [req(1, b"/big"), held(1, 65535), window(0, 9), held(1, 65544)],
    OPEN,
    said={WINDOW: TOP},
)
server(
    "6.9.1-all",
    "All of it comes, with room for it.",
    [window(0, 1 << 21) + req(1, b"/big")],
    answer(),
    said={WINDOW: TOP},
)
server(
    "6.9.1-headers",
    "Only DATA is held back.",
    [req(1, b"/big"), held(1, 0), req(3, b"/", b"HEAD")],
    answer(),
    stream=3,
    said=SHUT,
)
server(
    "6.9.2-later",
    "A larger INITIAL_WINDOW_SIZE gives room to streams that are there.",
    [req(1, b"/big"), held(1, 0), settings((WINDOW, 10)), held(1, 10), settings((WINDOW, 15)), held(1, 15)],
    OPEN,
    said=SHUT,
)
server(
    "6.9.2-negative",
    "A smaller one can leave a window below 0: nothing is sent until it is above.",
    [req(1, b"/big"), held(1, 20), settings((WINDOW, 5)), window(1, 15), held(1, 20), window(1, 3), held(1, 23)],
    OPEN,
    said={WINDOW: 20},
)
server(
    "6.5.3-order",
    "Settings are taken in their order.",
    [settings((WINDOW, 100), (WINDOW, 3)), req(1, b"/big"), held(1, 3)],
    OPEN,
)


def over(path: bytes) -> Callable[[Peer], bytes]:
    """One byte more than a stream that nobody reads has room for."""

    def make(peer: Peer) -> bytes:
        room = peer.settings.get(WINDOW, 65535) + peer.credit[1] + 1
        whole, rest = divmod(room, 16384)
        return data(1, bytes(16384)) * whole + data(1, bytes(rest))

    return make


server(
    "6.9.1-beyond",
    "DATA beyond the window: FLOW_CONTROL_ERROR on the stream or the connection.",
    [req(1, b"/hold", b"POST", end=False), over(b"/hold")],
    (*reset("FLOW_CONTROL_ERROR"), *closed("FLOW_CONTROL_ERROR")),
)


def upload(stream: int, size: int, pad: int | None = None) -> list[Item]:
    """Content in pieces, each no larger than the windows are by then."""
    more = 0 if pad is None else pad + 1

    def piece(peer: Peer) -> bytes:
        left = size - peer.content[stream]
        if not left:
            return b""
        initial = peer.settings.get(WINDOW, 65535)
        room = min(initial + peer.credit[stream], 65535 + peer.credit[0]) - peer.spent[stream]
        now = min(room - more, 16384 - more, left)
        assert now > 0, "nothing was given back"
        return data(stream, bytes(now), now == left, pad)

    return [piece] * (3 * -(-size // 16000))


def length(size: int) -> Callable[[Peer], None]:
    """The application read so much."""

    def look(peer: Peer) -> None:
        assert peer.messages[1].content == b"%d" % size

    return look


server(
    "6.9-credit",
    "Room is given back as content is read.",
    [UPLOAD, *upload(1, 400_000)],
    answer(),
    look=length(400_000),
)
server(
    "6.9.1-padding",
    "Padding takes room, and is given back.",
    [UPLOAD, *upload(1, 100_000, 255)],
    answer(),
    look=length(100_000),
)
server(
    "6.9.1-only-padding",
    "Also in frames that hold nothing else.",
    [UPLOAD, *[data(1, b"", pad=255)] * 600, data(1, b"x", True)],
    answer(),
    look=length(1),
)


def discarded(count: int, each: int) -> Callable[[Peer], None]:
    """All but a window's worth of it was given back to the connection."""

    def look(peer: Peer) -> None:
        assert peer.credit[0] > count * each - 65535, f"{peer.credit[0]} of {count * each}"

    return look


# -- 6.1 to 6.10

server(
    "6.1-padded",
    "Padding is taken off.",
    [UPLOAD, data(1, b"hello", pad=99), data(1, b"!", True, 0)],
    answer(),
    look=length(6),
)
server("6.1-empty", "DATA may be empty.", [UPLOAD, data(1), data(1, b"x"), data(1, end=True)], answer(), look=length(1))
server("6.1-all-padding", "Or nothing but padding.", [UPLOAD, data(1, b"", True, 255)], answer(), look=length(0))
server(
    "6.1-flags",
    "Unused flags of DATA are ignored.",
    [UPLOAD, raw(DATA, 0xF6 | END_STREAM, 1, b"hello")],
    answer(),
    look=length(5),
    section="4.1",
)
server(
    "6.6-promise",
    "A client cannot push.",
    [req(1, b"/hold"), promise(1, 2, fields(request()))],
    closed("PROTOCOL_ERROR"),
    section="8.4",
)
server(
    "6.8-goaway",
    "After a client's GOAWAY its requests are still answered.",
    [UPLOAD, goaway(), data(1, b"x", True)],
    ("answer 200", "closed NO_ERROR", "leaving NO_ERROR", "closed"),
    look=length(1),
    then=False,
)
server(
    "6.5.2-table-0",
    "SETTINGS_HEADER_TABLE_SIZE of 0 empties the server's table.",
    [req(1), req(3)],
    answer(),
    stream=3,
    said={TABLE: 0},
    section="7541 4.2",
)
server(
    "6.5.2-table-later",
    "Also when it comes later.",
    [req(1), settings((TABLE, 0)), req(3), settings((TABLE, 100)), req(5)],
    answer(),
    stream=5,
    section="7541 4.2",
)

# -- 8.1 messages


def malformed(name: str, must: str, send: list[Item], **named: object) -> None:
    """A request that no application may get as if all were well."""
    server(name, must, send, MALFORMED, secret=True, **named)


def section(name: str, must: str, more: list[Field] | None = None, **other: bytes | None) -> None:
    """A request with such fields."""
    malformed(name, must, [req(1, more=more or (), **other)])  # type: ignore[arg-type]


CONTENT = "content-length must be the sum of the content."
server(
    "8.1-trailers",
    "Trailers end a request.",
    [UPLOAD, data(1, b"abc"), headers(1, fields([(b"x-sum", b"1")]))],
    answer(),
    look=length(3),
)
server(
    "8.1-trailers-alone",
    "Also one without content.",
    [UPLOAD, headers(1, fields([(b"x-sum", b"1")]))],
    answer(),
    look=length(0),
)
server(
    "8.1-continue",
    "Fields can be spread over frames of a request with content.",
    [headers(1, b"", False, False) + continuation(1, fields(request(b"/sink", b"POST"))), data(1, b"x", True)],
    answer(),
    look=length(1),
)
malformed(
    "8.1-trailers-open",
    "Trailers without END_STREAM are malformed.",
    [UPLOAD, headers(1, fields([(b"x-sum", b"1")]), end=False)],
)
malformed("8.1-request-again", "So is a second request on the stream.", [UPLOAD, req(1, b"/sink", b"POST", end=False)])
malformed(
    "8.1-trailers-pseudo",
    "Trailers have no pseudo fields.",
    [UPLOAD, headers(1, fields([(b":path", b"/"), (b"x-sum", b"1")]))],
)
malformed(
    "8.1-trailers-name",
    "Their names are checked, too.",
    [UPLOAD, headers(1, fields([(b"X-Sum", b"1")]))],
    section="8.2.1",
)
malformed(
    "8.1-trailers-value", "And their values.", [UPLOAD, headers(1, fields([(b"x-sum", b"1\r\nx: y")]))], section="8.2.1"
)


def sized(size: bytes, path: bytes = b"/sink") -> bytes:
    """A request that says how long its content will be."""
    return req(1, path, b"POST", [(b"content-length", size)], end=False)


server(
    "8.1.1-length",
    "Content as long as it said is taken.",
    [sized(b"5"), data(1, b"hello", True)],
    answer(),
    look=length(5),
)
server("8.1.1-length-0", "Also none.", [req(1, b"/sink", b"POST", [(b"content-length", b"0")])], answer())
malformed("8.1.1-shorter", CONTENT, [sized(b"5"), data(1, b"hell", True)])
malformed("8.1.1-longer", CONTENT, [sized(b"4"), data(1, b"hello", True)])
malformed("8.1.1-longer-open", CONTENT, [sized(b"4"), data(1, b"hello")])
malformed("8.1.1-none", CONTENT, [req(1, b"/sink", b"POST", [(b"content-length", b"5")])])
malformed("8.1.1-shorter-trailers", CONTENT, [sized(b"5"), data(1, b"hel"), headers(1, fields([(b"x-sum", b"1")]))])
malformed("8.1.1-padding", "Padding is not content.", [sized(b"9"), data(1, b"hello", True, 3)])
malformed(
    "8.1.1-twice",
    "Two that differ are none.",
    [
        req(1, b"/sink", b"POST", [(b"content-length", b"5"), (b"content-length", b"6")], end=False),
        data(1, b"hello", True),
    ],
)
for text in (b"x", b"-1", b"+5", b"5 5", b"0x5", b"5,5", b"", b"1e1"):
    malformed(
        f"8.1.1-number-{text.decode().replace(' ', '-') or 'none'}",
        "content-length is a number in digits.",
        [sized(text), data(1, b"hello", True)],
        section="8.1.1",
    )

# -- 8.2 fields

NAME = "A name has none of 0x00-0x20, A-Z, 0x7f-0xff."
section("8.2.1-upper", NAME, [(b"X-Big", b"1")])
section("8.2.1-upper-one", NAME, [(b"x-biG", b"1")])
section("8.2.1-upper-pseudo", NAME, [(b":Path", b"/x")], path=None)
for code in (0x00, 0x09, 0x0A, 0x0D, 0x20, 0x7F, 0x80, 0xFF):
    section(f"8.2.1-name-{code:02x}", NAME, [(b"x-%ca" % code, b"1")])
section("8.2.1-colon", "But for the first of a pseudo field, no name has a colon.", [(b"x-a:b", b"1")])
section("8.2.1-empty", "A name is not empty.", [(b"", b"1")])
for text, name in {b"(": "paren", b'"': "quote", b"/": "slash", b",": "comma"}.items():
    section(f"8.2.1-token-{name}", "A name is a token (RFC 9110, 5.1).", [(b"x-%ba" % text, b"1")])
for code in (0x00, 0x0A, 0x0D):
    for name, value in {"first": b"%ca", "middle": b"a%cb", "last": b"a%c"}.items():
        section(f"8.2.1-value-{code:02x}-{name}", "A value has no NUL, LF or CR.", [(b"x-a", value % code)])
for code, blank in ((0x20, "space"), (0x09, "tab")):
    section(f"8.2.1-{blank}-first", "A value does not begin with a blank.", [(b"x-a", b"%ca" % code)])
    section(f"8.2.1-{blank}-last", "Nor end with one.", [(b"x-a", b"a%c" % code)])
    section(f"8.2.1-{blank}-alone", "Nor is it nothing else.", [(b"x-a", b"%c" % code)])
server("8.2.1-blanks", "There may be blanks within.", [req(1, more=[(b"x-a", b"a \t b")])], answer())
server("8.2.1-obs", "And bytes from 0x80 on (RFC 9110, 5.5).", [req(1, more=[(b"x-a", b"\x80\xff")])], answer())
for name, value in {
    b"connection": b"close",
    b"proxy-connection": b"keep-alive",
    b"keep-alive": b"timeout=5",
    b"transfer-encoding": b"chunked",
    b"upgrade": b"websocket",
}.items():
    section(
        f"8.2.2-{name.decode()}", "A field that speaks of the connection makes a message malformed.", [(name, value)]
    )
section("8.2.2-connection-te", "Also one that names a field.", [(b"connection", b"te"), (b"te", b"trailers")])
section("8.2.2-te-gzip", "TE says nothing but trailers.", [(b"te", b"gzip")])
section("8.2.2-te-both", "TE says nothing but trailers.", [(b"te", b"trailers, gzip")])
server("8.2.2-te", "TE may say trailers.", [req(1, more=[(b"te", b"trailers")])], answer())
server(
    "8.2.3-crumbs", "Cookies may come in pieces.", [req(1, more=[(b"cookie", b"a=1"), (b"cookie", b"b=2")])], answer()
)

# -- 8.3 pseudo fields


def pseudo(name: str, must: str, found: list[Field]) -> None:
    """Exactly these fields."""
    malformed(name, must, [headers(1, fields(found))])


METHOD, SCHEME, PATH, AUTHORITY = request()
pseudo("8.3-late", "Pseudo fields come before all others.", [METHOD, SCHEME, (b"x-a", b"1"), PATH, AUTHORITY])
pseudo("8.3-unknown", "Others than those defined are malformed.", [METHOD, SCHEME, PATH, AUTHORITY, (b":foo", b"bar")])
pseudo("8.3-status", "So is that of a response.", [METHOD, SCHEME, PATH, AUTHORITY, (b":status", b"200")])
pseudo("8.3-empty-name", "And a colon alone.", [METHOD, SCHEME, PATH, AUTHORITY, (b":", b"x")])
for name, field in {"method": METHOD, "scheme": SCHEME, "path": PATH, "authority": AUTHORITY}.items():
    pseudo(f"8.3-twice-{name}", "None comes twice.", [METHOD, SCHEME, PATH, AUTHORITY, field])
    if name != "authority":
        pseudo(f"8.3.1-no-{name}", "A request has :method, :scheme and :path.", [f for f in request() if f != field])
pseudo("8.3.1-nothing", "A block without fields is no request.", [])
section("8.3.1-path-empty", ":path is not empty.", path=b"")
section("8.3.1-path-relative", ":path begins with a slash.", path=b"x/y")
section("8.3.1-path-star", ":path is * for OPTIONS alone.", path=b"*")
for name, path in {
    "space": b"/a b",
    "nul": b"/a\0",
    "crlf": b"/a\r\nx: y",
    "tab": b"/a\tb",
    "del": b"/\x7f",
    "space-first": b" /",
    "fragment": b"/a#b",
}.items():
    section(f"8.3.1-path-{name}", ":path is a path and a query (RFC 3986, 3.3 and 3.4).", path=path)
server("8.3.1-options", "OPTIONS may ask for *.", [req(1, b"*", b"OPTIONS")], answer())
for name, method in {"empty": b"", "space": b"GET ", "two": b"GET /x", "crlf": b"GET\r\n", "colon": b"GE:T"}.items():
    section(f"8.3.1-method-{name}", ":method is a token (RFC 9110, 9.1).", method=method)
for name, scheme in {"empty": b"", "space": b"ht tp", "slashes": b"http://a.test/", "digit": b"1http"}.items():
    section(f"8.3.1-scheme-{name}", ":scheme is a scheme (RFC 3986, 3.1).", scheme=scheme)
for name, authority in {
    "user": b"u:p@a.test",
    "slash": b"a.test/b",
    "space": b"a b",
    "port": b"a.test:8x",
    "empty": b"",
    "crlf": b"a.test\r\n",
    "hash": b"a.test#b",
    "query": b"a.test?b",
}.items():
    section(
        f"8.3.1-authority-{name}",
        ":authority is a host, perhaps with a port, and without userinfo.",
        authority=authority,
    )
section("8.3.1-host-differs", "Host, if there, says the same as :authority.", [(b"host", b"b.test")])
section("8.3.1-host-twice", "Host comes once at most (RFC 9110, 7.2).", [(b"host", b"a.test"), (b"host", b"a.test")])
section("8.3.1-host-user", "Host has no userinfo, either.", [(b"host", b"u@a.test")], authority=None)
section("8.3.1-no-host", "For http, one of both is there (RFC 9110, 4.2).", authority=None)
server("8.3.1-host", "Host alone does.", [req(1, more=[(b"host", b"a.test")], authority=None)], answer())
server("8.3.1-host-same", "Host may repeat :authority.", [req(1, more=[(b"host", b"a.test")])], answer())

# -- 8.5 CONNECT, RFC 8441

ASKED = [(b":method", b"CONNECT"), (b":authority", b"a.test:443")]
server(
    "8.5-connect",
    "CONNECT has but :method and :authority, and opens a tunnel.",
    [headers(1, fields(ASKED), end=False), data(1, b"x")],
    OPEN,
)
server(
    "8.5-headers",
    "In a tunnel, HEADERS are a stream error.",
    [headers(1, fields(ASKED), end=False), headers(1, fields([(b"x-a", b"1")]))],
    reset("PROTOCOL_ERROR"),
)
pseudo("8.5-scheme", "CONNECT without protocol has no :scheme.", [*ASKED[:1], SCHEME, ASKED[1]])
pseudo("8.5-path", "And no :path.", [*ASKED[:1], PATH, ASKED[1]])
pseudo("8.5-no-authority", "But an :authority.", ASKED[:1])


def extended(peer: Peer) -> None:
    assert peer.settings.get(EXTENDED) == 1
    assert peer.messages[1].status == 200


SOCKET = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), SCHEME, (b":path", b"/"), AUTHORITY]
server(
    "8441-socket",
    "Extended CONNECT opens a tunnel.",
    [headers(1, fields(SOCKET), end=False), data(1, b"x")],
    OPEN,
    look=extended,
    section="8441 4",
)
for name, at in {"scheme": 2, "path": 3, "authority": 4}.items():
    malformed(
        f"8441-no-{name}",
        f"It has a :{name}.",
        [headers(1, fields(SOCKET[:at] + SOCKET[at + 1 :]), end=False)],
        section="8441 4",
    )
malformed("8441-get", ":protocol is for CONNECT alone.", [headers(1, fields([METHOD, *SOCKET[1:]]))], section="8441 4")

# -- RFC 7541: what the tables of a connection hold

server(
    "7541-static",
    "Every entry of the static table can be named.",
    [
        headers(
            1,
            b"\x82\x86\x84\x41\x06a.test"
            + b"".join(integer(n, 4, 0) + b"\x01v" for n in range(15, 62) if n not in (28, 35, 38, 57)),
        )
    ],
    answer(),
    section="7541 A",
)
server(
    "7541-dynamic",
    "Entries stay for later requests.",
    [headers(1, fields(request()) + literal(b"x-a", b"1", 0x40)), headers(3, fields(request()) + b"\xbe")],
    answer(),
    stream=3,
    section="7541 2.3.2",
)
server(
    "7541-evicted",
    "An entry that was pushed out cannot be used.",
    [
        headers(1, fields(request()) + literal(b"x-a", b"1", 0x40) + literal(b"x-b", b"v" * 4050, 0x40)),
        headers(3, fields(request()) + b"\xbf"),
    ],
    closed("COMPRESSION_ERROR"),
    stream=3,
    section="7541 4.4",
)
server(
    "7541-size",
    "Making the table smaller pushes entries out.",
    [headers(1, fields(request()) + literal(b"x-a", b"1", 0x40)), headers(3, b"\x20" + fields(request()) + b"\xbe")],
    closed("COMPRESSION_ERROR"),
    stream=3,
    section="7541 4.3",
)
server(
    "7541-name",
    "A name from the table with a new value is an entry of its own.",
    [
        headers(1, fields(request()) + literal(b"x-a", b"1", 0x40)),
        headers(3, fields(request()) + b"\x7e" + string(b"2") + b"\xbe\xbf"),
    ],
    answer(),
    stream=3,
    section="7541 6.2.1",
)
