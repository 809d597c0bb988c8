"""A page of another site in the operator's browser, against every port that `holdfast up` opens.

It may send simple requests anywhere, and after DNS rebinding it may read what answers its Host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.e2e.test_temporal_ui import listeners
from tests.support.servers.product import Product

EVIL = "http://evil.example"
HOSTS = ("evil.example", "localhost", "127.0.0.1", "0.0.0.0", "", "temporal", "[::1]")
GRPC = "/temporal.api.workflowservice.v1.WorkflowService/ListNamespaces"
PATHS = (
    *("/", "/api/v1/namespaces", "/temporal/api/v1/namespaces", "/api/v1/settings"),
    *("/api/v1/sessions", "/api/v1/projects", "/metrics", "/debug/pprof/", "/debug/vars", GRPC),
    "/api/v1/namespaces/default/workflows",
)
# What the API tells everybody who reaches it by its own name: files of the page, and numbers.
PUBLIC = ("/", "/metrics")


@pytest.fixture
def ports(product: Product) -> list[tuple[str, int, str]]:
    """Every address and port of ours that a page can find by trying ports, and whose it is."""
    found = [
        (host, port, name) for name, pid in product.pids().items() for host, port in listeners(pid)
    ]
    assert {name for _, _, name in found} >= {"api", "temporal"}
    assert not [one for one in found if not one[0].startswith("127.")], "loopback only"
    return [one for one in found if one[0] == "127.0.0.1"]


def requests(host: str, port: int) -> Iterator[tuple[httpx2.Response, str, str, str]]:
    """What such a page sends; each answer with its method, path and Host. No HTTP: nothing."""
    kinds = ("text/plain", "application/grpc-web+proto", "application/x-www-form-urlencoded")
    with httpx2.Client(base_url=f"http://{host}:{port}", trust_env=False, timeout=5.0) as client:
        for path in PATHS:
            for name in HOSTS:
                for method, kind in (("GET", ""), *(("POST", kind) for kind in kinds)):
                    headers = {"Host": name or f"{host}:{port}", "Origin": EVIL}
                    headers |= {"Content-Type": kind} if kind else {}
                    content = b"\0\0\0\0\0" if kind else None
                    try:
                        answer = client.request(method, path, headers=headers, content=content)
                    except httpx2.TransportError:
                        continue
                    yield answer, method, path, name


def test_no_port_answers_a_page_of_another_site(
    ports: list[tuple[str, int, str]], client: httpx2.Client, project: dict[str, Any]
) -> None:
    session = client.post(f"/projects/{project['id']}/sessions", json={}).json()["id"]
    client.post(f"/sessions/{session}/messages", json={"content": "hello"})
    heard = 0
    for host, port, part in ports:
        for answer, method, path, name in requests(host, port):
            heard += 1
            what = (part, port, method, path, name, answer.status_code, answer.text[:200])
            assert "access-control-allow-origin" not in answer.headers, what
            own_name = name in ("localhost", "127.0.0.1", "", "[::1]")
            if part == "api" and own_name and path in PUBLIC and method == "GET":
                continue
            if part == "temporal" and path == "/metrics":
                # Its numbers cannot be switched off: they name namespaces and task queues.
                assert session not in answer.text
                continue
            assert answer.status_code >= 400, what
            assert "namespaceInfo" not in answer.text, what
    assert heard > 100


def test_no_port_lets_a_page_of_another_site_ask_for_more(
    ports: list[tuple[str, int, str]],
) -> None:
    for host, port, part in ports:
        for path in PATHS:
            headers = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
            try:
                url = f"http://{host}:{port}{path}"
                answer = httpx2.request("OPTIONS", url, headers=headers, trust_env=False, timeout=5)
            except httpx2.TransportError:
                continue
            assert "access-control-allow-origin" not in answer.headers, (part, path)


def test_no_socket_opens_for_a_page_of_another_site(
    product: Product, ports: list[tuple[str, int, str]]
) -> None:
    token = {"Authorization": f"Bearer {product.token()}"}
    for host, port, part in ports:
        for path in ("/api/v1/system/socket", "/", "/temporal/api/v1/namespaces"):
            with pytest.raises((InvalidHandshake, OSError, EOFError)):
                connect(
                    f"ws://{host}:{port}{path}",
                    origin=Origin(EVIL),
                    additional_headers=token if part == "api" else None,
                    open_timeout=5,
                )
