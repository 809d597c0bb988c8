"""A TCP relay in front of a server, whose connections break as in a bad network."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Relay:
    """Passes bytes on until told to `cut`; `answers_to_lose` breaks connections at an answer."""

    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.attempts = 0
        self.answers_to_lose = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread in `accept` is not woken by close alone.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection, without a word to either side."""
        for pair in self._pairs:
            _break(*pair)
        self._pairs.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.attempts += 1
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError:
            _break(client)
            return
        self._pairs.append((client, server))
        threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
        self._pass_answers(client, server)

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _break(client, server)

    def _pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self.answers_to_lose > 0:
                    self.answers_to_lose -= 1
                    break
                client.sendall(data)
        _break(client, server)


def _break(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
