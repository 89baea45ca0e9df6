"""Plan training runs: estimate a step's memory and time, and find the fastest settings that fit.

Start reading at `training_plan.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.planning.estimate import Setting, memory, seconds
    from pipeline.planning.training_plan import TrainingPlan, plan_training
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
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
