"""
Public test kit for authors of codecs and modules.

Suites, mixins for trial's C{SynchronousTestCase} that also run under pytest:

    codec.CodecContract        everything that must hold for a codec
    interop.InteropContract    what must hold between two codecs
    module.ModuleContract      everything that must hold for a module
    discovery.DiscoveryContract  everything that must hold for a source of endpoints

Means, without sockets, threads or real time:

    gateway.MemoryGateway      a whole gateway, from its configuration
    simulation                 worlds around one, by the thousand, from a seed
    boards.Boards              what the processes of one gateway tell each other
    upstream.Raw, .Upstream    ends that know no protocol: they play a script, and record
    exchange.exchange          an Exchange as a stage finds it
    bodies.Taker, .Giver, .Echo  a sink, a source, a filter
    transport.Wire, .Link, .Net  connections, moved byte by byte
    reactor.MemoryReactor      a reactor on such connections, and on a clock
    names.Names                a name server
    catalogues.Etcd, .Consul   where servers are written down
    cell.Pair, .Cell           codecs wired up: one hop, two hops

Rules
- Fakes, not mocks: each keeps the interface of the real thing, and its bad manners.
- Nothing here needs pytest.
"""

from protogate.testing.bodies import Echo, Giver, Taker
from protogate.testing.cell import App, Cell, Pair, Relay, read_then
from protogate.testing.codec import CodecContract
from protogate.testing.gateway import MemoryGateway
from protogate.testing.interop import LACKS, InteropContract
from protogate.testing.module import ModuleContract
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.testing.transport import Link, Net, Wire
from protogate.testing.upstream import Do, Expect, Raw, Upstream

__all__ = [
    "LACKS",
    "App",
    "Cell",
    "CodecContract",
    "Do",
    "Echo",
    "Expect",
    "Giver",
    "InteropContract",
    "Link",
    "MemoryGateway",
    "MemoryReactor",
    "ModuleContract",
    "Names",
    "Net",
    "Pair",
    "Raw",
    "Relay",
    "Taker",
    "Upstream",
    "Wire",
    "read_then",
]
