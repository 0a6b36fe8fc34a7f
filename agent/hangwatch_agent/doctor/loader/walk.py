"""The walk itself: a bounded number of batches of some epochs, each looked at and let go."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from hangwatch.doctor.loader.model import BEGINS, IMPORT_S, SPARE_S, TOLD, Epoch, Walk
from hangwatch.wire import codec
from hangwatch_agent.doctor.loader import target

SEED = 4711
MOST_SAMPLES = 200_000  # of an epoch's order
HASHED = 1 << 20  # bytes of each tensor
MOST_SHAPES = 16


def main(text: str) -> None:
    plan = json.loads(text)
    signal.alarm(IMPORT_S)
    walk = Walk(plan["rank"], plan["workers"] or 0, plan["purpose"])
    try:
        walk = _walked(walk, plan)
    except target.TargetError as error:
        walk = replace(walk, problem=str(error))
    except Exception as error:
        walk = replace(walk, problem=in_words(error))
    _tell(walk)
    sys.stdout.flush()
    os._exit(0)


def _walked(walk: Walk, plan: dict[str, Any]) -> Walk:
    import torch

    found = target.find(plan["target"])
    signal.alarm(int(plan["seconds"]) + SPARE_S)
    _say(BEGINS)
    _seed(torch)
    began = time.monotonic()
    given = {"rank": plan["rank"], "world_size": plan["world"], "num_workers": plan["workers"]}
    loader = target.with_workers(target.make(found, given, plan["purpose"] != "rank"), plan["workers"])
    walk = replace(walk, made_s=time.monotonic() - began, **_described(loader, torch))
    _tell(walk)
    deadline = time.monotonic() + plan["seconds"]
    for number in range(plan["epochs"]):
        share = max(0.0, deadline - time.monotonic()) / (plan["epochs"] - number)
        _seed(torch)
        _set_epoch(loader, number)
        epoch = _epoch(loader, torch, plan["batches"], time.monotonic() + share)
        walk = replace(walk, epochs=(*walk.epochs, epoch))
        _tell(walk)
        if epoch.problem:
            break
    return walk


def _seed(torch: Any) -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)


def _set_epoch(loader: Any, number: int) -> None:
    for sampler in (loader.sampler, loader.batch_sampler):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(number)


def _tell(walk: Walk) -> None:
    _say(f"{TOLD}{codec.dumps(walk)}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# ---------------------------------------------------------------- what the loader is


def _described(loader: Any, torch: Any) -> dict[str, Any]:
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    sampler = None if iterable else _sampler(loader)
    order, cut = ((), False) if iterable else _order(loader)
    found = {
        "workers": loader.num_workers,
        "length": _length(loader),
        "iterable": iterable,
        "batch_size": loader.batch_size,
        "drop_last": bool(loader.drop_last),
        "sampler": type(sampler).__name__ if sampler is not None else "",
        "dataset": type(loader.dataset).__name__,
        "dataset_length": None if iterable else _length(loader.dataset),
        "order": order,
        "order_cut": cut,
        "spawn_problem": _spawn_problem(loader),
        "fingerprint": "" if iterable else _fingerprint(loader.dataset, torch),
    }
    return found | _epochs_order(loader, sampler)


def _sampler(loader: Any) -> Any:
    """The one that knows of epochs, where one does."""
    known = [each for each in (loader.sampler, loader.batch_sampler) if each is not None]
    return next((each for each in known if hasattr(each, "set_epoch")), known[0] if known else None)


def _epochs_order(loader: Any, sampler: Any) -> dict[str, Any]:
    if sampler is None:
        return {}
    shuffle = getattr(sampler, "shuffle", None)
    shuffles = bool(shuffle) if shuffle is not None else type(sampler).__name__ == "RandomSampler"
    if not hasattr(sampler, "set_epoch"):
        return {"shuffles": shuffles}
    _set_epoch(loader, 0)
    before = _order(loader)[0]
    _set_epoch(loader, 1)
    changes = _order(loader)[0] != before
    _set_epoch(loader, 0)
    return {"shuffles": shuffles or changes, "set_epoch": changes}


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, RuntimeError):  # a dataset without a length says so in either way
        return None


def _order(loader: Any) -> tuple[tuple[int, ...], bool]:
    """The samples of one epoch, as the sampler gives them; nothing is loaded."""
    indices = itertools.islice(_flat(loader._index_sampler), MOST_SAMPLES + 1)
    found = tuple(indices)
    return found[:MOST_SAMPLES], len(found) > MOST_SAMPLES


def _flat(sampler: Any) -> Iterator[int]:
    for each in sampler:
        for index in each if isinstance(each, list | tuple) else (each,):
            if isinstance(index, int):
                yield index


def _fingerprint(dataset: Any, torch: Any) -> str:
    """A digest of three samples: whether ranks have the same dataset, or each its own of the same kind and length."""
    count = _length(dataset)
    if not count:
        return ""
    digests = []
    for index in (0, count // 2, count - 1):
        _seed(torch)
        try:
            digests.append(_Batch(dataset[index], torch).digest)
        except Exception:
            return ""
    return " ".join(digests)


def _spawn_problem(loader: Any) -> str:
    """Why workers could not be started with spawn: what they are given is pickled then."""
    from multiprocessing.reduction import ForkingPickler

    for name in ("dataset", "collate_fn", "worker_init_fn"):
        try:
            ForkingPickler.dumps(getattr(loader, name))
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"[:300]
    return ""


# ---------------------------------------------------------------- one epoch


def _epoch(loader: Any, torch: Any, most: int, deadline: float) -> Epoch:
    began = time.monotonic()
    times: list[float] = []
    looked: list[_Batch] = []
    ended, problem, first = False, "", 0.0
    iterator = None
    try:
        iterator = iter(loader)
        while len(looked) < most and time.monotonic() < deadline:
            before = time.monotonic() if looked else began
            batch = next(iterator)
            times.append(time.monotonic() - before)
            looked.append(_Batch(batch, torch))
        ended = len(looked) < most and time.monotonic() < deadline
        if not ended:
            ended = next(iterator, _END) is _END if len(looked) == _length(loader) else False
    except StopIteration:
        ended = True
    except Exception as error:
        problem = in_words(error)
    first = times[0] if times else time.monotonic() - began
    took, memory, descriptors = time.monotonic() - began, _memory(), len(os.listdir("/proc/self/fd"))
    del iterator
    body = looked[:-1] if len(looked) > 1 else looked
    return Epoch(
        drawn=len(looked),
        ended=ended,
        took_s=took,
        first_s=first,
        slowest_s=max(times[1:], default=0.0),
        usual_s=median(times[1:]) if times[1:] else 0.0,
        digests=tuple(each.digest for each in looked),
        shapes=tuple(sorted({each.shape for each in body})[:MOST_SHAPES]),
        sizes=tuple(sorted({each.size for each in body if each.size is not None})[:MOST_SHAPES]),
        nones=sum(each.none for each in looked),
        memory=memory,
        descriptors=descriptors,
        problem=problem,
    )


_END = object()


class _Batch:
    """What is kept of a batch."""

    def __init__(self, batch: Any, torch: Any) -> None:
        hashed = hashlib.blake2b(digest_size=8)
        leaves = list(_leaves(batch))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        for each in leaves:
            hashed.update(_content(each) if isinstance(each, torch.Tensor) else repr(each).encode("utf-8", "replace"))
        self.digest = hashed.hexdigest()
        self.none = batch is None or any(each is None for each in leaves)
        self.shape = ", ".join(f"{tuple(each.shape)}" for each in tensors[:4])
        self.size = int(tensors[0].shape[0]) if tensors and tensors[0].dim() else None


def _content(tensor: Any) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    flat = flat[: max(1, HASHED // max(1, flat.element_size()))]
    content: bytes = flat.view(dtype=_bytes(flat)).numpy().tobytes() if flat.numel() else b""
    return content


def _bytes(tensor: Any) -> Any:
    return sys.modules["torch"].uint8 if not tensor.dtype.is_complex else tensor.dtype


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict):
        for each in batch.values():
            yield from _leaves(each)
    elif isinstance(batch, list | tuple):
        for each in batch:
            yield from _leaves(each)
    else:
        yield batch


def _memory() -> int:
    """Resident bytes of this process and its workers, without what they share with others."""
    from hangwatch_agent.shared.procfs import Table

    total = 0
    for pid in (os.getpid(), *Table.read().descendants(os.getpid())):
        try:
            fields = (Path("/proc") / str(pid) / "statm").read_text().split()
        except OSError:
            continue
        total += (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return total


def in_words(error: BaseException) -> str:
    """The error, and the innermost line of it that is not torch's or ours."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"[:300]
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f
        for f in frames
        if "/torch/" not in f.filename and "hangwatch" not in f.filename and "<frozen" not in f.filename
    ]
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else _place_in(lines)
    return f"{said} ({place})" if place else said


def _place_in(lines: list[str]) -> str:
    """A worker's traceback comes as text inside the error's message."""
    files = [line.strip() for line in lines if line.strip().startswith("File ") and "/torch/" not in line]
    if not files:
        return ""
    words = files[-1].split('"')
    return f"{words[1]}:{words[2].split()[2].rstrip(',')}" if len(words) > 2 else ""
