"""Fails unless each of the JUnit files that are named holds a test that really ran, and none that failed."""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def complaint(path: str) -> str | None:
    """What is wrong with one of the files."""
    suites = ElementTree.parse(path).getroot().iter("testsuite")
    total = Counter[str]()
    for suite in suites:
        total.update({key: int(suite.get(key, 0)) for key in ("tests", "skipped", "failures", "errors")})
    if total["tests"] - total["skipped"] < 1:
        return f"{path}: no test ran"
    if total["failures"] or total["errors"]:
        return f"{path}: {total['failures']} failures, {total['errors']} errors"
    return None


def main(*paths: str) -> str | None:
    if not paths:
        return "no JUnit file is named"
    return "\n".join(filter(None, map(complaint, paths))) or None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
