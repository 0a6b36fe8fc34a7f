"""Warnings: the job runs, but not well."""

from __future__ import annotations

from .cause import Cause

HEALTH = (
    Cause("uneven-forecast", None, "It will hang at the end of the epoch",
          "The ranks' loaders have different lengths.",
          "give every rank the same number of batches: DistributedSampler(..., drop_last=True)",
          forecast=True),
    Cause("plans-differ", None, "The ranks do not plan the same",
          "World size, groups, model or sampler of the ranks differ where they must agree.",
          "make groups, model and sampler with the same arguments on all ranks, in the same order",
          forecast=True),
    Cause("sampler-full-copy", None, "Every rank draws all the data",
          "The ranks draw the same indices, so that each epoch is made several times over.",
          "use DistributedSampler, or split the indices by rank"),
    Cause("set-epoch-missing", None, "The same order in every epoch",
          "The sampler shuffles with the same seed in every epoch.",
          "sampler.set_epoch(epoch) at the start of every epoch"),
    Cause("sampler-world-mismatch", None, "The sampler believes in another world",
          "The sampler's num_replicas or rank differs from the process group's.",
          "make the sampler after init_process_group, without num_replicas and rank"),
    Cause("gpu-memory-imbalance", None, "One GPU fills up",
          "A process holds memory on a GPU that is not its own.",
          "torch.cuda.set_device(local_rank); torch.load(..., map_location='cpu')"),
    Cause("gpu-leftover-process", None, "A process of another run holds a GPU",
          "A process that is no part of the job holds memory on one of its GPUs, and its launcher is gone.",
          "look at it (ps -fp PID) and end it (kill PID); end whole process groups when a launcher goes"),
    Cause("timeout-ahead", None, "A timeout will end a wait that is right",
          "Ranks wait for one that works, and their process group's timeout comes first.",
          "raise the timeout: init_process_group(..., timeout=timedelta(hours=3)), or ddp_timeout of the Trainer; or do"
          " that work before the process group is made"),
    Cause("straggler", None, "One rank is slow",
          "A rank needs longer than the others until its first gradients.",
          "look at that rank's data, processor and GPU"),
    Cause("data-bound", None, "The ranks wait for data",
          "Much of each step is spent waiting for the loader.",
          "more workers, pin_memory, or less work per sample"),
    Cause("slow-link", None, "One link is slow",
          "A link between two nodes carries data much more slowly than the others, or loses many packets.",
          "look at the way between the two nodes: cable, switch port, speed of the interface (ethtool), route, a VPN"),
    Cause("nccl-environment", None, "Settings of NCCL need a look",
          "Interface, timeout or debug settings differ between ranks, or are known to hurt.",
          "set the same NCCL_* variables on every node"),
)  # fmt: skip
