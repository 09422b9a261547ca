"""A PMIx client that says it is another process: `knock.py PORT NAMESPACE RANK`; prints what the server says to its first message."""

import socket
import struct
import sys

port, namespace, rank = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
# It also says that it belongs to root, twice.
body = b"native\0" + struct.pack(">I", 8) + struct.pack("=II", 0, 0) + b"\x09" + struct.pack(">II", 0, 0)
body += namespace + b"\0" + struct.pack(">I", rank) + b"5.0.11\0v41\0" + b"\x01" + b"hash\0"
with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
    try:
        stream.sendall(struct.pack("=iIII", -1, 0, len(body), 0) + body)
        said = stream.recv(16)
    except (ConnectionResetError, BrokenPipeError):
        said = b""
print({b"": "closed", bytes(8): "accepted"}.get(said, "refused"))
