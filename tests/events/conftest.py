from __future__ import annotations

from hypothesis import HealthCheck, settings

# A loaded machine is no failure; and examples of a run stay out of the tree.
settings.register_profile("events", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("events")
