"""Logging: one line per event on standard error, time first."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure(level: str) -> None:
    """Send the logs of the server and of uvicorn to standard error, from `level` upwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("uvicorn.error", "sse_starlette", "asyncio"):  # they log at info what only developers need
        logging.getLogger(chatty).setLevel(logging.WARNING)
