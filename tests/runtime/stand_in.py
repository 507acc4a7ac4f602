"""A stand-in for a part: says that it is ready, notes when it was asked to stop, and misbehaves on request.

python stand_in.py NAME FOLDER [stubborn|family|dies|warming]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

name, folder, mode = sys.argv[1], Path(sys.argv[2]), (sys.argv[3:] or [""])[0]


def stop(number: int, frame: FrameType | None) -> None:
    with (folder / "stops").open("a") as stops:
        stops.write(f"{name}\n")
    if mode != "stubborn":
        sys.exit(0)


if mode == "dies":
    print("the last word")
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
if mode == "family":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    (folder / f"{name}.child").write_text(str(child.pid))
if mode == "warming":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"{name}.warming").write_text("")
    time.sleep(300)
(folder / f"{name}.ready").write_text(str(os.getpid()))
while True:
    time.sleep(0.05)
