"""The stages of an exchange, by the names the configuration uses."""

from __future__ import annotations

from typing import Final

PRE_REQUEST: Final = "PRE_REQUEST"
"""The head is parsed, before routing."""
PRE_UPSTREAM: Final = "PRE_UPSTREAM"
"""The route is chosen."""
PRE_RESPONSE: Final = "PRE_RESPONSE"
"""The response head is there: the upstream's, a module's, or an error's."""
ERROR: Final = "ERROR"
"""Something failed; may give the Response to answer."""
POST_RESPONSE: Final = "POST_RESPONSE"
"""The exchange is over, whatever happened; exactly once."""

STAGES: Final = (PRE_REQUEST, PRE_UPSTREAM, PRE_RESPONSE, ERROR, POST_RESPONSE)
ALIASES: Final = {"INBOUND": PRE_REQUEST, "OUTBOUND": PRE_RESPONSE, "LOG": POST_RESPONSE}
SEE_RESPONSE: Final = frozenset({PRE_RESPONSE, POST_RESPONSE})
"""Where conditions may name the response."""
