"""Communicators from process sets, without MPI_Init."""

import mpi4py

mpi4py.rc.initialize = False

from mpi4py import MPI

session = MPI.Session.Init()
world = session.Create_group("mpi://WORLD")
both = MPI.Intracomm.Create_from_group(world, "both")
first = MPI.Group.Incl(world, [0, 1])
sum_of_two = 2
if both.rank < 2:
    two = MPI.Intracomm.Create_from_group(first, "two")
    sum_of_two = two.allreduce(1)
    two.Free()
print(f"rank {both.rank} of {both.allreduce(1)}, {sum_of_two} in the smaller one", flush=True)
both.Free()
session.Finalize()
