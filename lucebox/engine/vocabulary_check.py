"""Whether a draft model speaks the target's language."""

from __future__ import annotations

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
    shown = "; ".join(f"id {d.token} is {d.ours!r} there and {d.theirs!r} here" for d in differences)
    raise VocabularyMismatchError(
        f"the draft model {config.draft.path} does not share the vocabulary of {config.target.path}: {shown}",
        remedy="use a draft model of the same family, a drafter that translates (--drafter tli or --drafter "
        "slem), or --draft-model none",
    )
