"""How often the attackers try: once through in `make test`, many times in `make torture`."""

import os

PERSISTENCE = max(1, int(os.environ.get("HOLDFAST_ATTACK_ROUNDS", "1")))
