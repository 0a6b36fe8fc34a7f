from __future__ import annotations

from hangwatch_agent.rank.patch import Patch, Patches


class Base:
    def method(self) -> str:
        return "base"


class Derived(Base):
    pass


def replacement(self: object) -> str:
    return "ours"


def test_the_very_object_comes_back() -> None:
    before = vars(Base)["method"]
    patch = Patch(Base, "method", replacement)
    patch.install()
    patch.install()
    assert Base().method() == "ours"
    patch.remove()
    patch.remove()
    assert vars(Base)["method"] is before


def test_what_was_inherited_is_inherited_again() -> None:
    patch = Patch(Derived, "method", replacement)
    patch.install()
    assert (Derived().method(), Base().method()) == ("ours", "base")
    patch.remove()
    assert "method" not in vars(Derived)


def test_a_later_patch_by_other_code_stays() -> None:
    class Owner:
        value = 1

    patch = Patch(Owner, "value", 2)
    patch.install()
    Owner.value = 3
    patch.remove()
    assert Owner.value == 3


def test_several_go_as_they_came() -> None:
    class Owner:
        value = 1

    patches = Patches()
    patches.put(Owner, "value", 2)
    patches.put(Owner, "value", 3)
    assert Owner.value == 3
    patches.remove()
    assert Owner.value == 1
