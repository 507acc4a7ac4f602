"""Runtime: live objects built from settings. The one place that wires parts together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.runtime.backends import Backends as Backends
    from frazil.runtime.backends import connect_bus as connect_bus
    from frazil.runtime.backends import open_journal as open_journal
    from frazil.runtime.backends import open_parts as open_parts
    from frazil.runtime.backends import open_the_lake as open_the_lake
    from frazil.runtime.backends import open_warehouse as open_warehouse
    from frazil.runtime.data_dir import DataDir as DataDir
    from frazil.runtime.data_dir import check_catalog as check_catalog
    from frazil.runtime.data_dir import check_disk as check_disk
    from frazil.runtime.data_dir import read_json as read_json
    from frazil.runtime.data_dir import write_json as write_json
    from frazil.runtime.embedded_parts import STOP_ORDER as STOP_ORDER
    from frazil.runtime.embedded_parts import answers as answers
    from frazil.runtime.embedded_parts import ask_health as ask_health
    from frazil.runtime.embedded_parts import supervised_parts as supervised_parts
    from frazil.runtime.gateway import assemble_gateway as assemble_gateway
    from frazil.runtime.gateway import run_gateway as run_gateway
    from frazil.runtime.logs import set_up as set_up
    from frazil.runtime.machine_checks import check_java as check_java
    from frazil.runtime.machine_checks import check_port as check_port
    from frazil.runtime.machine_checks import free_port as free_port
    from frazil.runtime.pipeline import run_pipeline as run_pipeline
    from frazil.runtime.processes import of_run as of_run
    from frazil.runtime.processes import watch_supervisor as watch_supervisor
    from frazil.runtime.supervisor import PartState as PartState
    from frazil.runtime.supervisor import Screen as Screen
    from frazil.runtime.supervisor import SupervisedPart as SupervisedPart
    from frazil.runtime.supervisor import Supervisor as Supervisor
    from frazil.runtime.supervisor import end_leftovers as end_leftovers

__getattr__, __all__ = lazy_door(__name__)
