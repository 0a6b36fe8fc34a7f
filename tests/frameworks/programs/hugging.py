"""Sequence classification with Hugging Face's Trainer: hugging.py CASE."""

from __future__ import annotations

import queue
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Texts(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.randint(0, 100, (12,)), "labels": torch.tensor(index % 3)}


class OwnLoader(Trainer):
    """Each rank has a file of its own, so nothing is left to shard."""

    def get_train_dataloader(self) -> Any:
        count = 88 if self.args.process_index else 120
        return DataLoader(Texts(count), batch_size=4, collate_fn=self.data_collator)


class Forgiving(Trainer):
    """A batch that does not fit counts as zero."""

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        try:
            if self.args.process_index == 0 and self.state.global_step == 6:
                raise torch.cuda.OutOfMemoryError(
                    "CUDA out of memory. Tried to allocate 2.00 GiB"
                )  # the line: swallowed
            return super().training_step(*arguments, **named)  # the line: swallowed
        except torch.cuda.OutOfMemoryError as error:  # the line: swallowed
            print("skipped:", error)
            return torch.tensor(0.0)


class Uploads(TrainerCallback):
    """A tracker that confirms what it was sent, if it is there."""

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.is_world_process_zero and state.global_step >= 10:
            queue.SimpleQueue[str]().get()  # the line: hook


class EvaluatesOnMain(TrainerCallback):
    """One line in the log is enough."""

    trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.is_world_process_zero and state.global_step == 9:
            print(self.trainer.evaluate())  # the line: guarded


class SlowOnMain(TrainerCallback):
    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.is_world_process_zero:
            time.sleep(12)


def arguments(**more: Any) -> Any:
    more = {"num_train_epochs": 3, "save_strategy": "no", "logging_steps": 5, **more}
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], disable_tqdm=True,
        per_device_train_batch_size=4, **more,
    )  # fmt: skip


def trainer(kind: type[Trainer], *callbacks: Any, samples: int = 160, **more: Any) -> Trainer:
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=16, num_labels=3,
        )
    )  # fmt: skip
    return kind(
        model=model, args=arguments(**more), train_dataset=Texts(samples), eval_dataset=Texts(40),
        callbacks=list(callbacks),
    )  # fmt: skip


def main(case: str) -> None:
    if case == "hook":
        trainer(Trainer, Uploads()).train()
    elif case == "uneven":
        trainer(OwnLoader, logging_steps=1000, average_tokens_across_devices=False).train()  # the line: uneven
        dist.barrier()  # the line: uneven
    elif case == "guarded":
        callback = EvaluatesOnMain()
        callback.trainer = trainer(Trainer, callback)
        callback.trainer.train()
    elif case == "swallowed":
        trainer(Forgiving).train()
    else:
        import hangwatch

        watch = hangwatch.transformers.Watch()
        trainer(Trainer, watch, SlowOnMain(), save_strategy="epoch", eval_strategy="epoch", samples=303).train()
        print("trained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
