"""Joins the group argv[1] of argv[2] members by itself, then uses MPI; prints the line that hello.c prints."""

import os
import sys
from array import array

import rsd_join

try:
    place = rsd_join.join(sys.argv[1], size=int(sys.argv[2]), timeout=sys.argv[3])
except rsd_join.JoinError as error:
    sys.exit(f"refused {error.code}: {error}")

from mpi4py import MPI  # the place must be known before

world = MPI.COMM_WORLD
assert (world.Get_rank(), world.Get_size()) == (place.rank, place.size)
total = array("i", [0])
world.Allreduce(array("i", [place.rank]), total)  # as join.c does: both may be in one world
assert total[0] == place.size * (place.size - 1) // 2
assert os.environ["RSD_GROUP"] == place.group == sys.argv[1]
print(f"rank {place.rank} of {place.size} on {place.node}, local {place.local_rank} of {place.local_size}", flush=True)
