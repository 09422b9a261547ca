"""Two jobs connect through a published name: `doors.py accept` and `doors.py connect`."""

import sys
from array import array

from mpi4py import MPI

NAME = "the door"
world = MPI.COMM_WORLD
accepts = sys.argv[1] == "accept"
port = ""
if world.rank == 0 and accepts:
    port = MPI.Open_port()
    MPI.Publish_name(NAME, port)
    print("published", flush=True)
elif world.rank == 0:
    port = MPI.Lookup_name(NAME)
between = world.Accept(port) if accepts else world.Connect(port)
together = between.Merge(high=not accepts)
total = array("i", [0])
together.Allreduce(array("i", [1]), total)  # as attached.c does: both may be in one world
print(f"{total[0]} together", flush=True)
together.Free()
between.Disconnect()
