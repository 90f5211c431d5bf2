"""Rank 0 beside the server: holds the pool of workers until it is told to stop, by a file named after its address."""

import argparse
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--action", choices=("start", "stop"), default="start")
    stop = Path(urlsplit(os.environ["TLLM_SPAWN_PROXY_PROCESS_IPC_ADDR"]).path + ".stop")
    if parser.parse_args().action == "stop":
        stop.touch()
        return
    with MPICommExecutor(MPI.COMM_WORLD):
        while not stop.exists():
            time.sleep(0.05)
    stop.unlink()


if __name__ == "__main__":
    main()
