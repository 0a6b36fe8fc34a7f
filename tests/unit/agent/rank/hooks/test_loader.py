"""DataLoader's passes as a user would tell them: `for epoch ...: for batch, x in enumerate(loader)`."""

from __future__ import annotations

import contextlib
import importlib
import runpy
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from hangwatch.model import EPOCHS_KEPT, Phase
from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.hooks.loader import LoaderHook
from tests.unit.agent.rank.hooks.conftest import Watched


class Numbers(Dataset[int]):
    def __init__(self, size: int, broken: int = -1) -> None:
        self.size, self.broken = size, broken

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.broken:
            raise KeyError(f"no sample {index}")
        return index


class Stream(IterableDataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def __len__(self) -> int:
        return 2  # a lie, which makes DataLoader warn if it is asked for its length


@pytest.fixture
def hook(watched: Watched) -> Iterator[LoaderHook]:
    hook = LoaderHook(watched.context)
    hook.install()
    watched.publish.append(hook.count)
    yield hook
    hook.remove()


def optimizer_step(watched: Watched) -> None:
    if watched.context.unconfirmed:
        watched.context.training_seen()


def test_the_very_attributes_come_back(watched: Watched) -> None:
    before = {name: vars(owner)[name] for owner, name in _hooked()}
    hook = LoaderHook(watched.context)
    hook.install()
    hook.install()
    list(DataLoader(Numbers(4)))
    assert all(vars(owner)[name] is not before[name] for owner, name in _hooked()[:2])
    hook.remove()
    hook.remove()
    assert all(vars(owner)[name] is before[name] for owner, name in _hooked())


def _hooked() -> list[tuple[type, str]]:
    names = ("__next__", "__init__", "_reset", "_next_index")
    return [(DataLoader, "__iter__"), *((_BaseDataLoaderIter, name) for name in names)]


def test_epochs_and_batches_count_from_zero(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Numbers(6), batch_size=2)
    for epoch in range(2):
        for batch, _ in enumerate(loader):
            progress = watched.reading.progress
            assert (progress.epoch, progress.batch, progress.step) == (epoch, batch, epoch * 3 + batch)
    facts = watched.loader
    assert (facts.length, facts.epoch, facts.drawn, facts.exhausted, facts.left) == (3, 1, 3, True, False)
    assert (facts.drawn_per_epoch, facts.exhausted_per_epoch) == ((3, 3), (True, True))
    assert facts.where is not None
    assert facts.where.file == __file__
    assert watched.steps == [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2)]
    assert watched.reading.progress.draws == 6


def test_phases(watched: Watched, hook: LoaderHook) -> None:
    seen = []

    class Watching(Numbers):
        def __getitem__(self, index: int) -> int:
            reading = watched.reading
            seen.append((reading.phase, reading.loaders[0].inside_next))
            return index

    for _ in DataLoader(Watching(1)):
        assert watched.reading.phase is Phase.STEP
        assert not watched.loader.inside_next
    assert seen == [(Phase.DATA, True)]
    assert watched.reading.phase is Phase.BETWEEN


def test_empty_epochs_stay_in_the_phase_that_waits_for_data(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Stream(0), batch_size=2)
    since = []
    for _ in range(EPOCHS_KEPT + 2):
        assert not list(loader)
        since.append((watched.reading.phase, watched.reading.phase_at))
    assert len(set(since[1:])) == 1
    assert since[1][0] is Phase.DATA
    (facts,) = watched.reading.loaders
    assert facts.gives_nothing
    assert facts.epoch == EPOCHS_KEPT + 1
    list(DataLoader(Numbers(4), batch_size=2))
    assert watched.reading.phase is Phase.BETWEEN


