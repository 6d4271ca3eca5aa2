"""What L{protogate_http.h2engine} tells of: events with the names, and the attributes, of those of C{ngh2}."""

from __future__ import annotations

from typing import Any


class Event:
    """What happened; attributes as those of ngh2's."""

    stream_id = 0
    headers: Any = ()
    data = b""
    error_code = 0
    last_stream_id = 0
    end_stream = False
    opaque_data = b""
    debug_data = b""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class RequestReceived(Event):
    """A request."""


class ResponseReceived(Event):
    """A final response."""


class InformationalResponseReceived(Event):
    """A 1xx."""


class TrailersReceived(Event):
    """Trailers, which end the stream."""


class DataReceived(Event):
    """Content; its padding is credited already."""


class StreamReset(Event):
    """RST_STREAM came."""


class StreamClosed(Event):
    """Both directions are over."""


class SettingsReceived(Event):
    """SETTINGS came."""


class PingAcknowledged(Event):
    """A PING of ours came back."""


class GoAwayReceived(Event):
    """GOAWAY came."""


class ConnectionClosed(Event):
    """It is over: the peer broke the rules."""
