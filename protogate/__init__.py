"""
protogate: a protocol-agnostic API gateway on Twisted, with pluggable codecs.

One request passes through five folders, and their alphabetical order is the order of the flow:

    downstream/   accept a connection, choose its codec
    exchange/     the life of one request: pipeline stages, clocks, exactly one record
    governance/   modules bound to the stages by configuration
    routing/      rule, route, target
    upstream/     endpoints, pools, connections

Codecs live outside the core, below C{codecs/}; L{protogate.interfaces} says what they must do.
"""
