"""Lightning's way in: `Trainer(callbacks=[hangwatch.lightning.Watch()])`.

The trainer's own epoch and batch stand in the report then, and its validation is known as such from its first moment.
"""

from __future__ import annotations

from typing import Any

from hangwatch import session

try:
    from lightning.pytorch import Callback
except ImportError:  # the same package under its older name
    from pytorch_lightning import Callback


class Watch(Callback):  # type: ignore[misc]  # Lightning is installed where it is used, not where types are checked
    """A callback that attaches hangwatch to each rank and says which stage, epoch and batch the trainer is at.

    It holds nothing but the settings, so that a trainer that starts its ranks by pickling itself can take it along.

    Args:
        settings: as for `hangwatch.attach`; under `hangwatch run` those of the command line hold.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        session.attach(**self._settings)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        session.batch(batch_idx, epoch=trainer.current_epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        session.stage("validation")

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *batch: Any, **more: Any) -> None:
        session.stage("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.training:
            session.stage("train")

    def on_test_batch_start(self, trainer: Any, pl_module: Any, *batch: Any, **more: Any) -> None:
        session.stage("test")

    def on_predict_batch_start(self, trainer: Any, pl_module: Any, *batch: Any, **more: Any) -> None:
        session.stage("predict")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        session.stage("between")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        session.stage("done")
