"""Policies of the scheduler: small objects that answer one question each."""

from typing import Protocol


class AdmissionPolicy(Protocol):
    """Decides whether a waiting sequence may start to run."""

    def may_admit(self, num_new_blocks: int, num_available: int, num_promised: int) -> bool:
        """Answer for a sequence that takes `num_new_blocks` blocks in its life beyond those that others hold.

        `num_available` blocks can be allocated now; running sequences may still take `num_promised` of them.
        """
        ...


class GuaranteedNoEvict:
    """Admit only what can run to its end whatever the others do: nobody is ever preempted."""

    def may_admit(self, num_new_blocks: int, num_available: int, num_promised: int) -> bool:
        """Whether the worst case of all running sequences and this one fits."""
        return num_new_blocks <= num_available - num_promised
