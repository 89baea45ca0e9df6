"""Plan training runs: estimate the memory and time of a step by a fitted formula, and find settings that fit.

Start at `training_plan.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.planning.estimate import Setting, memory, seconds
    from pipeline.planning.training_plan import TrainingPlan, plan_training
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        estimate=(
            "Setting",
            "memory",
            "seconds",
        ),
        training_plan=(
            "TrainingPlan",
            "plan_training",
        ),
    )

__all__ = ["Setting", "TrainingPlan", "memory", "plan_training", "seconds"]
