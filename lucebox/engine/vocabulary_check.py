"""Whether a draft model speaks the target's language."""

from __future__ import annotations

from pathlib import Path

from lucebox import drafters
from lucebox.config import EngineConfig
from lucebox.errors import VocabularyMismatchError
from lucebox.gguf import read
from lucebox.text.vocabulary import Vocabulary


def check_models(config: EngineConfig) -> bool:
    """As check_draft, of files that are not open."""
    if config.draft is None:
        return True
    with read(config.target.path) as file:
        vocabulary = Vocabulary.from_metadata(file.metadata, config.target.path)
    return check_draft(config, vocabulary)


def check_draft(config: EngineConfig, vocabulary: Vocabulary) -> bool:
    """Whether the draft model has the target's vocabulary. Refuses one that means other text by the same ids
    before anything is loaded, unless drafters were named that translate."""
    if config.draft is None:
        return True
    with read(config.draft.path) as draft_file:
        draft = Vocabulary.from_metadata(draft_file.metadata, config.draft.path)
    differences = vocabulary.differences(draft)
    if not differences:
        return True
    named = [drafters.get(name) for spec in config.drafters for name in drafters.check(spec)]
    translate = [plugin.any_vocabulary for plugin in named if plugin.needs_model]
    if translate and all(translate):
        return False
    first = differences[0]
    raise VocabularyMismatchError(
        f"the draft model {Path(config.draft.path).name} does not share the vocabulary of "
        f"{Path(config.target.path).name}: id {first.token} is {first.theirs!r}, not {first.ours!r}",
        remedy="use one of the same family, --drafter tli or --drafter slem, or --draft-model none",
    )
