"""Child program: a task on standard input, its progress and its result on standard output.

`python -m frazil.serving.child_program PARENT NICE` is started by `child_tasks.py`.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any

from frazil.child_process import die_with_parent, give_way, private_stdout
from frazil.errors import FrazilError
from frazil.serving.child_tasks import ChildTask


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    give_way(int(sys.argv[2]))
    answers = private_stdout()

    def send(kind: str, value: Any) -> None:
        pickle.dump((kind, value), answers)
        answers.flush()

    task: ChildTask[Any] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    try:
        send("result", task.run(lambda progress: send("progress", dict(progress))))
    except FrazilError as error:
        send("error", (error.body()["error"], error.transient))
    except MemoryError:
        send("out_of_memory", None)
    except Exception as error:
        traceback.print_exc()
        send("failed", f"{type(error).__name__}: {str(error)[:300]}")


if __name__ == "__main__":
    main()
