"""The ways in of the frameworks, with the real packages where they are installed, on the board of this process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import hangwatch
from hangwatch import session
from hangwatch.model import Phase, Reading
from hangwatch.settings import Settings
from hangwatch_agent.board.reader import read_board
from hangwatch_agent.rank import guard, probe

NOT_HERE = "{} is not installed; `make frameworks` installs it"
THEIR_WARNINGS = pytest.mark.filterwarnings("ignore")  # deprecations among the frameworks are none of ours
Seen = list[tuple[Phase, int | None, int | None]]


class Board:
    """The board of this process, which is attached."""

    def __init__(self, installed: probe.Probe) -> None:
        self.installed = installed

    @property
    def reading(self) -> Reading:
        assert self.installed.board is not None
        self.installed.context.steps.publish()
        return read_board(self.installed.board)

    @property
    def now(self) -> tuple[Phase, int | None, int | None]:
        """Phase, epoch and batch."""
        reading = self.reading
        return reading.phase, reading.progress.epoch, reading.progress.batch


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    installed = probe.install(Settings(), tmp_path)
    monkeypatch.setattr(session, "_session", session.Session(installed, tmp_path))
    guard.raise_swallowed(True)
    yield Board(installed)
    guard.raise_swallowed(False)
    installed.remove()


# ------------------------------------------------------------------------------------------ without a framework


def test_batches_and_stages_of_a_loop_of_ones_own(board: Board) -> None:
    hangwatch.batch(3, epoch=1)
    assert board.now == (Phase.STEP, 1, 3)
    hangwatch.batch(0, epoch=1, stage="validation")
    assert board.now == (Phase.EVAL, 1, 3)  # the training's batch stays
    hangwatch.stage("between")
    assert board.now == (Phase.BETWEEN, 1, 3)


def test_a_stage_that_does_not_exist_costs_a_warning(board: Board) -> None:
    hangwatch.batch(3, epoch=1)
    with pytest.warns(RuntimeWarning, match="'training' is no stage; one of train, validation"):
        hangwatch.stage("training")
    with pytest.warns(RuntimeWarning, match="'training' is no stage"):
        hangwatch.batch(4, stage="training")
    assert board.now == (Phase.STEP, 1, 3)


def test_nothing_happens_where_nothing_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_session", None)
    hangwatch.batch(0)
    hangwatch.stage("train")
    assert session._session is None


def test_a_framework_is_imported_by_those_only_that_name_it() -> None:
    script = "import sys, hangwatch; hangwatch.ray; print('ray' in sys.modules, hangwatch.ray.watched.__name__)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False watched\n"
    with pytest.raises(AttributeError, match="has no attribute 'keras'"):
        _ = hangwatch.keras


# ------------------------------------------------------------------------------------------ Ray


def test_rays_loop_is_watched_until_it_returns(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANGWATCH_WATCHDOG_PID", raising=False)
    seen: Seen = []

    def train_loop(config: dict[str, int]) -> str:
        for epoch in range(config["epochs"]):
            for _ in hangwatch.ray.batches("ab", epoch=epoch):
                seen.append(board.now)
        return "trained"

    assert hangwatch.ray.watched(train_loop)({"epochs": 2}) == "trained"
    assert seen == [(Phase.STEP, epoch, batch) for epoch in range(2) for batch in range(2)]
    assert session._session is None


def test_a_worker_whose_loop_raises_stays_watched(board: Board) -> None:
    def train_loop() -> None:
        raise ValueError("bad shard")

    with pytest.raises(ValueError, match="bad shard"):
        hangwatch.ray.watched(train_loop)()
    assert session._session is not None


# ------------------------------------------------------------------------------------------ Lightning


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


@THEIR_WARNINGS
def test_lightning_gives_its_own_epoch_batch_and_stage(board: Board, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason=NOT_HERE.format("lightning"))
    trained: Seen = []
    evaluated: Seen = []

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> Any:
            trained.append(board.now)
            return self.net(batch).sum()

        def validation_step(self, batch: torch.Tensor, index: int) -> None:
            if not self.trainer.sanity_checking:
                evaluated.append(board.now)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[hangwatch.lightning.Watch()],
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(Numbers(), 2), DataLoader(Numbers(), 4))
    assert trained == [(Phase.STEP, epoch, batch) for epoch in range(2) for batch in range(4)]
    assert evaluated == [(Phase.EVAL, epoch, 3) for epoch in range(2) for _ in range(2)]
    assert board.now == (Phase.BETWEEN, 1, 3)
    assert pickle.dumps(hangwatch.lightning.Watch(stall_after=60))  # trainers that spawn take it along


# ------------------------------------------------------------------------------------------ Hugging Face


@THEIR_WARNINGS
def test_transformers_gives_its_own_epoch_step_and_stage(board: Board, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason=NOT_HERE.format("transformers"))
    pytest.importorskip("accelerate", reason=NOT_HERE.format("accelerate"))
    trained: Seen = []
    evaluated: Seen = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            (trained if self.training else evaluated).append(board.now)
            return {"loss": self.net(x).sum()}

    class Rows(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"x": torch.tensor([float(index)]), "labels": torch.tensor(0)}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True, num_train_epochs=2,
        per_device_train_batch_size=2, per_device_eval_batch_size=4, gradient_accumulation_steps=2,
        eval_strategy="epoch", save_strategy="no",
    )  # fmt: skip
    transformers.Trainer(
        model=Model(), args=arguments, train_dataset=Rows(), eval_dataset=Rows(),
        callbacks=[hangwatch.transformers.Watch()],
    ).train()  # fmt: skip
    # Two micro-batches make a step, and two steps an epoch.
    assert [place[1:] for place in trained] == [(e, step) for e in range(2) for step in range(2) for _ in range(2)]
    assert [place[1:] for place in evaluated] == [(e, 1) for e in range(2) for _ in range(2)]
    assert evaluated[-1][0] is Phase.EVAL
    assert board.now[0] is Phase.BETWEEN
