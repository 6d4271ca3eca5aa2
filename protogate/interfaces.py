"""
Seams of protogate, in the order a request meets them.  One-word verbs only; at most three methods of its own each.

Words used below: a *source* is whatever reads bytes off a connection, a *sink* is whatever takes them away, a
*body* stands between the two.  All calls happen on one thread, none blocks, none returns a value unless said so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IPushProducer
from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Awaitable
    from typing import Any, TextIO

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IListeningPort, IProtocol

    from protogate.context import Context, Limits
    from protogate.errors import Abort
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means
    from protogate.message import Field, Request, Response
    from protogate.routing.rules import Route
    from protogate.upstream.discovery import Findings
    from protogate.upstream.endpoint import Place


class ISink(Interface):
    """
    Where a body goes.  Its maker is who calls C{body.attach(sink)}, so it holds the body and pauses, resumes and
    stops it directly: there is no registerProducer.

    Calls: write*, then exactly one of finish and abort, then nothing.  After the sink called
    C{body.stopProducing()} nothing at all is called.  A sink never raises: what it cannot take it drops, and stops
    the body.
    """

    def write(data: bytes) -> None:
        """Some bytes, never empty.  May come inside attach() and inside resumeProducing(), never inside write()."""

    def finish(trailers: Sequence[Field] | None = None) -> None:
        """The body is complete; trailers is a list of pairs, or None.  Never called while paused."""

    def abort(reason: Abort) -> None:
        """
        The body will never be complete.  Comes at once, even while paused: what was held is dropped.  A sink that
        leads to a peer must make the truncation visible to it.
        """


class IBody(IPushProducer):
    """
    Bytes of one message that may still be arriving.  (No body at all is None, never an empty IBody.)

    Until attached it holds what was already read, at most one read (or one window), and its source is paused by the
    first write.  Whoever is handed a body attaches it, hands it on, or calls stopProducing(): a body that is merely
    dropped keeps a connection busy for ever.

    pauseProducing() and resumeProducing() may be called at any time, also inside ISink.write(); what the source
    had already read is held.  After finish, abort or stopProducing() all three do nothing.
    """

    length: int | None = Attribute(
        """Exact number of bytes, or None when only the end tells.  The only source of framing: a content-length header
        is dropped by the decoding codec and written by the encoding one."""
    )
    attached: bool = Attribute("False while attach() may still be called: then the message can be sent (again).")

    def attach(sink: ISink) -> None:
        """
        Deliver to sink; once.  What is held is delivered before this returns, unless the sink pauses.  Reaches the
        source as resumeProducing(), even if never paused: this is when `100 Continue` is due.
        """


class IService(Interface):
    """A function from Request to Response: the shape of the gateway, of a pool, and of every upstream connection."""

    def handle(request: Request) -> Response | Deferred[Response]:
        """
        Return a Response, or a Deferred of one; never raise.

        Cancelling the Deferred abandons the request: the callee stops request.body if it attached it, and frees
        what it used, before cancel() returns.  Firing wins over cancelling: who cancelled but is handed a Response
        stops its body.  A body never attached stays with the caller.

        A failure is an L{Abort}, or a CancelledError after cancel().  From a client connection it means: no response;
        reason.retry says whether another attempt is safe, request.body.attached whether it is possible.  From the
        gateway it means: answer nothing, break the exchange off the way the protocol does.
        """


class ICodec(Interface):
    """One protocol, both sides."""

    name: str = Attribute("Name used in configuration.")
    alpn: Sequence[bytes] = Attribute("ALPN tokens, best first; empty when never negotiated.")


class IStreamCodec(ICodec):
    """A codec over a byte stream (TCP, TLS, UNIX)."""

    def sniff(prefix: bytes) -> bool | None:
        """True, False, or None for 'need more': does cleartext starting with prefix speak this?  A codec may ask for
        256 bytes at most."""

    def server(service: IService, context: Context) -> IProtocol:
        """
        An IProtocol that is an IConnection and calls service.handle once per request, malformed ones included.

        It cancels the Deferred (before the response) or stops response.body (after) when the client goes away,
        THEN aborts request.body.  It starts a request only when all bytes of the current read were fed into its
        body, so a small request is whole when it is handed over.  It calls request.closed(reason) exactly once.
        """

    def client(ready: Callable[[IClientConnection], None], context: Context) -> IProtocol:
        """An IProtocol that is an IClientConnection; see there for ready(connection)."""


class INegotiated(ICodec):
    """
    A codec that is spoken over TLS only where ALPN says so (RFC 9113, 3.2).  Optional; without it an upstream that
    knows nothing of ALPN is taken at its word.
    """


class IPingingCodec(ICodec):
    """A codec whose protocol has a sign of life.  Optional; C{healthCheck.type: ping} asks for it."""

    def ping(connection: IClientConnection) -> Deferred[None]:
        """
        Ask the peer of a client connection of this codec for one, also before its greeting was read.

        Fires with None when it came; fails with an L{Abort} when the connection ends before.  Cancelling it forgets it.
        """


class INamingCodec(ICodec):
    """
    A codec whose server finds out which service some requests are for by what else they say.  Optional; C{protogate
    explain}, where no server reads a request, asks it.
    """

    def service(request: Request) -> str:
        """What its server would make C{request.service}; empty = none."""


class IDatagramCodec(ICodec):
    """A codec that owns its transport's datagrams (QUIC)."""

    def listen(
        reactor: object, address: object, service: IService, context: Context, tls: object
    ) -> Deferred[IListeningPort]:
        """Serve on a datagram address."""

    def connect(
        reactor: object, address: object, ready: Callable[[IClientConnection], None], context: Context, tls: object
    ) -> Deferred[IClientConnection]:
        """Connect to one."""


