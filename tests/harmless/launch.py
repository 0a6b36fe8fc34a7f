"""Starts two ranks of a program, keeps what each says in files, and ends as the first one that failed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    with ExitStack() as stack:
        ranks = []
        for rank in range(2):
            files = [stack.enter_context(Path(sys.argv[3], f"{name}-{rank}").open("w")) for name in ("out", "err")]
            environment = os.environ | {"RANK": str(rank)}
            ranks.append(
                subprocess.Popen([sys.executable, *sys.argv[1:]], env=environment, stdout=files[0], stderr=files[1])
            )
        codes = [each.wait() for each in ranks]
    sys.exit(next((code % 256 for code in codes if code), 0))
