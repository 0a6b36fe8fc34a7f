"""`python -m hangwatch_agent.doctor` is a rank's probe; with the name of a part, that part alone."""

import sys

from hangwatch_agent.doctor import parts, rank

if __name__ == "__main__":
    sys.exit(parts.main(sys.argv[1]) if len(sys.argv) > 1 else rank.main())
