"""The styler for models of no known family: their own template, and output that is plain content."""

from dataclasses import dataclass

from stylers.base import Styler


@dataclass(frozen=True)
class GenericStyler(Styler):
    """Renders the model's template and leaves every marker in the output where it stands."""


ROWS = (GenericStyler("generic"),)