def test_what_a_loader_is_made_of(watched: Watched, hook: LoaderHook) -> None:
    from torch.utils.data.distributed import DistributedSampler

    data = Numbers(10)
    sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=2, rank=1, shuffle=True)
    next(iter(DataLoader(data, batch_size=2, sampler=sampler)))
    facts = watched.loader
    # The dataset's own __len__ is never called by us: it is the user's code, and its source says `return self.size`.
    assert (facts.dataset, facts.dataset_length, facts.batch_size, facts.length) == ("Numbers", 10, 2, 3)
    assert (facts.sampler, facts.sampler_replicas, facts.sampler_rank) == ("DistributedSampler", 2, 1)
    assert (facts.sampler_length, facts.shuffle, facts.num_workers) == (5, True, 0)


def test_the_epoch_that_a_resumed_training_began_with(watched: Watched, hook: LoaderHook) -> None:
    from torch.utils.data.distributed import DistributedSampler

    data = Numbers(4)
    sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(data, sampler=sampler)
    for epoch in (7, 8):
        sampler.set_epoch(epoch)
        list(loader)
    (facts,) = watched.reading.loaders
    assert (facts.epoch, facts.first_epoch) == (1, 7)
    list(DataLoader(data, batch_size=2))
    assert watched.reading.loaders[-1].first_epoch is None


def test_a_loop_that_is_left(watched: Watched, hook: LoaderHook) -> None:
    for batch, _ in enumerate(DataLoader(Numbers(6))):
        assert not watched.loader.left
        if batch == 1:
            break
    facts = watched.loader
    assert (facts.drawn, facts.exhausted, facts.left) == (2, False, True)
    assert watched.reading.phase is Phase.BETWEEN


def test_a_loop_that_is_left_by_an_exception(watched: Watched, hook: LoaderHook) -> None:
    def loop() -> None:
        for _ in DataLoader(Numbers(6)):
            raise ValueError("nan")

    with contextlib.suppress(ValueError):
        loop()
    assert watched.loader.left


def test_an_iterator_that_is_kept_is_not_left(watched: Watched, hook: LoaderHook) -> None:
    iterator = iter(DataLoader(Numbers(6)))
    next(iterator)
    assert not watched.loader.left
    del iterator
    assert watched.loader.left


def test_an_iterable_dataset_without_length(watched: Watched, hook: LoaderHook) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(DataLoader(Stream(5), batch_size=1))) == 5
    facts = watched.loader
    assert (facts.length, facts.drawn, facts.exhausted, facts.dataset_length) == (None, 5, True, None)
    assert facts.sampler == ""


def test_an_iterable_dataset_whose_length_was_asked_for(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Stream(2), batch_size=2)
    assert len(loader) == 1
    list(loader)
    assert watched.loader.length == 1


def test_types_and_exceptions_are_torchs_own(hook: LoaderHook) -> None:
    iterator = iter(DataLoader(Numbers(3, broken=1)))
    assert type(iterator) is _SingleProcessDataLoaderIter
    next(iterator)
    with pytest.raises(KeyError, match="no sample 1"):
        next(iterator)
    next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_exception_in_a_batch_is_no_end(watched: Watched, hook: LoaderHook) -> None:
    iterator = iter(DataLoader(Numbers(3, broken=1)))
    next(iterator)
    with pytest.raises(KeyError) as caught:
        next(iterator)
    facts = watched.loader
    assert (facts.drawn, facts.exhausted, facts.left) == (1, False, False)
    innermost = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert innermost.name == "__getitem__"


# ---------------------------------------------------------------- several loaders


def test_validation_inside_an_epoch_is_no_step(watched: Watched, hook: LoaderHook) -> None:
    training, validation = DataLoader(Numbers(3)), DataLoader(Numbers(5))
    for _ in training:
        for _ in validation:
            assert watched.reading.progress.step >= 0
    reading = watched.reading
    assert (reading.progress.step, reading.progress.batch, reading.progress.draws) == (2, 2, 18)
    assert [loader.training for loader in reading.loaders] == [True, False]


def test_validation_without_gradients_is_no_step(watched: Watched, hook: LoaderHook) -> None:
    for _ in range(2):
        list(DataLoader(Numbers(3), batch_size=1, sampler=SequentialSampler(Numbers(3))))
        with torch.no_grad():
            list(DataLoader(Numbers(5)))
    assert watched.reading.progress.step == 5
    assert watched.reading.progress.epoch == 1


