"""A classifier with Lightning, as its users write it: light.py CASE. It knows of hangwatch only where it says so."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Shards(IterableDataset):
    """Each rank reads files of its own, which need not be equally long."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[Any]:
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        for _ in range(self.sizes[rank]):
            yield torch.randn(16), torch.randint(0, 10, ())


def samples(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 16), torch.randint(0, 10, (count,)))


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 10))

    def loss(self, batch: Any) -> Any:
        return nn.functional.cross_entropy(self.body(batch[0]), batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-3)


class MeetsBadData(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_rank == 1 and self.current_epoch == 1 and batch_idx == 3:
            raise ValueError("label 11 is out of range")  # the line: swallowed
        return self.loss(batch)


class GathersErrors(Classifier):
    """Its validation takes the mean over all ranks, batch by batch."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("error", self.all_gather(self.loss(batch)).mean())


class Uploads(pl.Callback):
    """A tracker that confirms what it was sent, if it is there."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero and trainer.current_epoch == 1:
            queue.SimpleQueue[str]().get()  # the line: hook


class MeansOfTheLarge(pl.Callback):
    """Logs the mean over all ranks where this rank's loss is remarkable."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.is_global_zero and trainer.current_epoch == 1 and batch_idx == 3:
            trainer.strategy.reduce(outputs["loss"].detach(), reduce_op="mean")  # the line: guarded


class SlowOnZero(pl.Callback):
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            time.sleep(12)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer.strategy.reduce(outputs["loss"].detach(), reduce_op="mean")


def fit(model: Any, train: Any, *callbacks: Any, epochs: int = 3, held: int = 4) -> Any:
    """`held` is how many batches each rank validates."""
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=epochs, callbacks=list(callbacks), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(), limit_val_batches=held,
    )  # fmt: skip
    trainer.fit(model, DataLoader(train, 8), DataLoader(samples(64), 8))  # the line: uneven
    return trainer


def main(case: str) -> None:
    if case == "hook":
        fit(Classifier(), samples(160), Uploads())
    elif case == "uneven":
        fit(Classifier(), Shards(96, 72))
    elif case == "limited":
        fit(GathersErrors(), samples(160), held=4 if os.environ.get("LOCAL_RANK") == "1" else 3)
    elif case == "guarded":
        fit(Classifier(), samples(160), MeansOfTheLarge())
    elif case == "swallowed":
        model = MeetsBadData()
        try:
            fit(model, samples(160))
        except ValueError as error:
            print("training ended early:", error)
            model.trainer.save_checkpoint(f"{tempfile.gettempdir()}/last-{os.getpid()}.ckpt")
    else:
        import hangwatch

        fit(Classifier(), samples(160), hangwatch.lightning.Watch(), SlowOnZero(), epochs=4)
        print("trained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
