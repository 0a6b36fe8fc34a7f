"""The way in of Hugging Face's Trainer and those built on it: `Trainer(callbacks=[hangwatch.transformers.Watch()])`.

It counts in optimizer steps: a batch in the report is one of those, however many micro-batches it is made of.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hangwatch import session


class Watch(TrainerCallback):  # type: ignore[misc]  # transformers is installed where it is used, not where types are checked
    """A callback that attaches hangwatch to each rank and says which stage, epoch and step the Trainer is at.

    Args:
        settings: as for `hangwatch.attach`; under `hangwatch run` those of the command line hold.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._before = 0  # steps of the epochs before, or until training was resumed

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.attach(**self._settings)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._before = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.batch(state.global_step - self._before, epoch=int(state.epoch or 0))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.stage("validation")

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.stage("train")

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **more: Any) -> None:
        session.stage("between")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.stage("between")

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        session.stage("done")
