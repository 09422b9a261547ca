"""Every rank contributes a vector to a sum and checks the result."""

import sys

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
mine = numpy.arange(100_000, dtype="d") + rank
total = numpy.empty_like(mine)
world.Allreduce(mine, total)
expected = numpy.arange(100_000, dtype="d") * size + size * (size - 1) / 2
if not numpy.array_equal(total, expected):
    sys.exit(f"rank {rank}: the sum is wrong")
if rank == 0:
    print(f"allreduce right on {size} ranks")
