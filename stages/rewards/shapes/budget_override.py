"""r = over_value where T > tau * b0, else R (K3, 2607.24653).

Strictly greater: exactly tau * b0 is allowed. A truncated rollout is over whatever its length.
"""

from __future__ import annotations

import numpy as np

from stages.core.records import FloatArray
from stages.rewards.config import BudgetOverride
from stages.rewards.group import GroupView


def shape(config: BudgetOverride, group: GroupView) -> FloatArray:
    """Shaped rewards_G; NaN stays where a rollout is unscored."""
    return np.where(group.over_budget_G & group.scored_G, config.over_value, group.rewards_G)
