"""Records from JSON: what is no number of JSON's is no number."""

from __future__ import annotations

import dataclasses

import pytest

from hangwatch.doctor.model import Check, RankFacts, State
from hangwatch.model import GpuFacts, Progress
from hangwatch.wire import codec


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + 400 * "0", '"3"', "true", "null"])
def test_what_is_no_finite_number_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(codec.WireError, match=r"Progress\.at: expected float"):
        codec.loads(Progress, f'{{"at": {text}}}')


@pytest.mark.parametrize("text", ["3", "3.0", "-0.5", "1e300"])
def test_numbers_of_either_kind_are_numbers(text: str) -> None:
    assert codec.loads(Progress, f'{{"at": {text}}}').at == float(text)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Not the model's Frame: a record of this module, which has that name here."""

    number: int


@dataclasses.dataclass(frozen=True)
class Frames:
    frames: tuple[Frame, ...]


def test_an_annotation_means_what_it_means_in_the_module_of_its_class() -> None:
    assert codec.loads(Frames, '{"frames": [{"number": 3}]}') == Frames((Frame(3),))


def test_records_outside_of_the_model_are_read_by_their_own_types_and_the_models() -> None:
    check = Check("system", "shared memory", State.WARN, "64 MB", ranks=(0, 1))
    assert codec.loads(Check, codec.dumps(check)) == check
    assert codec.hints(RankFacts)["gpus"] == tuple[GpuFacts, ...]
