"""Fails unless the JUnit file named as the argument holds a test that really ran, and none that failed."""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def main(path: str) -> str | None:
    suites = ElementTree.parse(path).getroot().iter("testsuite")
    total = Counter[str]()
    for suite in suites:
        total.update({key: int(suite.get(key, 0)) for key in ("tests", "skipped", "failures", "errors")})
    if total["tests"] - total["skipped"] < 1:
        return f"{path}: no test ran"
    if total["failures"] or total["errors"]:
        return f"{path}: {total['failures']} failures, {total['errors']} errors"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
