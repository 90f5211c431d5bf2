"""What `llm-server build` tells about a plan and a finished engine folder."""

import tempfile
from pathlib import Path

from engines.building import BUILDERS, BuildError
from engines.folder import EngineFolder
from engines.progress import silent
from llm_server.pull import ENGINE, Plan, PullError
from llm_server.sources import SourceError


def describe_plan(plan: Plan) -> str:
    """Say what a build would do, without doing it. Raises PullError."""
    reason = plan.outdated()
    how = f"precision  {plan.precision}" if plan.engine == ENGINE else f"engine     {plan.engine}"
    lines = [
        f"source     {plan.source.text}",
        how,
        f"folder     {plan.final}",
        f"download   {_download(plan) if reason else 'nothing'}",
        f"build      {f'yes: {reason}' if reason else 'no: nothing has changed'}",
    ]
    return "\n".join((*lines, *_commands(plan)))


def _commands(plan: Plan) -> tuple[str, ...]:
    """What a TensorRT build runs, and what its engine takes. Known once the checkpoint is here."""
    if plan.engine == ENGINE:
        return ()
    if plan.source.stamp() is None:
        return ("", "The commands and the memory follow from the checkpoint, which is downloaded first.")
    from engines.trtllm.building.builder import describe_build  # here: others never need it

    try:
        with tempfile.TemporaryDirectory() as scratch:
            model = plan.source.fetch(Path(scratch), silent).files
        BUILDERS[plan.engine].refuse_other_formats(model)
        return ("", describe_build(model.path, plan.options, plan.machine, plan.final))
    except (BuildError, SourceError) as exc:
        raise PullError(str(exc)) from exc


def describe_loss(folder: Path) -> str:
    """Say how much a lower precision lost; empty for a folder that is exact."""
    description = EngineFolder.load(folder).description
    loss = description.precision_loss
    if loss is None:
        return ""
    return (
        f"\n{description.precision} against the exact weights, over {loss.num_tokens} tokens of text: the likeliest"
        f" token stays the same at {loss.top1_agreement:.1%} of them, and the log-probabilities of the five likeliest"
        f" move by {loss.mean_abs_dlogprob:.3f} on average"
    )


def _download(plan: Plan) -> str:
    try:
        size_bytes = plan.source.download_bytes()
    except SourceError as exc:
        raise PullError(str(exc)) from exc
    return "of unknown size" if size_bytes is None else f"{size_bytes / 1e6:.1f} MB" if size_bytes else "nothing"
