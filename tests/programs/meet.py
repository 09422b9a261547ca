"""The dialogue of a framework without MPI: rank 0 listens at MASTER_ADDR:MASTER_PORT, the others connect and send their ranks, and
all get the sum. It uses only the environment, as torch's env:// does."""

import os
import socket
import time

rank, size, local, local_size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
deadline = time.monotonic() + 30


def connect():
    while True:
        try:
            return socket.create_connection(address, timeout=30)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


if rank == 0:
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True} if socket.has_dualstack_ipv6() else {}
    listener = socket.create_server(("", address[1]), **both)
    peers = [listener.accept()[0] for _ in range(size - 1)]
    said = [int(peer.makefile().readline()) for peer in peers]
    assert sorted(said) == list(range(1, size)), said
    total = sum(said)
    for peer in peers:
        peer.sendall(f"{total}\n".encode())
else:
    with connect() as master:
        master.sendall(f"{rank}\n".encode())
        total = int(master.makefile().readline())
assert total == size * (size - 1) // 2
interface = os.environ.get("GLOO_SOCKET_IFNAME", "-")
print(f"rank {rank} of {size}, local {local} of {local_size}, node {os.environ['NODE_RANK']} of {os.environ['GROUP_WORLD_SIZE']}, {interface}")
