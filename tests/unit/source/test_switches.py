"""What the user's code sets for a package to decide by, read from both sources."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.source.switches import switches

TRAINER = textwrap.dedent(
    """
    class Loop:
        @property
        def done(self):
            if self.trainer.should_stop:
                return True
            return False

        def advance(self):
            for batch in self.batches:
                self.step(batch)
                if self.control.should_evaluate and self.evaluates:
                    self.evaluate()
                    self.log()
                if self.control.should_end or self.over:
                    break
            while not self.control.finished:
                self.wait()
    """
)


def found(callback: str) -> list[tuple[str, int, str, str, int, int, bool]]:
    told = switches([("/home/ann/train.py", textwrap.dedent(callback))], [("/site-packages/trainer/loop.py", TRAINER)])
    return [
        (each.name, each.where.line, each.condition, each.asks, each.asked.line, each.last, each.leaves)
        for each in told
    ]


def test_a_stop_by_the_loss_of_the_rank() -> None:
    assert found(
        """
        def on_batch_end(self, trainer, loss):
            if loss < self.target:
                trainer.should_stop = True
        """
    ) == [("should_stop", 4, "if loss < self.target", "value", 5, 6, True)]


def test_what_only_guards_a_call_does_not_leave() -> None:
    assert found("def f(control, loss):\n    control.should_evaluate = loss > 3.0\n") == [
        ("should_evaluate", 2, "loss > 3.0", "value", 12, 14, False)
    ]


@pytest.mark.parametrize("name", ["should_end", "finished"])
def test_a_break_and_the_end_of_a_while_leave(name: str) -> None:
    told = found(f"def f(trainer, seen):\n    if seen > trainer.limit_of_mine:\n        trainer.{name} = True\n")
    assert [each[6] for each in told] == [True]


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("if step % 10 == 0:\n        control.should_evaluate = True", "alike"),
        ("if rank == 0:\n        control.should_evaluate = True", "rank"),
        ("if loss < 1.0:\n        return\n    control.should_evaluate = True", "value"),
        ("loss = dist.all_reduce(loss)\n    if loss < 1.0:\n        control.should_evaluate = True", "alike"),
        ("if loss < 1.0 and rank == 0:\n        control.should_evaluate = True", "rank"),
        ("if torch.isnan(loss).any():\n        control.should_evaluate = True", "check"),
        ("control.should_evaluate = True", "alike"),
        (
            "for each in loss:\n        if each < 1.0:\n            continue\n    control.should_evaluate = True",
            "alike",
        ),
    ],
)
def test_what_the_condition_asks_for(body: str, asks: str) -> None:
    assert [each[3] for each in found(f"def f(control, loss, step, rank):\n    {body}\n")] == [asks]


@pytest.mark.parametrize(
    "callback",
    [
        "def f(self, loss):\n    self.should_stop = loss < 1.0\n",  # the user's own object
        "def f(trainer, loss):\n    trainer.best = loss < 1.0\n",  # no package asks for it
        "def f(trainer, loss):\n    trainer.should_stop = make()\n",  # no truth, as far as is seen
        "def f(trainer:\n",  # no Python
        "def f(trainer, name):\n    if name > 3:\n        trainer.requires_grad = True\n",  # of any parameter
    ],
)
def test_what_is_no_switch(callback: str) -> None:
    assert found(callback) == []


RESULTS = "class Results:\n    def log(self, name, value):\n        self[name] = value\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if (y == 1).any():\n        self.log('val/recall', r)", [("log", 3, "if (y == 1).any()", "check")]),
        ("if loss < 3.0:\n        pl_module.log_dict({'a': loss})", [("log", 3, "if loss < 3.0", "value")]),
        ("self.log('val/loss', loss)", [("log", 2, "", "alike")]),  # on every rank
        (
            "for k in sorted(self.seen):\n        self.log(f'val/{k}', y)",
            [("log", 3, "for k in sorted(self.seen)", "value")],
        ),
        ("for k in ('a', 'b'):\n        self.log(k, y)", [("log", 3, "", "alike")]),  # the same names everywhere
        ("for k in self.seen:\n        self.log('n', y)", [("log", 3, "", "alike")]),
        ("if loss < 3.0:\n        logger.log('below', loss)", []),  # it writes a line
        ("if loss < 3.0:\n        self.log(20, loss)", []),
    ],
)
def test_what_is_logged_under_a_condition(body: str, told: list[tuple[str, int, str, str]]) -> None:
    place = "/site-packages/lightning/pytorch/trainer/connectors/logger_connector/result.py"
    own = f"def validation_step(self, y, r, loss):\n    {body}\n"
    made = switches([("/home/ann/train.py", own)], [(place, RESULTS)])
    assert [(each.name, each.where.line, each.condition, each.asks) for each in made] == told
    assert all((each.asked.line, each.leaves) == (2, False) for each in made)
    guarded = switches([("/home/ann/train.py", f"@rank_zero_only\n{own}")], [(place, RESULTS)])
    assert all((each.condition, each.asks) == ("@rank_zero_only", "rank") for each in guarded)
    elsewhere = switches([("/home/ann/train.py", own)], [("/site-packages/lightning/pytorch/core/module.py", RESULTS)])
    assert elsewhere == ()  # every step goes through the user's own module
