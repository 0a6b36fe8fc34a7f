"""Every knob of hangwatch, once. A value comes from an argument, else from its HANGWATCH_* variable, else the default.

The variable of a setting is its name in capitals behind `HANGWATCH_` (`stall_after` is `HANGWATCH_STALL_AFTER`).
`docs/configuration.md` is generated from the fields' metadata, and a test holds the two together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PREFIX = "HANGWATCH_"
_KINDS = {float: "a number of seconds", str: "a text"}


class SettingsError(ValueError):
    """A setting that cannot be used. The message names it, its source and what is allowed."""


def _knob(default: Any, help: str, *, choices: tuple[str, ...] = (), minimum: float | None = None) -> Any:
    return field(default=default, metadata={"help": help, "choices": choices, "minimum": minimum})


@dataclass(frozen=True)
class Settings:
    """The knobs. Times are in seconds."""

    enabled: bool = _knob(True, "0 switches hangwatch off: attach() and the probe do nothing")
    report_dir: str = _knob(
        "hangwatch-reports",
        "where incident-*.json and .html are written; nodes that share it give one verdict (without a dashboard)",
    )
    on_hang: str = _knob(
        "report",
        "after a hang's report: leave the job, end it, or end its ranks so that their launcher may restart them",
        choices=("report", "abort", "abort-attempt"),
    )
    on_forecast: str = _knob(
        "warn",
        "where the ranks' plans show that the job will hang: say so, or also end the job",
        choices=("warn", "abort"),
    )
    stall_after: float = _knob(
        120.0,
        "without proof: how long a rank may stand still (first step, evaluation, checkpoint: 5 times this);"
        " 60 s at most where a fact keeps it from going on, such as a read from a pipe or a lock,"
        " and 10 s where all ranks, on one machine, wait in calls of each other",
        minimum=0.1,
    )
    start_after: float = _knob(
        30.0, "how long ranks may take to come before the job counts as never started", minimum=0.1
    )
    linger_after: float = _knob(10.0, "how long a process may live after its training has ended", minimum=0.1)
    job: str = _knob("", "the job's name; by default it is taken from the launcher")
    dashboard: str = _knob("", "address of a dashboard, e.g. http://monitor:8470")
    token: str = _knob("", "the dashboard's ingest token")
    watchdog: str = _knob("process", "where the watchdog runs", choices=("process", "thread"))
    run_dir: str = _knob("", "where boards are kept; by default /dev/shm/hangwatch-UID, else the temporary folder")
    native_stacks: bool = _knob(True, "take native frames of blocked threads (slower; bounded in time and memory)")
    torch_dumps: bool = _knob(
        True, "ask torch's NCCL backend for dumps of its flight recorder (environment variables, see docs/dumps.md)"
    )
    log_looks: bool = _knob(
        False, "write the watchdog's log of its looks at the end of every job, not only of those that stood still"
    )
    poll: float = _knob(1.0, "how often the watchdog looks at the boards", minimum=0.05)
    tick: float = _knob(0.2, "how often a rank's ticker thread updates its board", minimum=0.02)
    abort_grace: float = _knob(
        10.0,
        "with --on-hang abort or abort-attempt: how long ranks may take to end before they are killed",
        minimum=0.0,
    )

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
        """Settings from `arguments` (None means "not given") and the environment. Raises SettingsError."""
        return cls._load(environment, arguments, str)

    @classmethod
    def of_options(cls, environment: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
        """`load` for a command line, whose errors name `--stall-after`, as it was typed. Raises SettingsError."""
        return cls._load(environment, arguments, lambda name: f"--{name.replace('_', '-')}")

    @classmethod
    def _load(
        cls, environment: Mapping[str, str] | None, arguments: Mapping[str, Any], typed: Callable[[str], str]
    ) -> Settings:
        environment = os.environ if environment is None else environment
        known = {entry.name: entry for entry in fields(cls)}
        if unknown := arguments.keys() - known.keys():
            raise SettingsError(f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        values: dict[str, Any] = {}
        for name, entry in known.items():
            if arguments.get(name) is not None:
                values[name] = _checked(entry, arguments[name], typed(name))
            elif (text := environment.get(PREFIX + name.upper())) is not None:
                values[name] = _checked(entry, text, PREFIX + name.upper())
        return cls(**values)

    def environment(self) -> dict[str, str]:
        """The HANGWATCH_* variables that give a child process these settings (those that differ from the default)."""
        return {
            PREFIX + entry.name.upper(): str(int(value) if isinstance(value, bool) else value)
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != entry.default
        }


def _checked(entry: Any, value: Any, source: str) -> Any:
    value = _converted(type(entry.default), value, source)
    choices, minimum = entry.metadata["choices"], entry.metadata["minimum"]
    if choices and value not in choices:
        raise SettingsError(f"{source}: {value!r} is not one of {', '.join(choices)}")
    if minimum is not None and not value >= minimum:  # not "less than": nan is neither
        raise SettingsError(f"{source}: {value:g} is too short; at least {minimum:g} seconds are needed")
    return value


def _converted(kind: type, value: Any, source: str) -> Any:
    if kind is bool and isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off", ""):
            return False
        raise SettingsError(f"{source}: {value!r} is not a yes or a no (1 or 0)")
    try:
        return kind(os.fspath(value) if kind is str else value)
    except (TypeError, ValueError):
        raise SettingsError(f"{source}: {value!r} is not {_KINDS.get(kind, f'a {kind.__name__}')}") from None
