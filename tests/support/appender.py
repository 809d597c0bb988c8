"""A process of its own that appends messages and says which ones were committed."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.storage.database.opening import open_store
from holdfast.storage.sessions import messages


def main() -> None:
    """`python -m tests.support.appender HOME SESSION NAME COUNT`"""
    home, session_id, name, count = sys.argv[1:]
    store = open_store(None, Path(home))
    for number in range(int(count)):
        word = f"{name}x{number}"
        said = store.write(
            lambda db, word=word: messages.append(  # type: ignore[misc]
                db, session_id, role="operator", content=f"common {word} words"
            )
        )
        sys.stdout.write(f"{word} {said.id}\n")
        sys.stdout.flush()
    store.close()


if __name__ == "__main__":
    main()
