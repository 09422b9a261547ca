"""`actor.py GROUP SIZE PAUSE GATE`: an actor that no launcher has started. Starts after PAUSE seconds, joins the group, runs a reduction with
all others, prints the result, and repeats it until the file GATE exists."""

import os
import sys
import time

import rsd_join

name, size, pause, gate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
time.sleep(pause)
place = rsd_join.join(name, size=size, timeout=120)

from mpi4py import MPI  # the place must be known before

world = MPI.COMM_WORLD
print(f"epoch {place.epoch}: sum {world.allreduce(world.rank)} of {world.size}", flush=True)
while not world.bcast(os.path.exists(gate) if world.rank == 0 else None):
    time.sleep(0.02)
    world.allreduce(1)