class IDescribedCodec(ICodec):
    """A codec that tells what its protocol cannot say.  Optional; without it a codec is taken to lack nothing."""

    distribution: str = Attribute("Name of the distribution that it is installed with, which has its version.")
    lacks: Collection[str] = Attribute(
        """What it has no words for: some of the words of L{protogate.testing.LACKS}.  C{protogate check} tells whoever
        routes to it, and the contract suite expects no more of it; so it is never more than the truth."""
    )
    depends: Mapping[str, str] = Attribute(
        """What only some of its peers have words for: such a word, and which peers have not, in the plural, e.g.
        C{{"trailers": "HTTP/1.0 peers"}}."""
    )


class IConfigurableCodec(ICodec):
    """A codec that can be told how to speak: C{codecs.NAME} of the configuration.  Optional; without it nothing is."""

    options: type[Any] = Attribute(
        """What can be told: a frozen subclass of L{protogate.config.model.Model} whose fields have defaults, hashable
        values, and a docstring each.  Sizes, durations and bounds are read as everywhere in the file."""
    )

    def configure(options: Any) -> ICodec:
        """
        A codec like this one that speaks by C{options}, an instance of that class; this one stays as it is.

        Raises L{protogate.errors.ConfigError}, whose path names the option, for what the class cannot tell.  Runs off
        the event loop's thread when a configuration is reloaded: it touches nothing that is live.  It is asked once for
        equal options, so that a reload keeps the connections whose options it does not change.
        """


class IRemarkedCodec(ICodec):
    """A codec with more to say of itself: what does its work, and where that falls short.  Optional."""

    remarks: Sequence[tuple[str, str]] = Attribute(
        """Lines of C{protogate codecs}: what each is about, in a word or two, and what is to be said."""
    )


class IReadableCodec(ICodec):
    """A codec that can show what was said in it.  Optional; C{protogate decode} asks for it."""

    def dissect(data: bytes, client: bool, limits: Limits) -> Iterator[str]:
        """
        What one side of a connection sent from its beginning on, for people: an item for each frame, which begins with
        its offset in C{data}; its further lines are indented.  What is not ASCII, or not printable, is escaped.

        @param client: whether the client sent it.
        @param limits: a head that goes beyond them may be called wrong.
        @raise ValueError: what is wrong, and at which offset, or that the end is cut off; after the frames before it.
        """


class IConnection(Interface):
    """Either side of a connection."""

    closed: Deferred[None] = Attribute(
        "Deferred that fires once with None, when the connection is gone.  Return what you are given."
    )
    busy: int = Attribute("Requests under way; 0 = idle, so a listener or a pool may close it after its idle time.")

    def drain() -> None:
        """
        Close when the current requests have ended (GOAWAY, `Connection: close`).  Idempotent.

        A server whose client cannot be told waits a few seconds for the request that may be on its way.
        """

    def abort() -> None:
        """Drop everything now.  Every request on it ends before this returns."""


class IClientConnection(IConnection, IService):
    """
    An upstream connection.  It alone counts its requests; there is no lease to give back.

    C{ready(connection)} is called each time capacity rises from 0, the first time when the connection may be used.
    For an exclusive connection that is as soon as the last byte of the response was read (its body may still be
    held), for a multiplexed one when a stream ends.  The connection must be in its resting state by then: handle()
    is called inside ready().
    """

    capacity: int = Attribute(
        """Requests it would take right now: 0 or 1 without multiplexing, N with; 0 when draining.  May fall on its own
        (GOAWAY, SETTINGS, loss): ask right before each handle()."""
    )


class IModule(Interface):
    """One governance step."""

    def process(exchange: Exchange) -> Response | Awaitable[Response | None] | None:
        """
        None to go on, a Response to answer now, or a Deferred or coroutine of either.  A Deferred must be the module's
        own: its result is taken out of it.

        May change C{exchange.request} before the upstream was asked and C{exchange.response} from PRE_RESPONSE on.
        A body it wraps or replaces it must attach, pass on or stop.  Raising (best an L{Abort}, which says what to
        answer) leads to the binding's exceptionHandle.
        """


