"""Subprocesses and forked workers of ranks, between messages."""

import multiprocessing
import os
import subprocess
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def square(number):
    return number * number


def passes():
    got = world.sendrecv(rank, dest=(rank + 1) % size, source=(rank - 1) % size)
    assert got == (rank - 1) % size


passes()
said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout
assert said == "42\n"
passes()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    passes()
passes()
assert os.system("exit 3") == 3 << 8
child = os.fork()
if child == 0:
    assert MPI.Is_finalized()
    sys.stdout.flush()
    sys.exit(5)
assert os.waitpid(child, 0)[1] == 5 << 8
passes()
right = world.allreduce(1)
if rank == 0:
    print(f"children right on {right} ranks")
