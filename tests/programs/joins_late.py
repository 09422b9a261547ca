"""Joins a group after MPI is initialised, by its import, which is refused; prints why."""

from mpi4py import MPI

import rsd_join

assert MPI.Is_initialized()
try:
    rsd_join.join("actors", size=1, timeout=5)
except rsd_join.JoinError as error:
    print(f"refused {error.code}: {error}")
