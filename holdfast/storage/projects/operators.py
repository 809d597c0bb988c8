"""Operators and their tokens. A token is shown once; at rest there is only its SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets

from sqlalchemy import bindparam, or_
from sqlmodel import col, select, update

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Operator, Token
from holdfast.storage.database.tables_history import Meta

DEFAULT_OPERATOR = "local"
OPERATORS_MAX = 10_000
LAUNCH_LIFE_MS = 60 * 60 * 1000
COOKIE_LIFE_MS = 30 * 24 * 60 * 60 * 1000
_LIFE_MS = {"bearer": None, "launch": LAUNCH_LIFE_MS, "cookie": COOKIE_LIFE_MS}
_PREFIX = {"bearer": "hf_", "launch": "hfl_", "cookie": "hfc_"}
_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")
TOKEN_CHARS_MAX = 200
_LIMIT_KEY = "running_sessions_per_operator"
# Built once: every request asks for it.
_BY_HASH = select(Token).where(col(Token.token_hash) == bindparam("hash"))


def ensure_default(db: Db) -> Operator:
    """The operator of a machine with one person, made when missing."""
    named = select(Operator).where(Operator.name == DEFAULT_OPERATOR)
    found = db.exec(named).first()
    if found is None:
        # Several APIs may start on an empty database at once.
        insert_once(db, Operator, _fresh(db, DEFAULT_OPERATOR).model_dump())
        found = db.exec(named).one()
    return found


def add(db: Db, name: str, *, running_limit: int | None = None) -> Operator:
    """A new operator; a name that is taken is a conflict."""
    if not _NAME.match(name):
        raise ValidationFailed("an operator's name has 1 to 63 of a-z, 0-9, '.', '_' and '-'")
    if db.exec(select(Operator).where(Operator.name == name)).first() is not None:
        raise Conflict(f"there is an operator named {name} already")
    operator = _fresh(db, name, running_limit=running_limit)
    db.add(operator)
    db.flush()
    return operator


def _fresh(db: Db, name: str, *, running_limit: int | None = None) -> Operator:
    limit = running_limit if running_limit is not None else _default_limit(db)
    return Operator(id=new_id(), name=name, created_at=now_ms(), running_limit=limit)


def by_name(db: Db, name: str) -> Operator:
    """The operator with this name, or NotFound."""
    found = db.exec(select(Operator).where(Operator.name == name)).first()
    if found is None:
        raise NotFound(f"there is no operator named {name}")
    return found


def all_operators(db: Db) -> list[Operator]:
    """Every operator, by name."""
    return list(db.exec(select(Operator).order_by(col(Operator.name)).limit(OPERATORS_MAX)))


def set_default_limit(db: Db, limit: int) -> None:
    """How many sessions an operator may run whose limit nobody set by hand."""
    before = _default_limit(db)
    unset = col(Operator.running_limit).is_(None)
    by_default = or_(unset, col(Operator.running_limit) == before)
    db.exec(update(Operator).where(by_default).values(running_limit=limit))
    if not insert_once(db, Meta, {"key": _LIMIT_KEY, "value": str(limit)}):
        change(db, Meta, _LIMIT_KEY, value=str(limit))


def issue_token(
    db: Db, operator_id: str, kind: str = "bearer", expires_at: int | None = None, label: str = ""
) -> str:
    """A fresh secret for the operator. Launch and cookie tokens expire by themselves."""
    secret = _PREFIX[kind] + secrets.token_urlsafe(32)
    now = now_ms()
    life = _LIFE_MS[kind]
    if expires_at is None and life is not None:
        expires_at = now + life
    db.add(
        Token(
            id=new_id(),
            operator_id=operator_id,
            token_hash=token_hash(secret),
            kind=kind,
            label=label,
            created_at=now,
            expires_at=expires_at,
        )
    )
    db.flush()
    return secret


def authenticate(db: Db, token: str, *, kind: str = "bearer") -> Operator | None:
    """Whose token this is, or None. Reads only."""
    row = _valid(db, token, kind)
    if row is None:
        return None
    operator = db.get(Operator, row.operator_id)
    return None if operator is None or operator.disabled else operator


def redeem_launch(db: Db, token: str) -> str | None:
    """Turn a launch token into a cookie token; it works once."""
    row = _valid(db, token, "launch")
    if row is None:
        return None
    # The condition decides between two browsers that come at once.
    used = db.exec(
        update(Token)
        .where(col(Token.id) == row.id, col(Token.used_at).is_(None))
        .values(used_at=now_ms())
    )
    return issue_token(db, row.operator_id, kind="cookie") if used.rowcount == 1 else None


def revoke_all(db: Db, operator_id: str) -> int:
    """Make every token of an operator worthless; how many there were."""
    changed = db.exec(
        update(Token)
        .where(col(Token.operator_id) == operator_id, col(Token.revoked_at).is_(None))
        .values(revoked_at=now_ms())
    )
    return int(changed.rowcount)


def token_hash(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _default_limit(db: Db) -> int | None:
    found = db.get(Meta, _LIMIT_KEY)
    return None if found is None else int(found.value)


def _valid(db: Db, token: str, kind: str) -> Token | None:
    if not token or len(token) > TOKEN_CHARS_MAX:
        return None
    row = db.exec(_BY_HASH, params={"hash": token_hash(token)}).first()
    if row is None or row.kind != kind or row.revoked_at is not None:
        return None
    if row.expires_at is not None and row.expires_at <= now_ms():
        return None
    return row if row.kind != "launch" or row.used_at is None else None
