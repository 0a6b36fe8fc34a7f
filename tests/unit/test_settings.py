"""Settings: where a value comes from, and what is said of one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hangwatch.settings import Settings, SettingsError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stall_after": 0.0}, "--stall-after: 0 is too short; at least 0.1 seconds are needed"),
        ({"abort_grace": -1.0}, "--abort-grace: -1 is too short; at least 0 seconds are needed"),
        ({"poll": float("nan")}, "--poll: nan is too short; at least 0.05 seconds are needed"),
        ({"start_after": "soon"}, "--start-after: 'soon' is not a number of seconds"),
        ({"on_hang": "kill"}, "--on-hang: 'kill' is not one of report, abort, abort-attempt"),
        ({"log_looks": "maybe"}, "--log-looks: 'maybe' is not a yes or a no (1 or 0)"),
    ],
)
def test_each_error_names_its_source(given: dict[str, object], said: str) -> None:
    (name,) = given
    sources: dict[str, Callable[[], Settings]] = {
        f"--{name.replace('_', '-')}": lambda: Settings.of_options({}, **given),
        name: lambda: Settings.load({}, **given),
        f"HANGWATCH_{name.upper()}": lambda: Settings.load({f"HANGWATCH_{name.upper()}": str(given[name])}),
    }
    for source, load in sources.items():
        with pytest.raises(SettingsError) as raised:
            load()
        assert str(raised.value) == said.replace(f"--{name.replace('_', '-')}", source)


def test_an_option_goes_before_the_environment() -> None:
    environment = {"HANGWATCH_STALL_AFTER": "7", "HANGWATCH_POLL": "2"}
    found = Settings.of_options(environment, stall_after=9.0, poll=None)
    assert (found.stall_after, found.poll) == (9.0, 2.0)
    assert Settings.load(environment) == Settings.of_options(environment)
