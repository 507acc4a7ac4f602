"""A supervisor over a real NATS server and stand-ins for the other parts.

python run_supervisor.py DATA [MODE_OF_GATEWAY] [MODE_OF_PIPELINE]
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from frazil.errors import FrazilError
from frazil.runtime.data_dir import DataDir
from frazil.runtime.embedded_parts import STOP_ORDER, supervised_parts
from frazil.runtime.supervisor import PartState, SupervisedPart, Supervisor, end_leftovers
from frazil.settings import load


class Printed:
    def show(self, parts: Sequence[PartState], seconds: float) -> None:
        return

    def ready(self, parts: Sequence[PartState], seconds: float) -> None:
        print("READY", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)


def main() -> int:
    data = DataDir(Path(sys.argv[1]))
    modes = dict(zip(("gateway", "pipeline"), sys.argv[2:], strict=False))
    settings = load(environment={}, overrides={"data_dir": data.root, "drain_seconds": 1})
    data.prepare()
    lock = data.lock()
    print(f"ended {end_leftovers(data)}", flush=True)
    parts, facts = supervised_parts(settings, data)
    stand_in = str(Path(__file__).with_name("stand_in.py"))

    def replaced(part: SupervisedPart) -> SupervisedPart:
        if part.name == "bus":
            return part
        ready = data.root / f"{part.name}.ready"
        command = [sys.executable, "-S", stand_in, part.name, str(data.root), modes.get(part.name, "")]
        return replace(
            part,
            command=command,
            probe=lambda pid: None if ready.exists() and ready.read_text() == str(pid) else "warming",
        )

    supervisor = Supervisor(
        [replaced(part) for part in parts],
        data,
        run_id=uuid.uuid4().hex,
        facts=facts,
        screen=Printed(),
        stop_order=STOP_ORDER,
    )
    try:
        return supervisor.run()
    except FrazilError as error:
        print(error.code, error.details, flush=True)
        return 3
    finally:
        lock.release()


if __name__ == "__main__":
    sys.exit(main())
