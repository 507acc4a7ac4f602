"""A second hand on the table: rewrites its small files with Spark again and again, as maintenance does.

Run as a program with the catalog's URL and the warehouse; it prints a line for each rewrite and ends with its input.
"""

from __future__ import annotations

import sys
import threading

from frazil.pipeline import open_session
from frazil.storage import Warehouse
from tests.quick_jvm import QUICK_JVM

_PAUSE_SECONDS = 1.0


def main() -> None:
    catalog_url, warehouse, table = sys.argv[1:]
    ended = threading.Event()

    def until_input_ends() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=until_input_ends, daemon=True).start()
    session = open_session(catalog_url=catalog_url, warehouse=Warehouse(warehouse), extra=QUICK_JVM)
    while not ended.wait(_PAUSE_SECONDS):
        try:
            done = session.sql(
                f"CALL frazil.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))"
            ).collect()
        except Exception as error:  # a commit of the pipeline came first: the next round finds more to do
            print(f"lost {type(error).__name__}", flush=True)
            continue
        print(f"rewrote {done[0]['rewritten_data_files_count']}", flush=True)


if __name__ == "__main__":
    main()