def test_validation_with_gradients_on_between_epochs(watched: Watched, hook: LoaderHook) -> None:
    training, validation = DataLoader(Numbers(3)), DataLoader(Numbers(5))
    for _ in range(2):
        for _ in training:
            optimizer_step(watched)
        for _ in validation:
            watched.context.evaluation_seen()
    progress = watched.reading.progress
    assert (progress.epoch, progress.batch, progress.step) == (1, 2, 5)


def test_a_sanity_check_before_the_training_is_taken_back(watched: Watched, hook: LoaderHook) -> None:
    training, validation = DataLoader(Numbers(3)), DataLoader(Numbers(5))
    for _ in validation:
        watched.context.evaluation_seen()
        break
    assert watched.reading.progress.step == -1
    for _ in training:
        optimizer_step(watched)
    assert watched.steps == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]
    assert [loader.training for loader in watched.reading.loaders] == [False, True]


def test_a_sanity_check_that_was_not_seen_is_taken_back_by_the_training(watched: Watched, hook: LoaderHook) -> None:
    list(DataLoader(Numbers(5), sampler=RandomSampler(Numbers(5))))
    for _ in DataLoader(Numbers(3)):
        optimizer_step(watched)
    assert watched.steps == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]


def test_a_teachers_forward_before_the_students(watched: Watched, hook: LoaderHook) -> None:
    for _ in DataLoader(Numbers(3)):
        if watched.context.unconfirmed:
            watched.context.evaluation_seen()
        optimizer_step(watched)
    assert watched.steps == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]


def test_evaluation_on_the_training_loader_is_no_epoch(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Numbers(3))
    for _ in range(2):
        for _ in loader:
            optimizer_step(watched)
        with torch.no_grad():
            list(loader)
    assert watched.reading.progress.epoch == 1
    assert [facts.training for facts in watched.reading.loaders] == [True, False]


def test_two_loaders_drawn_in_step_count_once(watched: Watched, hook: LoaderHook) -> None:
    for _ in zip(DataLoader(Numbers(3)), DataLoader(Numbers(3)), strict=True):
        optimizer_step(watched)
    assert watched.reading.progress.step == 2


def test_a_loader_made_anew_for_each_epoch_goes_on(watched: Watched, hook: LoaderHook) -> None:
    for _ in range(3):
        loader = DataLoader(Numbers(2))
        for _ in loader:
            optimizer_step(watched)
    facts = watched.loader
    assert (facts.epoch, facts.drawn_per_epoch) == (2, (2, 2, 2))
    assert watched.reading.progress.step == 5


def test_an_iterator_that_is_never_drawn_from_is_no_epoch(watched: Watched, hook: LoaderHook) -> None:
    """Lightning makes two iterators an epoch where it loads the loaders anew, and draws from one."""
    for epoch in range(3):
        loader = DataLoader(Numbers(2))
        _looked_at, drawn = (iter(loader) for _ in range(2))
        for _ in drawn:
            optimizer_step(watched)
            assert watched.reading.progress.epoch == epoch
    iter(loader)
    facts = watched.loader
    assert (facts.epoch, facts.drawn, facts.drawn_per_epoch, facts.exhausted) == (2, 2, (2, 2, 2), True)
    assert not facts.left


class Wrapping:
    def __init__(self, inner: Iterator[Any]) -> None:
        self.inner = inner

    def __iter__(self) -> Wrapping:
        return self

    def __next__(self) -> Any:
        return next(self.inner)


@pytest.mark.parametrize("around", [iter, Wrapping])
def test_a_batch_that_was_looked_at_before_the_loop_is_no_training(
    watched: Watched, hook: LoaderHook, around: Callable[[Iterator[Any]], Iterator[Any]]
) -> None:
    """PyTorch's tutorials look at some pictures first, and keep the iterator."""
    shown = around(iter(DataLoader(Numbers(9), batch_size=2)))
    next(shown)
    next(shown)
    for _ in range(2):
        for _ in around(iter(DataLoader(Numbers(3)))):
            optimizer_step(watched)
    reading = watched.reading
    assert [(facts.training, facts.epoch, facts.drawn) for facts in reading.loaders] == [(False, 0, 2), (True, 1, 3)]
    assert (reading.progress.epoch, reading.progress.batch, reading.progress.step) == (1, 2, 5)


