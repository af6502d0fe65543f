"""A client of the echo server that shares nothing with it but TCP.

    echo.py HOST:PORT CONNECTIONS ROUNDS SIZE

Each round sends a message on every connection before it reads the first answer. At the end each connection is closed
for writing and has to see the end of the stream. Status 0 when every byte came back, else 1 and a line that says what
was wrong.
"""

import hashlib
import socket
import sys

LIMIT = 30  # seconds that any one call may take


def content(connection, number, size):
    """Bytes that no other message has."""
    return hashlib.shake_128(b"%d %d" % (connection, number)).digest(size)


def receive(stream, size):
    """Up to `size` bytes; fewer only when the stream ends first."""
    parts = []
    while size > 0:
        part = stream.recv(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main(address, connections, rounds, size):
    host, port = address.rsplit(":", 1)
    streams = [socket.create_connection((host, int(port)), timeout=LIMIT) for _ in range(connections)]
    for number in range(rounds):
        for connection, stream in enumerate(streams):
            stream.sendall(content(connection, number, size))
        for connection, stream in enumerate(streams):
            got = receive(stream, size)
            if got != content(connection, number, size):
                return f"connection {connection}, message {number}: {len(got)} bytes of {size}, or wrong ones"
    for connection, stream in enumerate(streams):
        stream.shutdown(socket.SHUT_WR)
        if stream.recv(1) != b"":
            return f"connection {connection}: bytes that nobody sent"
        stream.close()
    return None


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
