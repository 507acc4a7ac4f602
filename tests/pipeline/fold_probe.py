"""Folds one entity in a process of its own, which a test kills at a crash point.

Run as a program with the catalog's URL, the warehouse and the entity.
"""

from __future__ import annotations

import sys

from frazil.lake import open_lake
from frazil.pipeline.folder import Folder
from frazil.pipeline.session import open_session
from frazil.storage import Warehouse
from tests.quick_jvm import QUICK_JVM


def main() -> None:
    catalog_url, url, name = sys.argv[1:]
    warehouse = Warehouse(url)
    session = open_session(catalog_url=catalog_url, warehouse=warehouse, driver_memory="512m", extra=QUICK_JVM)
    print(Folder(open_lake(catalog_url, warehouse), name, session).fold(), flush=True)


if __name__ == "__main__":
    main()
