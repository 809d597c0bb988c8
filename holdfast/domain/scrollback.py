"""How many lines of output a terminal keeps for whoever attaches: the default and the bounds."""

LINES_DEFAULT = 10_000
LINES_MIN = 100
# A terminal host holds these lines in memory, for up to eight terminals of each session.
LINES_MAX = 50_000
