"""The committed schema and field tables are those of the dataclasses, and real reports fit the schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from hangwatch.model import Incident
from hangwatch.report import schema
from hangwatch.wire import codec
from tests.examples import EXAMPLES
from tests.strategies import record

AGAIN = "differs from the records: python -m hangwatch.report.schema"


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    document = json.loads(schema.SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def misfits(document: object) -> list[str]:
    return [error.message for error in _validator().iter_errors(document)]


def test_the_committed_schema_is_up_to_date() -> None:
    assert schema.SCHEMA_FILE.read_text() == schema.schema_text(), AGAIN


def test_the_tables_of_the_docs_are_up_to_date() -> None:
    committed = schema.DOCS_FILE.read_text()
    assert committed == schema.docs_text(committed), AGAIN


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_fit_the_schema(example: Callable[[], Incident]) -> None:
    assert misfits(codec.encode(example())) == []


@pytest.mark.untraced
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(incident=record(Incident))
def test_every_incident_fits_the_schema(incident: Incident) -> None:
    assert misfits(json.loads(codec.dumps(incident)) | {"schema": "hangwatch.incident/2"}) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": "hangwatch.incident/3"},
        {"status": "stuck"},
        {"opened_at": "yesterday"},
        {"ranks": [{}]},
        {"verdict": None},
    ],
)
def test_what_is_no_report_does_not_fit(damage: dict[str, object]) -> None:
    document = codec.encode(EXAMPLES["uneven-steps"]()) | damage
    assert not _validator().is_valid(document)


def test_fields_of_a_newer_version_fit() -> None:
    assert misfits(codec.encode(EXAMPLES["uneven-steps"]()) | {"colour": "blue"}) == []


def test_the_remark_behind_a_field_reaches_the_schema() -> None:
    properties = json.loads(schema.schema_text())["$defs"]["NodeFacts"]["properties"]
    assert properties["oom_kills"]["description"] == "in the job's cgroup, since the watchdog started"
    assert properties["gpus"] == {"type": "array", "items": {"$ref": "#/$defs/GpuFacts"}}
