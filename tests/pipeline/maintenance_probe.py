"""Does one step of maintenance in a process of its own, which a test kills at a crash point.

Run as a program with the catalog's URL, the warehouse, the table, the kind of step and the moment before which
snapshots and files are meant.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import cast

from frazil.lake import Step, open_lake
from frazil.lake.settings import MaintenanceSettings
from frazil.lake.upkeep import What
from frazil.pipeline.maintenance import Maintenance
from frazil.pipeline.session import open_session
from frazil.storage import Warehouse
from tests.quick_jvm import QUICK_JVM


def main() -> None:
    catalog_url, url, table, what, before = sys.argv[1:]
    warehouse = Warehouse(url)
    session = open_session(catalog_url=catalog_url, warehouse=warehouse, driver_memory="512m", extra=QUICK_JVM)
    maintenance = Maintenance(open_lake(catalog_url, warehouse), session, MaintenanceSettings())
    step = Step(cast(What, what), table, "a test", before=datetime.fromisoformat(before))
    print(maintenance.run(step).body(), flush=True)


if __name__ == "__main__":
    main()
