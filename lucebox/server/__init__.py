"""The OpenAI-compatible HTTP API.

`app` is an ASGI application configured by LUCEBOX_* variables (`uvicorn lucebox.server:app`),
`create_app(config)` one for a resolved configuration, `lifespan(app)` starts either inside of another
application, and `serve(options)` is a whole server with its socket.
Importing this package loads nothing; the names do when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucebox.server.application import EnvironmentApp, create_app
    from lucebox.server.launch import serve
    from lucebox.server.mounting import lifespan

    app: EnvironmentApp

__all__ = ["app", "create_app", "lifespan", "serve"]


def __getattr__(name: str) -> Any:
    match name:
        case "app":
            import os

            from lucebox.server.application import EnvironmentApp

            value: Any = EnvironmentApp(os.environ)
        case "create_app":
            from lucebox.server.application import create_app as value
        case "lifespan":
            from lucebox.server.mounting import lifespan as value
        case "serve":
            from lucebox.server.launch import serve as value
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # one object however often it is asked for
    return value
