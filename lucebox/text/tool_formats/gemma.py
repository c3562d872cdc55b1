"""Gemma: its template knows no tools; Google has them described in the prompt, with `parameters` in calls.

https://ai.google.dev/gemma/docs/capabilities/function-calling
"""

from __future__ import annotations

from typing import ClassVar

from lucebox.text.tool_formats import generic


class Plugin(generic.Plugin):
    arguments_key: ClassVar[str] = "parameters"

    @classmethod
    def detect(cls, template: str) -> bool:
        return "<start_of_turn>" in template
