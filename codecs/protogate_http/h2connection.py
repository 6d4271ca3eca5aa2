"""C{h2}'s connection, where it does less, or more, than it should: what L{protogate_http.h2engine} drives."""

from __future__ import annotations

from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError
from hpack import Encoder, HPACKError
from hyperframe.frame import RstStreamFrame

TABLE: Final = 4096
"""Bytes of what is remembered of fields that were sent."""


class Table(Encoder):
    """
    Tells what became of its table's size (RFC 7541, 4.2), also when the peer says the same twice or changes its mind,
    and does not let it grow as large as a peer may wish.
    """

    @property
    def header_table_size(self) -> int:
        """Bytes."""
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        value = min(value, TABLE)
        if value != self.header_table.maxsize:
            self.header_table.maxsize = value
            least = min([value, *self.table_size_changes])
            self.table_size_changes = [value] if value == least else [least, value]
            self.header_table.resized = True


def _unchecked(headers: Any) -> None:
    """Content-length is not h2's to look at: what is none would end the connection."""


class Connection(H2Connection):
    """
    Resets a stream once: what comes for it afterwards was on its way (RFC 9113, 5.4.2).  Leaves content-length, and how
    large tables may be, to us.
    """

    MAX_CLOSED_STREAMS = 1024  # that it remembers, each with some 150 bytes: h2 itself keeps 65,536

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.encoder = Table()
        self._over = 0  # a stream that was reset before the frame that is being looked at

    def _begin_new_stream(self, stream_id: int, allowed_ids: Any) -> Any:
        stream = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = _unchecked  # type: ignore[method-assign]
        return stream

    def _receive_frame(self, frame: Any) -> Any:
        number = frame.stream_id
        self._over = number if number and self._stream_is_closed_by_reset(number) else 0
        try:
            return super()._receive_frame(frame)
        finally:
            self._over = 0

    def _receive_headers_frame(self, frame: Any) -> Any:
        if not self._over:
            return super()._receive_headers_frame(frame)
        try:
            self.decoder.decode(frame.data, raw=True)  # the table must stay in step; h2 takes no interim answer here
        except HPACKError as error:
            raise ProtocolError(f"Error decoding header block: {error}") from error
        return [], []

    def _prepare_for_sending(self, frames: Any) -> None:
        if self._over:
            frames = [one for one in frames if one.stream_id != self._over or not isinstance(one, RstStreamFrame)]
        super()._prepare_for_sending(frames)
