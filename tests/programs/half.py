"""A rank that initializes PMI by hand over PMI_PORT, reports that, and stops: as MPI_Init would up to its first barrier."""
import os
import socket
import sys
import time

host, port = os.environ["PMI_PORT"].split(":")
manager = socket.create_connection((host, int(port)))
answers = manager.makefile("r")
for request, lines in [
    (f"initack pmiid={os.environ['PMI_ID']}", 4),
    ("init pmi_version=1 pmi_subversion=1", 1),
    ("get_maxes", 1),
    ("get_appnum", 1),
    ("get_my_kvsname", 1),
]:
    manager.sendall(f"cmd={request}\n".encode())
    for _ in range(lines):
        answer = answers.readline()
        assert answer.startswith("cmd="), answer
print("begun", flush=True)
time.sleep(float(sys.argv[1]))
