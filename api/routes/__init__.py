"""Routes, one noun a file. A new file is served when its router is in this list."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes import (
    approvals,
    changes,
    chats,
    checkpoints,
    compactions,
    exports,
    heads,
    issues,
    library,
    memory,
    messages,
    page,
    projects,
    ptys,
    rollbacks,
    runs,
    search,
    sessions,
    waiting,
)
from api.routes.operating import (
    admin,
    audit,
    fleet,
    health,
    hosts,
    reference,
    temporal_ui,
    usage,
)
from api.stream import session_socket, system_socket

ROUTERS: tuple[APIRouter, ...] = (
    projects.router,
    # Before the sessions: `/sessions/import` and `/sessions/prune` are no sessions' names.
    exports.router,
    library.router,
    search.router,
    usage.router,
    audit.router,
    chats.router,
    sessions.router,
    messages.router,
    waiting.router,
    runs.router,
    ptys.router,
    checkpoints.router,
    rollbacks.router,
    changes.router,
    heads.router,
    compactions.router,
    approvals.router,
    issues.router,
    memory.router,
    hosts.router,
    admin.router,
    fleet.router,
    reference.router,
    session_socket.router,
    system_socket.router,
)

# Served without the prefix /api/v1.
ROOT_ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    page.router,
    temporal_ui.router,
)
