"""The line that put memory on another rank's GPU: a hint from the source, and none where the source is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.health import device_warnings, foreign_memory
from hangwatch.health.device_lines import suspect
from hangwatch.model import Frame, ThreadStack
from tests.unit.health.readings import GIB, evidence, gpus


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\nstate = torch.load('x.pt')\n", (2, "torch.load without map_location")),
        ("torch.load(path, weights_only=True)", (1, "torch.load without map_location")),
        ("model = Net()\nmodel.cuda()\n", (2, "no set_device before cuda()")),
        ("x = x.to('cuda')", (1, "no set_device before cuda()")),
        ("d = torch.device('cuda')", (1, "no set_device before cuda()")),
        ("torch.zeros(3, device='cuda')", (1, "no set_device before cuda()")),
    ],
)
def test_what_puts_memory_on_the_first_gpu(source: str, expected: tuple[int, str]) -> None:
    assert suspect(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "torch.load('x.pt', map_location='cpu')",
        "torch.load('x.pt', 'cpu')",
        "torch.load('x.pt', **options)",
        "torch.cuda.set_device(local_rank)\nmodel.cuda()",
        "torch.accelerator.set_device_index(rank)\nmodel.to('cuda')",
        "model.cuda(local_rank)",
        "model.to(f'cuda:{rank}')\nx.to('cuda')",
        "os.environ['CUDA_VISIBLE_DEVICES'] = str(rank)\nmodel.cuda()",
        "json.load(file)",
        "device = 'cuda'",
        "def broken(:",
        "",
    ],
)
def test_what_is_well_or_not_known(source: str) -> None:
    assert suspect(source) is None


def test_the_line_that_put_it_there(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n\nstate = torch.load('x.pt')\n")
    node = gpus({100: 9 * GIB, 101: 2 * GIB}, {101: 9 * GIB})
    stack = ThreadStack(101, "MainThread", (Frame(str(script), 3, "<module>"),), False, False, True)
    ranks = [evidence(0, 0), replace(evidence(1, 1), stacks=(stack,))]
    (found,) = foreign_memory([node], ranks)
    assert (found.rank, found.owner, found.line) == (1, 0, "torch.load without map_location at train.py:3")
    (warning,) = device_warnings([node], ranks)
    assert warning.summary.endswith("which is rank 0's: torch.load without map_location at train.py:3")
