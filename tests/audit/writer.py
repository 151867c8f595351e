"""A process that writes events until it is killed; it says the number of each event once the sink has taken it.

python writer.py LOG [HOW_MANY] [MAX_BYTES]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from nco_guard.audit.jsonl import JsonLinesSink
from nco_guard.audit.recorder import RunRecorder


def main() -> None:
    path, how_many = sys.argv[1], int(sys.argv[2])
    max_bytes = int(sys.argv[3]) if len(sys.argv) > 3 else None
    sink = JsonLinesSink(path, max_bytes=max_bytes)
    run = RunRecorder(sink)
    os.write(1, f"{run.run_id}\n".encode())
    for number in range(how_many):
        run.intervention(sequence=0, step=number, rule_ids=["email", "ssn"], removed_probability=0.25)
        os.write(1, f"{number}\n".encode())
    sink.close()


if __name__ == "__main__":
    main()
