"""
Both sides of a connection whose answers come in the order of the requests, one at a time: what is left to a codec is
what its bytes mean.

A codec subclasses L{protogate.ordered.server.Server} and L{protogate.ordered.client.Client}, and writes of each:

    read()                  a generator over C{self.input}: what the peer says, as events
    head(message, length)   the bytes that a message begins with; C{length} as in IBody, 0 = no content
    content(data)           those of some of its content; what it does not override leaves as it is
    tail(trailers)          those of its end, also where there is no content; nothing by default

The events of read(), which never ends:

    None                    more must be read first; what L{protogate.ordered.input.Input} has says that by itself
    (message, length)       a Request or a Response, without its body; None = only the end tells how long that is
    bytes                   some of its content
    a list                  its end, with its trailers; L{protogate.ordered.link.END} = none

C{ValueError} (or C{RecursionError}) says that this is not the protocol, an L{protogate.errors.Abort} what to answer.
Either ends the connection, since what follows has no beginning.  A request that is framed well but may not be asked is
given with C{malformed} set: it is answered with an error, its content is thrown away, and the next one is served.
Anything else that is raised is a fault of the codec: it is logged, and ends the connection with a 500.

Rules
- What was read goes into a body first, in one piece; a message is handed on when the read is used up.
- The next request is not looked at before the answer to this one is out.  What comes meanwhile waits, C{AHEAD} bytes of
  it here, the rest with the kernel: so who pipelines is answered in order, and costs neither memory nor others' time.
- A body is as long as it said, whoever made it; if not, the message breaks off where the peer sees it.
- A request that no other protocol could be trusted with is malformed, whatever the codec let through, and so is one
  over a limit: L{protogate.ordered.fault}.
- What nobody wants of a request is read and thrown away, up to C{DRAIN} bytes; beyond that the connection ends.
- A connection to an upstream is used again only when request and response were complete, and nothing came behind.
- It knows neither tunnels nor interim responses: a codec that has them does not build on this.
"""
