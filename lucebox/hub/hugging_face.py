"""Models named hf:owner/repo/file.gguf, through huggingface_hub and its own cache."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from lucebox.errors import ConfigError, DownloadError

PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>.+\.gguf)")
_SPLIT = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")


def fetch(model: str) -> Path:
    """The file (of a split model: its first part), downloaded with all its parts unless cached."""
    match = _NAME.fullmatch(model)
    if match is None:
        raise ConfigError(
            f"{model!r} does not name a file",
            remedy="write hf:owner/repo/file.gguf, with the file's full name",
        )
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        raise ConfigError(
            "hf: model names need the huggingface_hub package", remedy='pip install "lucebox[hub]"'
        ) from error
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    try:
        paths = [hf_hub_download(match["repo"], name) for name in _part_names(match["file"])]
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()
        raise DownloadError(
            f"{model} could not be fetched: {reason[0] if reason else type(error).__name__}",
            remedy="check the name and the network; gated models need HF_TOKEN",
        ) from error
    return Path(paths[0])


def _part_names(name: str) -> list[str]:
    split = _SPLIT.fullmatch(name)
    if split is None:
        return [name]
    count = split["count"]
    return [f"{split['stem']}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]
