"""Scripts whose words no space divides: searches know them by pairs of characters."""

from __future__ import annotations

# For use inside the brackets of a regular expression. Hangul too: its particles hang on its words.
UNSPACED = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u3035\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9d\uffa0-\uffdc"
    "\U00020000-\U0003ffff"
)
