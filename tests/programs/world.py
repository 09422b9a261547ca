"""What a Python program does with MPI, with any mpi4py and without other packages: `world.py [spawn]`. Rank 0 prints `world right on N`, or
`spawned right from N` after it has spawned two processes together with the other ranks."""

import sys
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def ring():
    token = array("q", [0])
    if rank > 0:
        world.Recv(token, source=rank - 1)
        token[0] += rank
    if rank + 1 < size:
        world.Send(token, dest=rank + 1)
    elif size > 1:
        assert token[0] == size * (size - 1) // 2, token


def collectives():
    mine, total = array("d", [rank + at for at in range(10_000)]), array("d", bytes(80_000))
    world.Allreduce(mine, total)
    assert total == array("d", [size * at + size * (size - 1) / 2 for at in range(10_000)])
    words = world.alltoall([{"from": rank, "to": to} for to in range(size)])
    assert words == [{"from": source, "to": rank} for source in range(size)], words
    assert world.bcast("text" if rank == size - 1 else None, root=size - 1) == "text"


def spawn():
    children = world.Spawn(sys.executable, [__file__, "child"], maxprocs=2)
    everybody = children.Merge(high=False)
    assert everybody.allreduce(1) == size + 2
    everybody.Free()
    children.Disconnect()


def child():
    parents = MPI.Comm.Get_parent()
    everybody = parents.Merge(high=True)
    assert everybody.Get_rank() >= everybody.Get_size() - 2
    everybody.allreduce(1)
    everybody.Free()
    parents.Disconnect()


way = sys.argv[1] if len(sys.argv) > 1 else ""
if way == "child":
    child()
elif way == "spawn":
    spawn()
else:
    ring()
    collectives()
if rank == 0 and way != "child":
    print(f"spawned right from {size}" if way == "spawn" else f"world right on {size}", flush=True)
