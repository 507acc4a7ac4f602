"""Trials: index configurations built, measured and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.trials.best_trial import find_best as find_best
    from frazil.serving.trials.best_trial import forget as forget
    from frazil.serving.trials.best_trial import parse_best as parse_best
    from frazil.serving.trials.chart import short as short
    from frazil.serving.trials.dataset import model_of as model_of
    from frazil.serving.trials.handler import TrialHandler as TrialHandler
    from frazil.serving.trials.trial_request import parse_trial as parse_trial
    from frazil.serving.trials.trial_rows import trial_json as trial_json

__getattr__, __all__ = lazy_door(__name__)
