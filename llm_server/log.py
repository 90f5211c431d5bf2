"""Logging: one line per event on standard error, time first."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


OURS = ("llm_server", "stylers", "vit", "engines")


def configure(level: str) -> None:
    """Send our logs to standard error from `level` upwards, and those of the libraries from warnings upwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in OURS:
        logging.getLogger(package).setLevel(level.upper())
