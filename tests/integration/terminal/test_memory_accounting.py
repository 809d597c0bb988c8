"""Memory is counted while processes come and go: what they share is never counted as an excess."""

import os
import signal
import subprocess
import sys

from holdfast.terminal.cages.accounting import memory_bytes

LIMIT = 96 * 1048576
# Five processes share 56 MiB, and each of them has a few MiB of its own.
SHARING = """
import mmap, os, time
file = os.memfd_create("kept"); os.truncate(file, 56 * 1048576)
kept = mmap.mmap(file, 56 * 1048576)
for place in range(0, len(kept), 4096): kept[place] = 1
for _ in range(4):
    if os.fork() == 0: time.sleep(1000)
print("all mapped", flush=True)
time.sleep(1000)
"""


def test_shared_memory_of_a_tree_that_ends_is_not_counted_twice() -> None:
    highest = 0
    for _ in range(25):
        with subprocess.Popen(
            [sys.executable, "-c", SHARING], stdout=subprocess.PIPE, process_group=0
        ) as leader:
            assert leader.stdout is not None
            leader.stdout.readline()
            highest = max(highest, memory_bytes(leader.pid, LIMIT // 2))
            os.killpg(leader.pid, signal.SIGKILL)
            while leader.poll() is None:
                highest = max(highest, memory_bytes(leader.pid, LIMIT // 2))
    assert 56 * 1048576 < highest < LIMIT
