"""POST /v1/responses: OpenAI's Responses API, without anything kept between requests."""

from lucebox.server.responses_api.endpoint import routes

__all__ = ["routes"]
