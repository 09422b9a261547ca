"""Every rank sends a block to every other rank, and objects as well."""

import sys

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
block = 1000
out = numpy.repeat(numpy.arange(size) + 1000 * rank, block)
got = numpy.empty_like(out)
world.Alltoall(out, got)
if not numpy.array_equal(got, numpy.repeat(1000 * numpy.arange(size) + rank, block)):
    sys.exit(f"rank {rank}: the blocks are wrong")
objects = world.alltoall([{"from": rank, "to": to} for to in range(size)])
if objects != [{"from": source, "to": rank} for source in range(size)]:
    sys.exit(f"rank {rank}: the objects are wrong")
if rank == 0:
    print(f"alltoall right on {size} ranks")
