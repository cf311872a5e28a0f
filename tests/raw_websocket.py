"""A WebSocket client on a plain socket that can send any bytes."""

import base64
import os
import socket
import struct
import time
from contextlib import suppress


class Refused(Exception):
    """The server refused the connection; `status` is its HTTP status."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Closed(Exception):
    """The server closed the connection; `code` is the reason, or None."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


class WebSocket:
    def __init__(self, host, port, path, **headers):
        self.socket = socket.create_connection((host, port), timeout=10)
        self._buffer = b""
        headers = {
            "Host": f"{host}:{port}",
            "Origin": f"http://{host}:{port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            **headers,
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self._buffer:
            self._read(10)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status != 101:
            self.socket.close()
            raise Refused(status)

    def send(self, message):
        """Send a whole message, masked with zeros; raises `Closed` if the server no longer reads."""
        content = message.encode() if isinstance(message, str) else message
        try:
            self._send(1 if isinstance(message, str) else 2, content)
        except OSError:
            raise Closed(None) from None

    def recv(self, timeout):
        """The next message; raises `TimeoutError` if none arrives."""
        end = time.monotonic() + timeout
        while True:
            first, second = self._take(2, end)
            size = second & 127
            if size > 125:
                size = int.from_bytes(self._take(2 if size == 126 else 8, end))
            content = self._take(size, end)
            kind = first & 15
            if kind == 1:
                return content.decode()
            if kind == 8:
                raise Closed(int.from_bytes(content[:2]) if content else None)
            assert kind == 9, kind
            self._send(10, content)

    def close(self, *, politely=True):
        try:
            if politely:
                self._send(8, struct.pack("!H", 1000))
        except OSError:
            pass
        finally:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes up the reading thread
            self.socket.close()

    def _send(self, kind, content):
        size = len(content)
        length = (
            bytes([size]) if size < 126 else struct.pack("!BH" if size < 2**16 else "!BQ", 126 + (size >= 2**16), size)
        )
        head = bytes([128 | kind, 128 | length[0]]) + length[1:]
        self.socket.settimeout(10)
        self.socket.sendall(head + bytes(4) + content)

    def _take(self, count, end):
        while len(self._buffer) < count:
            self._read(end - time.monotonic())
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _read(self, timeout):
        if timeout <= 0:
            raise TimeoutError
        self.socket.settimeout(timeout)
        try:
            some = self.socket.recv(2**16)
        except ConnectionError:
            some = b""
        if not some:
            raise Closed(None)
        self._buffer += some
