"""Rank 1 ends as the argument says, while rank 0 waits for it."""

import os
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
if world.rank == 1 and sys.argv[1] == "abort":
    world.Abort(7)
if world.rank == 1 and sys.argv[1] == "exit":
    os._exit(5)
world.Barrier()
