"""Numbers for Prometheus: what the API does, and how many sessions stand where."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """One registry per process, so tests never share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "holdfast_http_requests",
            "Requests answered, by method and status.",
            ["method", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "holdfast_http_request_seconds",
            "Time from a request to its answer.",
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15),
        )
        self.sockets = Gauge(
            "holdfast_sockets", "Open WebSockets, by kind.", ["kind"], registry=self.registry
        )
        self.memory_searches = Counter(
            "holdfast_memory_searches",
            "Searches of a memory, by whether its index was behind.",
            ["index"],
            registry=self.registry,
        )
        self.sessions = Gauge(
            "holdfast_sessions", "Sessions, by state.", ["state"], registry=self.registry
        )
        self.attention = Gauge(
            "holdfast_sessions_attention",
            "Sessions that need a person, by what they need.",
            ["kind"],
            registry=self.registry,
        )

        self.chats_cached = Gauge(
            "holdfast_chats_cached", "Chat sessions in this process.", registry=self.registry
        )

    def text(self, by_state: dict[str, int], by_attention: dict[str, int]) -> bytes:
        """The exposition format."""
        self.sessions.clear()
        for state, count in by_state.items():
            self.sessions.labels(state).set(count)
        self.attention.clear()
        for kind, count in by_attention.items():
            self.attention.labels(kind).set(count)
        return generate_latest(self.registry)
