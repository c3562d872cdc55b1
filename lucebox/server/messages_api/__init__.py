"""POST /v1/messages: Anthropic's Messages API."""

from lucebox.server.messages_api.endpoint import routes

__all__ = ["routes"]
