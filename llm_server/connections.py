"""Connections of clients: HTTP/1.1 as fast as it goes, HTTP/1.0 as it wants it.

uvicorn's fast parser frames a stream in chunks, which HTTP/1.0 does not know; its other one ends it by closing. Some
proxies speak HTTP/1.0 to the servers behind them.
"""

import re

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

OLD_REQUEST = re.compile(rb"[^\r\n]* HTTP/1\.0\r?\n")


class Connection(HttpToolsProtocol):
    """One connection; one whose first request is of HTTP/1.0 goes over to the parser that knows what to do."""

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self.cycle is None and OLD_REQUEST.match(data):
            self._hand_over(data)
        else:
            super().data_received(data)

    def _hand_over(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        protocol = H11Protocol(self.config, self.server_state, self.app_state)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(data)
