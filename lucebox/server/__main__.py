"""`python -m lucebox.server`: see the README for its flags."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from lucebox.config import parse_server_args
from lucebox.errors import ConfigError, LuceboxError
from lucebox.terminal import prepare_streams, show_error


def main(argv: Sequence[str]) -> int:
    """Runs the server. Returns 0 after a signal to stop, 1 for a failure, 2 for a wrong setting."""
    prepare_streams()
    try:
        from lucebox.server.launch import serve

        return serve(parse_server_args(argv, os.environ))
    except LuceboxError as error:
        show_error(error)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
