"""Which of the processes that mpirun or srun started serves, and what the others do.

`mpirun -n N llm-server serve ...` starts the command N times: rank 0 serves and holds TensorRT-LLM's proxy, the others
wait for its tasks and never bind a port. Under `trtllm-llmapi-launch` the command runs once, outside of MPI, and the
launcher's own processes are the workers. If any process ends badly, mpirun and srun (with --kill-on-bad-exit) end all.
Source: `MpiCommSession`, tensorrt_llm/llmapi/mpi_session.py, and trtllm-llmapi-launch, release 1.2.
"""

from collections.abc import Mapping

LAUNCHER_FLAG = "TLLM_SPAWN_PROXY_PROCESS"
_RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID")


def is_worker(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is one of those that do not serve."""
    if environ.get(LAUNCHER_FLAG) == "1":
        return False
    return next((int(environ[name]) for name in _RANKS if name in environ), 0) > 0


def work() -> None:
    """Do the tasks of rank 0 until it has no more: TensorRT-LLM's worker is one that lasts as long as the server."""
    from mpi4py import MPI  # here: importing it starts MPI
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(MPI.COMM_WORLD):
        pass
