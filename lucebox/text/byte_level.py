"""Byte-level BPE, as GPT-2 introduced it, on the `tokenizers` library."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from lucebox.errors import ModelFileError
from lucebox.text.fields import TokenizerFields
from lucebox.text.pretokenizers import pretokenizer_of

Merge = tuple[str, str]


class ByteLevelBpe:
    """Encodes text that holds no added tokens. Needs the keys `pre` and `merges`."""

    def __init__(self, fields: TokenizerFields, texts: list[str]) -> None:
        pretokenizer = pretokenizer_of(fields)
        ids = dict(zip(texts, range(len(texts)), strict=True))
        merges: list[Merge] = [line.partition(" ")[::2] for line in fields.strings("merges")]
        try:
            model = BPE(ids, merges, ignore_merges=pretokenizer.ignore_merges)
        except Exception:  # the library's own type; it means a merge of tokens that are not there
            raise _bad_merge(fields, ids, merges) from None
        self._tokenizer = Tokenizer(model)
        cuts = [Split(Regex(pattern), "isolated") for pattern in pretokenizer.patterns]
        self._tokenizer.pre_tokenizer = Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which must be encodable as UTF-8."""
        # A batch of one: unlike `encode` it lets other threads run, and knows of no offsets.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids


def _bad_merge(fields: TokenizerFields, ids: dict[str, int], merges: list[Merge]) -> ModelFileError:
    for index, (left, right) in enumerate(merges):
        if left not in ids or right not in ids or left + right not in ids:
            pair = f"{left} {right}"
            return fields.error(
                "merges", f"entry {index:,}, {pair!r:.60}, is no pair of tokens that make one"
            )
    return fields.error("merges", "is refused by the tokenizers library")
