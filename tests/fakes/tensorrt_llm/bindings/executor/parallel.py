"""The ranks of one executor: this process alone, those that mpirun started, or workers that are spawned here."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ...stage import STAGE
from .configs import CommunicationMode, ExecutorConfig

TERMINATE = 7


class Ranks:
    """This process alone."""

    is_leader = True
    computes_here = True
    lost = False

    @staticmethod
    def join(mapping: dict[str, Any], config: ExecutorConfig, folder: Path) -> "Ranks":
        """Every rank gets here before any goes on. Raises RuntimeError where their number is wrong."""
        world_size = mapping["tp_size"] * mapping["pp_size"] * mapping["cp_size"]
        if min(world_size, mapping["gpus_per_node"]) > STAGE.num_visible_gpus:
            raise RuntimeError("CUDA runtime error in cudaSetDevice: invalid device ordinal")
        for rank in range(world_size):
            if not (folder / f"rank{rank}.engine").is_file():
                raise RuntimeError(f"rank{rank}.engine is missing")
        parallel = config.parallel_config
        if parallel is not None and parallel.communication_mode is CommunicationMode.ORCHESTRATOR:
            assert parallel.orchestrator_config is not None
            return SpawnedRanks(world_size, parallel.orchestrator_config.worker_executable_path)
        num_ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        if num_ranks != world_size:
            raise RuntimeError(f"the engine needs {world_size} ranks, but MPI has {num_ranks}")
        return MpiRanks() if world_size > 1 else Ranks()

    def leave(self) -> None:
        """End the others, or wait until the leader says so."""


class MpiRanks(Ranks):
    """LEADER mode: all ranks make an executor, and the first one serves. Its last pipeline stage computes logits."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm = MPI.COMM_WORLD
        self.is_leader = self._comm.Get_rank() == 0
        self._comm.Barrier()

    def leave(self) -> None:
        if not self.is_leader:
            self._comm.recv(source=0, tag=TERMINATE)
            return
        for rank in range(1, self._comm.Get_size()):
            self._comm.send(None, dest=rank, tag=TERMINATE)


class SpawnedRanks(Ranks):
    """ORCHESTRATOR mode: this process computes nothing; where a worker is lost, no step ever ends again."""

    computes_here = False

    def __init__(self, world_size: int, executable: str) -> None:
        if not Path(executable).is_file():
            raise RuntimeError(f"MPI_Comm_spawn: {executable} is no file")
        self.processes = [
            subprocess.Popen([sys.executable, executable], stdin=subprocess.PIPE) for _ in range(world_size)
        ]
        for process in self.processes:
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        self.lost = True

    def leave(self) -> None:
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
