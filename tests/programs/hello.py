"""Every rank prints one line."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
assert world.Get_rank() == int(os.environ["RSD_RANK"])
print(f"rank {world.Get_rank()} of {world.Get_size()} on {os.environ['RSD_NODE_NAME']}", flush=True)
