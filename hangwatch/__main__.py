"""`python -m hangwatch` is the `hangwatch` command."""

import sys

from hangwatch.commands import main

if __name__ == "__main__":
    sys.exit(main())
