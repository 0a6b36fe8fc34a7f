"""The programs that start ranks, by the names in their command lines."""

from __future__ import annotations

TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic")
# Programs of torch: processes of Python that import torch, and may have a RANK of their own.
TORCH_PROGRAMS = ("torchrun", *TORCH_MODULES)
PROGRAMS = frozenset(
    [
        "torchrun",
        "mpirun",
        "mpiexec",
        "orterun",
        "prterun",
        "mpiexec.hydra",
        "srun",
        "deepspeed",
        "accelerate",
        "horovodrun",
    ]
)
