"""`python -m lucebox` is the `lucebox` command."""

import sys

from lucebox.cli import main

if __name__ == "__main__":
    sys.exit(main())
