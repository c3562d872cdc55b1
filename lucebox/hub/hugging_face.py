"""Models named hf:owner/repo/file.gguf, through huggingface_hub and its own cache."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

from lucebox.errors import ConfigError, DownloadError
from lucebox.hub.catalogue import CATALOGUE
from lucebox.paths import models_dir

PREFIX = "hf:"
_TIMEOUT_S = 4.0  # of the question whether it is there
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>.+\.gguf)")
_SPLIT = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")


def fetch(model: str) -> Path:
    """The file (of a split model: its first part), downloaded with all its parts unless cached.

    Raises ConfigError for a name that means nothing, DownloadError when it cannot be fetched.
    """
    match = _NAME.fullmatch(model)
    if match is None:
        raise ConfigError(
            f"{model!r} does not name a file",
            remedy="write hf:owner/repo/file.gguf, with the file's full name",
        )
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        raise ConfigError(
            "hf: model names need the huggingface_hub package", remedy="pip install huggingface_hub"
        ) from error
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    repo, names = match["repo"], _part_names(match["file"])
    if not _is_reachable(repo, names[0]):
        cached = [try_to_load_from_cache(repo, name) for name in names]
        if not all(isinstance(path, str) for path in cached):
            raise _no_network(model)
        return Path(str(cached[0]))
    try:
        paths = [hf_hub_download(repo, name, etag_timeout=_TIMEOUT_S) for name in names]
    except Exception as error:  # of whichever HTTP client it uses
        reason = str(error).strip().splitlines()
        raise DownloadError(
            f"{model} could not be fetched: {reason[0] if reason else type(error).__name__}",
            remedy="check the name and the network; gated models need HF_TOKEN",
        ) from error
    return Path(paths[0])


def _is_reachable(repo: str, name: str) -> bool:
    """Whether Hugging Face says anything about the file, within `_TIMEOUT_S`.

    `hf_hub_download` would try again for half a minute, and log each time.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    answered = threading.Event()

    def ask() -> None:
        try:
            get_hf_file_metadata(hf_hub_url(repo, name), timeout=_TIMEOUT_S)
        except HfHubHTTPError:  # an answer, too: hf_hub_download words it
            pass
        except Exception:  # of whichever HTTP client it uses
            return
        answered.set()

    # Timeouts bound neither name servers nor how many addresses are tried.
    asking = threading.Thread(target=ask, name="hugging-face", daemon=True)
    asking.start()
    asking.join(_TIMEOUT_S)
    return answered.is_set()


def _no_network(model: str) -> DownloadError:
    here = [name for name, known in CATALOGUE.items() if (models_dir() / known.file_name).is_file()]
    fetched = f", or a model that was fetched: {', '.join(here)}" if here else ""
    return DownloadError(
        f"{model} could not be fetched: Hugging Face cannot be reached, and it is not in the cache",
        remedy=f"check the network; or give a file's path{fetched}",
    )


def _part_names(name: str) -> list[str]:
    split = _SPLIT.fullmatch(name)
    if split is None:
        return [name]
    count = split["count"]
    return [f"{split['stem']}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]
