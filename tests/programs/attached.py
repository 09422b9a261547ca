"""Attaches a process that runs already, then connects to another one: `attached.py accept` and `attached.py connect`."""

from mpi4py import MPI

import rsd_join

assert MPI.COMM_WORLD.size == 1 and MPI.Is_initialized()
place = rsd_join.attach(timeout="30s")
assert (place.rank, place.size) == (0, 1) and place.job > 0, place
assert rsd_join.attach() == place

import doors  # noqa: E402, F401: what it does follows from the arguments
