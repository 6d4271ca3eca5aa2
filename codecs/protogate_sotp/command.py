"""C{protogate sotp}: what SOTP adds to the command line.  Imports no more than its arguments need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

from zope.interface import implementer

from protogate.interfaces import ICommand

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from twisted.internet.defer import Deferred

    from protogate.context import Context

EXAMPLES: Final = """\
examples:
  protogate sotp call sotp://127.0.0.1:7001/1001/order.create -H 'content-type: application/json' -d '{"item": 7}'
  protogate sotp call sotp://127.0.0.1:7001/orders/list -i -v -m 2.5
  protogate sotp call sotps://gateway.example:8443/1001/order.list --cacert ca.pem
  protogate sotp call sotp://127.0.0.1:8080/hotel/order/1?full=1 -X GET
  tail -f events | protogate sotp call sotp://127.0.0.1:7001/events/push -d @- --stream

exit status: 0 = answered with status OK, 1 = answered with another status, 2 = the command was not understood,
3 = not answered, or not wholly
"""


@implementer(ICommand)
class Command:
    """The command."""

    name = "sotp"
    summary = "Ask a SOTP server."

    def arguments(self, parser: ArgumentParser) -> None:
        """One command below it so far: C{call}."""
        below = parser.add_subparsers(required=True, metavar="COMMAND")
        text = "Send one request, and print the content of the answer."
        call = below.add_parser(
            "call", help=text, description=text, epilog=EXAMPLES, formatter_class=parser.formatter_class
        )
        call.add_argument(
            "url", metavar="URL", help="sotp://HOST:PORT/SERVICE/OPERATION, sotps:// over TLS; with -X any path"
        )
        call.add_argument("-d", "--data", metavar="TEXT", help="the content; @FILE reads it, @- from standard input")
        call.add_argument(
            "-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="metadata; may come often"
        )
        call.add_argument("-X", "--request", metavar="METHOD", help="send it in the form of HTTP, with this method")
        call.add_argument("-m", "--max-time", type=float, default=0.0, metavar="SECONDS", help="the deadline")
        call.add_argument("-i", "--include", action="store_true", help="print status, metadata and trailers, too")
        call.add_argument("-v", "--verbose", action="store_true", help="show every frame, on standard error")
        call.add_argument("--cacert", metavar="FILE", help="authorities that a server may be believed by, in PEM")
        call.add_argument("-k", "--insecure", action="store_true", help="believe any certificate")
        call.add_argument(
            "--stream", action="store_true", help="send the content and print the answer piece by piece, as they come"
        )

    def run(self, options: Namespace, reactor: object, context: Context, out: TextIO) -> Deferred[int] | int:
        """See L{protogate_sotp.call}."""
        from protogate_sotp.call import call  # noqa: PLC0415 - the rest of SOTP, for those who ask

        return call(options, reactor, context, out)