@pytest.mark.parametrize("kept", [False, True])
def test_a_batch_of_the_training_loader_that_was_looked_at_is_no_epoch(
    watched: Watched, hook: LoaderHook, kept: bool
) -> None:
    loader = DataLoader(Numbers(3))
    shown = iter(loader)
    next(shown)
    if not kept:
        del shown
    for epoch in range(2):
        for _ in loader:
            assert watched.reading.progress.epoch == epoch
            optimizer_step(watched)
    assert (watched.loader.epoch, watched.loader.drawn_per_epoch) == (1, (3, 3))
    assert watched.loader.looked is not None
    assert watched.loader.where is not None
    assert watched.loader.looked.line == watched.loader.where.line - 5
    assert watched.steps == [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2)]


def test_a_pass_of_one_batch_with_work_in_it_is_an_epoch(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Numbers(3))
    for _ in range(2):
        next(iter(loader))
        watched.context.board.words[b.W_FORWARDS] += 1
    next(iter(loader))
    assert (watched.loader.epoch, watched.loader.drawn_per_epoch) == (2, (1, 1, 1))


def test_the_loader_given_to_attach_is_the_training_loader(watched: Watched, hook: LoaderHook) -> None:
    training, other = DataLoader(Numbers(3)), DataLoader(Numbers(2))
    hook.declare([training, [1, 2]])
    list(other)
    list(training)
    assert watched.context.unconfirmed is False
    assert [facts.training for facts in watched.reading.loaders][-1] is True


def test_more_loaders_than_the_board_has_slots(watched: Watched, hook: LoaderHook) -> None:
    loaders: list[Any] = [DataLoader(Numbers(size)) for size in range(2, 16)]
    for loader in loaders:
        list(loader)
    assert len(watched.reading.loaders) == 8


# ---------------------------------------------------------------- workers, iterators before us, orders


def test_workers_and_a_persistent_iterator_that_is_left(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Numbers(8), num_workers=1, persistent_workers=True)
    for _ in loader:
        watched.context.board.words[b.W_FORWARDS] += 1
        hook.look_for_left()
        assert not watched.loader.left
        break
    facts = watched.loader
    assert facts.num_workers == 1
    assert len(facts.worker_pids) == 1
    assert not facts.left  # nobody can tell yet
    hook.look_for_left()
    assert watched.loader.left
    list(loader)
    facts = watched.loader
    assert (facts.epoch, facts.drawn_per_epoch, facts.exhausted) == (1, (1, 8), True)


def test_an_iterator_that_was_there_before_us(watched: Watched) -> None:
    iterator = iter(DataLoader(Numbers(6), batch_size=2))
    next(iterator)
    hook = LoaderHook(watched.context)
    hook.install()
    try:
        next(iterator)
        progress, facts = watched.reading.progress, watched.loader
        assert (progress.epoch, progress.batch, progress.step) == (0, 1, 0)
        assert (facts.length, facts.dataset) == (3, "Numbers")
        assert list(iterator)
        assert watched.loader.exhausted
    finally:
        hook.remove()


def test_the_order_of_samples(watched: Watched, hook: LoaderHook) -> None:
    same, other = DataLoader(Numbers(40), batch_size=2), DataLoader(Numbers(40), batch_size=2, shuffle=True)
    for loader in (same, same):
        list(loader)
    facts = watched.reading.loaders[0]
    assert facts.sampler_indices_hash == facts.previous_indices_hash != ""
    for loader in (other, other):
        list(loader)
    facts = watched.reading.loaders[-1]
    assert facts.sampler_indices_hash != facts.previous_indices_hash


