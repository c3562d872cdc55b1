"""The README's parts that are made from the code. `python -m tests.support.readme` writes them anew."""

from __future__ import annotations

import re

from lucebox import flags
from lucebox.config import ServerOptions
from lucebox.server import field_table, metrics, openapi
from lucebox.server.application import ROUTES, create_app
from tests.support.serving import server_config
from tests.support.source_tree import ROOT

README = ROOT / "README.md"


def generated() -> dict[str, str]:
    """What must stand between `<!-- name -->` and `<!-- end of name -->`."""
    return {
        "flags": flags.markdown_table(ServerOptions),
        "variables": flags.variables_table(),
        "fields": field_table.markdown_table(),
        "fields of speculative": field_table.speculative_table(),
        "endpoints": openapi.markdown_table(ROUTES),
        "metrics": metrics.markdown_table(create_app(server_config()).state.service),
    }


def between(name: str, text: str) -> str:
    """What stands between the markers of `name`."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->\n", text, re.DOTALL)
    assert found, f"README.md has no part <!-- {name} --> … <!-- end of {name} -->"
    return found[1]


def code(name: str, text: str) -> str:
    """The code block that stands between the markers of `name`."""
    found = re.fullmatch(r"```\w+\n(.*?)\n```\n", between(name, text), re.DOTALL)
    assert found, f"README.md: {name} is not one code block"
    return found[1]


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    for name, content in generated().items():
        text = text.replace(f"<!-- {name} -->\n{between(name, text)}", f"<!-- {name} -->\n{content}", 1)
    README.write_text(text, encoding="utf-8")
