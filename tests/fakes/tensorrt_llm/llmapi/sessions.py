"""How the workers of several GPUs come to be: spawned here, given by mpirun, or held by trtllm-llmapi-launch."""

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any

WORKER = "import sys; sys.stdin.read()"  # lives until its proxy closes the pipe or is gone


class Session:
    """Workers that need no care from here: one GPU, or a leader node that has them."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []

    def close(self) -> None:
        pass


class PoolSession(Session):
    """Spawns the workers, as MPI_Comm_spawn would; a future ends with each."""

    def __init__(self, world_size: int) -> None:
        super().__init__()
        self.processes = [
            subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE) for _ in range(world_size)
        ]
        for process in self.processes:
            future: Future[None] = Future()
            self.futures.append(future)
            threading.Thread(target=self._wait, args=(process, future), daemon=True).start()

    @staticmethod
    def _wait(process: "subprocess.Popen[bytes]", future: Future[None]) -> None:
        process.wait()
        future.set_result(None)

    def close(self) -> None:
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


class CommSession(Session):
    """mpirun gave the workers: they wait in an MPICommExecutor for tasks of rank 0."""

    def __init__(self, world_size: int) -> None:
        super().__init__()
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor

        comm = MPI.COMM_WORLD
        if comm.Get_rank() != 0:
            raise RuntimeError("Only rank 0 can start MpiCommSession")
        if comm.Get_size() != world_size:
            raise ValueError(f"n_workers must be equal to world size in MPI, got {world_size} and {comm.Get_size()}")
        self._pool: Any = MPICommExecutor(comm)
        executor: Any = self._pool.__enter__()
        for rank_pid in executor.map(_pid, range(world_size - 1)):
            print(f"fake worker in process {rank_pid}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._pool.__exit__(None, None, None)


def _pid(_: int) -> int:
    return os.getpid()


def open_session(world_size: int) -> Session:
    if os.environ.get("TLLM_SPAWN_PROXY_PROCESS") == "1":
        if int(os.environ.get("tllm_mpi_size", "1")) != world_size:  # noqa: SIM112  # the launcher's own spelling
            raise ValueError("the world size differs from the number of MPI ranks")
        return Session()
    if int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        return CommSession(world_size)
    return PoolSession(world_size) if world_size > 1 else Session()
