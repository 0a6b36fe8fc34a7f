"""`python -m hangwatch_agent.doctor.loader PLAN`: one walk."""

import sys

from hangwatch_agent.doctor.loader import walk

if __name__ == "__main__":
    walk.main(sys.argv[1])
