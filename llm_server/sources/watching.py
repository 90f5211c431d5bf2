"""Progress of a download that does not report any: the folder it fills is watched instead."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.progress import Phase, Progress

POLL_S = 0.2


@contextmanager
def watched(folder: Path, total: int | None, progress: Progress) -> Iterator[None]:
    """Report the bytes that lie in `folder` as long as the block runs, from a thread of its own."""
    over = threading.Event()

    def report() -> None:
        while not over.wait(POLL_S):
            done = bytes_below(folder)
            progress(Phase.DOWNLOAD, done if total is None else min(done, total), total)

    progress(Phase.DOWNLOAD, 0, total)
    watcher = threading.Thread(target=report, name="download-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    progress(Phase.DOWNLOAD, bytes_below(folder) if total is None else total, total)


def bytes_below(folder: Path) -> int:
    """Return the size of all files below a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # moved meanwhile
                continue
    return total
