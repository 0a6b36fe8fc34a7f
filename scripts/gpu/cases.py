"""What is played on the GPU: faults with the verdict that should follow, and look-alikes that must get none.

Beside the cases of train.py those of any folder of programs with a cases.json: a list of objects with `name`, `script`,
`args`, `env`, `causes`, `ranks` and, where it needs CUDA, `gpu_only`, or more time, `end_s`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

END_S = 75.0  # seconds


@dataclass(frozen=True)
class Case:
    """One run of train.py, or of `script`. `causes` are the right ones, best first; empty for a job that ends well.

    `culprits` is None where several answers are right; `majority` says that two ranks cannot tell which of them is odd.
    `end_s` is when the run is given up.
    """

    fault: str
    causes: tuple[str, ...] = ()
    culprits: tuple[int, ...] | None = (1,)
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    gpu_only: bool = False
    majority: bool = False
    until_the_end: bool = False
    end_s: float = END_S
    name: str = ""
    script: Path | None = None

    @property
    def title(self) -> str:
        return self.name or self.fault

    @property
    def healthy(self) -> bool:
        return not self.causes


TIMED = {"TORCH_NCCL_ENABLE_TIMING": "1"}
CASES = (
    Case("none"),
    Case("uneven-steps", ("uneven-steps",)),
    Case("skipped-backward", ("skipped-collective",)),
    Case("rank-zero-only", ("rank-zero-only-collective",), (0,), ("--culprit", "0")),
    Case("size-mismatch", ("collective-mismatch",), majority=True),
    Case("early-exit", ("early-exit", "uneven-steps")),
    Case("rank-frozen", ("rank-frozen",)),
    Case("gil-held", ("gil-held",)),
    Case("user-code-blocked", ("user-code-blocked",)),
    Case("loader-worker-blocked", ("loader-worker-blocked",)),
    Case("group-order", ("group-order-cycle",), None),
    Case("stuck-kernel", ("device-stall",), environment=TIMED, gpu_only=True, name="stuck-kernel, timed"),
    Case("stuck-kernel", ("device-stall",), gpu_only=True, name="stuck-kernel, untimed"),
    Case(
        "uneven-steps", ("uneven-steps",), arguments=("--timeout", "20"), gpu_only=True, until_the_end=True,
        end_s=150.0, name="uneven-steps until torch aborts",
    ),
    Case("long-kernel"),
    Case("host-far-ahead"),
    Case("slow-rank", arguments=("--culprit", "0")),
    Case("graph-replay", gpu_only=True),
)  # fmt: skip


def programs(folder: Path) -> tuple[Case, ...]:
    """The programs of a folder, by its cases.json."""
    return tuple(
        Case(
            "",
            tuple(each["causes"]),
            tuple(sorted(each["ranks"])),
            tuple(each.get("args", ())),
            each.get("env", {}),
            each.get("gpu_only", False),
            end_s=each.get("end_s", END_S),
            name=each["name"],
            script=(folder / each["script"]).resolve(),
        )
        for each in json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    )