class ILiveModule(IModule):
    """
    A module with a life beside exchanges: it asks others, refreshes something, or keeps what a reload must not lose.

    Optional: where a module is one, the gateway starts and stops it.
    """

    asks: Mapping[str, Sequence[str | int]] = Attribute(
        """Whom it will ask through C{means.service}: names of upstreams, and origins (L{protogate.config.address.Url}).
        Each with the path of the parameter that names it, for whoever finds that there is no such upstream."""
    )

    def start(means: Means, before: IModule | None) -> None:
        """
        On the event loop, when its configuration is put in force: before the first exchange under it begins.

        @param before: the module whose place it takes: of the same factory, in the same stage; the one with equal
            parameters where there is one.  What it has learnt may be taken over; it is stopped afterwards, and
            exchanges under way go on with it.
        """

    def stop() -> None:
        """
        Its configuration is no longer in force: no timer of it is left.  Exchanges under way may still call
        C{process()}.
        """


class IReservingModule(IModule):
    """
    A module that says something in the name of the gateway, or reads a secret out of the query.  Optional.

    Both hold for every request to this gateway, whether or not the module runs for it.
    """

    reserves: Collection[bytes] = Attribute(
        """Names of request fields that clients must not send, in lower case: they are taken out before any rule,
        condition or module sees the request."""
    )
    hides: Collection[str] = Attribute("Names of query parameters whose values stand in no record.")


class IModuleFactory(Interface):
    """Makes modules, at load time."""

    name: str = Attribute("Name used in configuration.")
    stages: Sequence[str] = Attribute("Stages it may be bound to, the first is its default.")
    guards: bool = Attribute("True for modules that must fail closed (identity, lists, limits): what a timeout gives.")

    def build(params: Mapping[str, object]) -> IModule:
        """
        A module for one binding.  C{params} is its C{actionParam}; each string that holds C{${…}} is a
        L{protogate.expression.template.Template}, everything else is a plain value.

        Raises L{protogate.errors.ConfigError}, whose path names the parameter.  Runs off the event loop's thread when a
        configuration is reloaded: it touches nothing that is live.
        """


class IRouter(Interface):
    """Rules."""

    def route(exchange: Exchange) -> Route | Deferred[Route | None] | None:
        """
        The Route for C{exchange.request}, or None when nothing matches.  It is given the exchange because conditions
        see where a request came from.  An L{Abort} raised here says what to answer.
        """


class IDiscovery(Interface):
    """
    A source of the endpoints of one upstream: asked, or watched, for as long as they are wanted.

    What was found is told with C{findings.found(places)}: always all there are, each a
    L{protogate.upstream.endpoint.Place} that C{entry} of the factory has made; the same again where nothing has
    changed, for that says that the source is there.  Trouble is told with C{findings.failed(why)}, each time: one line
    for operators, or an L{Abort} that a request may be answered with.  How long what was found is used meanwhile, and
    what to think of a source that suddenly knows nobody, is decided there.
    """

    asks: Mapping[str, Sequence[str | int]] = Attribute(
        """Whom it will ask through C{findings.service()}, see L{ILiveModule.asks}.  The paths are of the options."""
    )
    patience: float = Attribute(
        """Seconds that whom it asks may take on purpose until an answer begins; 0 = none.  Where that is as long as
        their C{timeouts.responseHead}, no configuration with it is taken."""
    )

    def start(findings: Findings) -> None:
        """
        Begin; called once.  What is known already may be told before this returns.

        C{findings} has the C{wheel} for every wait, the C{reactor} to run things in threads, the C{resolver} of names,
        C{random} for what is left to chance, C{count(event)}, and C{service(name)}: from the end of this turn of the
        event loop on, not before.
        """

    def stop() -> None:
        """Its configuration is no longer in force: no timer and no question of it is left."""


class IDiscoveryFactory(Interface):
    """Makes sources of endpoints, at load time."""

    name: str = Attribute("Name used in configuration.")
    options: type[Any] = Attribute(
        """What it is told: a frozen subclass of L{protogate.config.model.Model} with a docstring for each field, or str
        for a text.  Sizes, durations and bounds are read as everywhere in the file; what is called C{file} is a path,
        and absolute by then."""
    )

    def build(options: Any, entry: Callable[[object], Place]) -> IDiscovery:
        """
        A source for one upstream.  Raises L{ConfigError} or L{protogate.config.faults.ConfigFaults}, whose paths name
        the option.  Runs off the event loop's thread when a configuration is reloaded: it touches nothing that is live.
        While options are equal, and what upstreams they are for is spoken to, a reload goes on with the source that is
        there.

        @param entry: reads what somebody wrote about one endpoint: C{"host:port"}, its URL, or a mapping with C{url},
            and perhaps C{weight} and C{zone}.  Raises L{ConfigError}.  May be called in any thread.
        """


class ICommand(Interface):
    """A command of C{protogate} that a distribution adds.  Made and asked for its summary whenever one is run."""

    name: str = Attribute("The word behind C{protogate}.")
    summary: str = Attribute("One line for C{protogate --help}.")

    def arguments(parser: ArgumentParser) -> None:
        """Add options, or commands below this one, to its parser.  C{function} and C{command} are taken."""

    def run(options: Namespace, reactor: object, context: Context, out: TextIO) -> Deferred[int] | int:
        """
        Do it, and return the exit status: 0 = done, 2 = the command was not understood.

        Called once, on a reactor that runs and is stopped when there is a status.  What was asked for goes to C{out};
        what is said about it goes to standard error.
        """
