"""Which of the processes that mpirun or srun started serves, and what the others do.

`mpirun -n N llm-server serve ...` starts the command N times: rank 0 serves, the others never bind a port. On a
checkpoint they wait for the tasks of TensorRT-LLM's proxy in rank 0; on a prebuilt engine each makes an executor of its
own, and only that of rank 0 takes requests. Under `trtllm-llmapi-launch`, which is for checkpoints, the command runs
once, outside of MPI, and the launcher's own processes are the workers. If any process ends badly, mpirun and srun
(with --kill-on-bad-exit) end all.
Source: `MpiCommSession`, tensorrt_llm/llmapi/mpi_session.py, and trtllm-llmapi-launch, release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LAUNCHER_FLAG = "TLLM_SPAWN_PROXY_PROCESS"
_RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID")
_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process was started."""

    rank: int = 0
    num_ranks: int = 1
    by_llmapi: bool = False
    """By trtllm-llmapi-launch, outside of MPI."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Launch":
        """Read it from the variables that launchers set."""
        if environ.get(LAUNCHER_FLAG) == "1":
            return cls(by_llmapi=True)
        return cls(_first(environ, _RANKS, 0), _first(environ, _SIZES, 1))

    @property
    def is_worker(self) -> bool:
        """Whether this process is one of those that do not serve."""
        return self.rank > 0


def work_for_rank_0() -> None:
    """Do the tasks of rank 0 until it has no more: TensorRT-LLM's worker is one that lasts as long as the server."""
    from mpi4py import MPI  # here: importing it starts MPI
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(MPI.COMM_WORLD):
        pass


def _first(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    return next((int(environ[name]) for name in names if name in environ), default)
