"""A progress bar on the terminal for what takes long before a model can be served."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from engines import progress as engine_progress
from engines.progress import Phase

LABELS = {
    Phase.WAIT: "Waiting for another process",
    Phase.DOWNLOAD: "Downloading",
    Phase.VERIFY: "Verifying",
    Phase.UNPACK: "Unpacking",
    Phase.DEQUANTISE: "Dequantising",
    Phase.CONVERT: "Converting",
    Phase.BUILD: "Building",
    Phase.QUANTISE: "Quantising",
    Phase.WRITE: "Writing",
}
IN_BYTES = frozenset((Phase.DOWNLOAD, Phase.VERIFY, Phase.UNPACK))
MB = 1_000_000


@contextmanager
def shown_progress(console: Console) -> Iterator[engine_progress.Progress]:
    """Yield a callback that shows one bar per phase; nothing is shown unless it is called."""
    columns = (
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    bars = Progress(*columns, console=console)
    shown: dict[Phase, TaskID] = {}

    def show(phase: Phase, done: int, total: int | None, /) -> None:
        if not shown:
            bars.start()
        if phase not in shown:
            shown[phase] = bars.add_task(LABELS[phase], total=total, count="")
        bars.update(shown[phase], completed=done, total=total, count=_count(phase, done, total))

    try:
        yield show
    finally:
        if shown:
            bars.stop()


def _count(phase: Phase, done: int, total: int | None) -> str:
    if phase in IN_BYTES:
        return f"{done / MB:.1f}/{total / MB:.1f} MB" if total else f"{done / MB:.1f} MB"
    return f"{done}/{total}" if total else ""
