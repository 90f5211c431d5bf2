"""A rank that does what the leader node hands out, until the leader closes the pool."""

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

if __name__ == "__main__":
    with MPICommExecutor(MPI.COMM_WORLD):
        pass
