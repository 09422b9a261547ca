"""A job spawns another one, and both meet in one communicator."""

import sys

from mpi4py import MPI

parent = MPI.Comm.Get_parent()
between = parent if parent else MPI.COMM_WORLD.Spawn(sys.executable, [__file__], maxprocs=2)
all_ranks = between.Merge(high=bool(parent))
print(f"{'child' if parent else 'parent'} in {all_ranks.allreduce(1)}", flush=True)
all_ranks.Free()
between.Disconnect()
