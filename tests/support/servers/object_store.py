"""An S3 server for tests: moto's, in this process, with faults in front of it on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from holdfast.supervisor import ports

ACCOUNT = "123456789012"
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class ObjectStore:
    """Buckets in memory, over HTTP. `unavailable` answers are 503; `lost` ones never arrive."""

    def __init__(self) -> None:
        self.port = ports.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.unavailable = threading.Event()
        self.lost = 0
        self.requests: list[str] = []
        self._moto: Wsgi = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", self.port, self._answer, threaded=True
        )

    def start(self) -> ObjectStore:
        """Serve in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables that lead here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.backend.create_bucket(name, "us-east-1")
        return name

    @property
    def backend(self) -> Any:
        """What moto keeps."""
        return get_backend("s3")[ACCOUNT]["aws"]

    def _answer(
        self, environment: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        self.requests.append(f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}")
        if self.unavailable.is_set():
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        answer = list(self._moto(environment, start_response))
        if self.lost > 0 and environment["REQUEST_METHOD"] == "PUT":
            self.lost -= 1
            environment["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer


class S3Harness:
    """A bucket behind a store, its objects to be broken, aged and lost."""

    def __init__(self, server: ObjectStore) -> None:
        self.server = server
        self.name = server.bucket()
        self.url = f"s3://{self.name}/some/prefix"

    def raw(self, blob_id: str) -> bytes:
        """The bytes as they lie in the bucket."""
        return bytes(self._object(blob_id).value)

    def damage(self, blob_id: str, raw: bytes) -> None:
        """Other bytes under the same name."""
        self.server.backend.put_object(self.name, self._key(blob_id), raw)

    def lose(self, blob_id: str) -> None:
        """No bytes under that name any more."""
        self.server.backend.delete_object(self.name, self._key(blob_id))

    def age(self, blob_id: str, *, hours: float) -> None:
        """As if the last put was that long ago."""
        self._object(blob_id).last_modified = (datetime.now(UTC) - timedelta(hours=hours)).replace(
            tzinfo=None
        )

    def leave_draft(self, blob_id: str, *, hours: float) -> None:
        """An object is there as a whole or not."""
        raise NotImplementedError

    def _object(self, blob_id: str) -> Any:
        return self.server.backend.get_object(self.name, self._key(blob_id))

    def _key(self, blob_id: str) -> str:
        digest = blob_id.removeprefix("sha256:")
        return f"some/prefix/sha256/{digest[:2]}/{digest[2:4]}/{digest}"