def test_a_length_that_raises_harms_nothing(watched: Watched, hook: LoaderHook) -> None:
    class Lengthless(Numbers):
        def __len__(self) -> int:
            raise RuntimeError("not yet")

    data = Lengthless(2)
    assert len(list(DataLoader(data, sampler=SequentialSampler(range(2))))) == 2
    assert watched.loader.dataset_length is None


def test_an_error_is_passed_on_to_the_record_of_errors(watched: Watched, hook: LoaderHook) -> None:
    met: list[BaseException] = []
    watched.context.met = met.append
    with contextlib.suppress(KeyError):
        list(DataLoader(Numbers(8, broken=3)))
    list(DataLoader(Numbers(2)))
    assert [str(error) for error in met] == ["'no sample 3'"]


def test_a_worker_that_fails_while_the_rank_is_elsewhere(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_handling: Any = importlib.import_module("torch.utils.data._utils.signal_handling")

    def fails() -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    met: list[BaseException] = []
    monkeypatch.setattr(signal_handling, "_error_if_any_worker_fails", fails)
    watched.context.met = met.append
    hook = LoaderHook(watched.context)
    hook.install()
    try:
        with pytest.raises(RuntimeError, match="pid 7") as raised:
            signal_handling._error_if_any_worker_fails()
    finally:
        hook.remove()
    assert met == [raised.value]
    assert signal_handling._error_if_any_worker_fails is fails


# ---------------------------------------------------------------- lengths without the user's code


class Asking:
    """A batch sampler of the user's, whose length is another one each time."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0], [1], [2]])

    def __len__(self) -> int:
        self.asked += 1
        torch.rand(1)
        return 3


class Sly(Numbers):
    """A dataset that counts how often it is asked for its length, or for an attribute that it does not have."""

    asked = 0

    def __len__(self) -> int:
        type(self).asked += 1
        return self.size

    def __getattr__(self, name: str) -> Any:
        type(self).asked += 1
        raise AttributeError(name)


def test_a_users_length_is_never_asked_for(watched: Watched, hook: LoaderHook) -> None:
    """GIVEN a batch sampler whose __len__ draws WHEN it is iterated THEN the random numbers are those without us."""
    sampler = Asking()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    loader = DataLoader(Numbers(3), batch_sampler=sampler, generator=torch.Generator())
    for _ in range(3):
        for _ in loader:  # list(loader) would ask for its length
            pass
    assert sampler.asked == 0
    assert torch.equal(torch.get_rng_state(), before)
    assert watched.loader.length is None
    assert len(loader) == 3
    assert watched.loader.length == 3


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"batch_size": None}, {"batch_size": 3, "drop_last": True}])
def test_a_dataset_is_asked_as_often_as_without_us(watched: Watched, hook: LoaderHook, options: dict[str, Any]) -> None:
    Sly.asked = 0
    hook.remove()
    list(DataLoader(Sly(7), **options))
    plain, Sly.asked = Sly.asked, 0
    hook.install()
    loader = DataLoader(Sly(7), **options)
    batches = len(list(loader))
    assert Sly.asked == plain
    # What torch's own sampler has been told lies in its frame.
    assert (watched.loader.length, watched.loader.dataset_length) == (batches, 7)


def test_torchs_own_datasets_and_samplers_are_asked(watched: Watched, hook: LoaderHook) -> None:
    tensors = torch.utils.data.TensorDataset(torch.ones(9, 2))
    kinds: list[Any] = [tensors, torch.utils.data.Subset(tensors, range(9)), torch.ones(9), list(range(9))]
    for data in kinds:
        next(iter(DataLoader(data, batch_size=2, shuffle=True, drop_last=True)))
        facts = watched.reading.loaders[-1]
        assert (facts.length, facts.dataset_length, facts.sampler_length) == (4, 9, 9)


def test_len_of_a_loader_is_noted_before_its_first_pass(watched: Watched, hook: LoaderHook) -> None:
    loader = DataLoader(Numbers(3), batch_sampler=Asking())
    assert len(loader) == 3
    next(iter(loader))
    assert watched.loader.length == 3
    key = id(loader)
    assert hook._asked == {key: 3}
    del loader
    assert hook._asked == {}


class Skipping(Asking):
    """As Accelerate's, in a training that goes on from a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.skip_batches = 2


@pytest.mark.parametrize("asked_before", [True, False])
def test_batches_that_a_resumed_training_passes_over(watched: Watched, hook: LoaderHook, asked_before: bool) -> None:
    loader = DataLoader(Numbers(3), batch_sampler=Skipping())
    if asked_before:
        assert len(loader) == 3
    next(iter(loader))
    assert len(loader) == 3
    assert (watched.loader.resumed_at, watched.loader.length) == (2, 5)


AHEAD = """
def ahead(loader):
    batches = iter(loader)
    current = next(batches)
    while True:
        try:
            following = next(batches)
        except StopIteration:
            yield current
            return
        yield current
        current = following
"""


@pytest.mark.parametrize(("folder", "behind"), [("site-packages", 1), ("ann", 0)])
def test_a_trainer_that_draws_a_batch_ahead(
    watched: Watched, hook: LoaderHook, tmp_path: Path, folder: str, behind: int
) -> None:
    """GIVEN a package's generator that holds one batch back THEN the step is the batch that it has given out.

    Whether a user's own function holds its batch back or drops it is not known: there the batch drawn last counts.
    """
    file = tmp_path / folder / "loaders.py"
    file.parent.mkdir()
    file.write_text(AHEAD)
    names = runpy.run_path(str(file))
    for epoch in range(2):
        told = []
        for _ in names["ahead"](DataLoader(Numbers(4))):
            told.append((watched.reading.progress.epoch, watched.reading.progress.batch))
            optimizer_step(watched)
        assert told == [(epoch, batch) for batch in ([0, 1, 2, 3] if behind else [1, 2, 3, 3])]
    assert [(step.epoch, step.batch) for step in watched.reading.steps] == [(e, b) for e in range(2) for b in range(4)]


class Resuming(DataLoader[int]):
    """Gives out its iterators itself, keeps the last one to save its state, and begins at batch `start`."""

    start = 0

    def __iter__(self) -> _BaseDataLoaderIter:
        iterator = self._get_iterator()
        for _ in range(self.start):
            next(iterator._sampler_iter)
        iterator._num_yielded = self.start
        self._iterator = iterator
        return iterator


def test_a_loader_with_an_iter_of_its_own_is_known_with_its_length(watched: Watched, hook: LoaderHook) -> None:
    loader = Resuming(Numbers(12), batch_size=2)
    loader.start = 4
    assert [list(map(int, batch)) for batch in loader] == [[8, 9], [10, 11]]
    optimizer_step(watched)
    facts = watched.reading.loaders[0]
    assert (facts.length, facts.drawn, facts.resumed_at, facts.exhausted) == (6, 2, 4, True)
    assert facts.dataset == "Numbers"
    assert watched.reading.progress.batch == 1

    loader.start = 0
    for _ in loader:
        break
    hook.look_for_left()
    facts = watched.reading.loaders[0]
    assert (facts.epoch, facts.resumed_at, facts.left) == (1, 0, True)
    assert facts.drawn_per_epoch == (2, 1)


def test_below_a_trainer_validation_over_the_same_dataset_has_a_slot_of_its_own(
    watched: Watched, hook: LoaderHook
) -> None:
    """All loaders are iterated at one line there; what they draw with tells them apart."""
    numbers = Numbers(3)
    training, validation = DataLoader(numbers, sampler=RandomSampler(numbers)), DataLoader(numbers)

    def passes(loader: DataLoader[int]) -> None:
        for _ in loader:
            if loader is training:
                optimizer_step(watched)
            else:
                watched.context.evaluation_seen()

    for loader in (training, validation, training, validation):
        passes(loader)
    found = watched.reading.loaders
    assert [(each.training, each.drawn_per_epoch) for each in found] == [(True, (3, 3)), (False, (3, 3))]
    assert watched.reading.progress.step == 5
