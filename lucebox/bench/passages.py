"""Texts of the benchmarks' prompts. All of them were written for it."""

from __future__ import annotations

import random

ARTICLES = (
    """The ferry between Norhavn and the island of Sild has run for a hundred and twelve years, and for
most of them nobody asked what it cost. That changed in the spring, when the county published its plan for
the coast. The plan counts eleven ferries, of which four carry fewer than thirty people a day in winter.
Sild's carries twenty-two. To keep it would cost the county nineteen million crowns over ten years: nine
for a new engine, since the old one no longer meets the rules on exhaust, six for the two piers, whose
timber was last renewed in 1974, and the rest for crew and fuel. A bridge had been considered in the
nineties and was rejected, because the strait is deep and drift ice would have asked for pillars of a kind
that had never been built so far north.

The islanders answered with a plan of their own. A battery ferry, built at the yard in Norhavn, would be
dearer to buy but far cheaper to run. The current could come from the two wind turbines that the island put
up eight years ago and that stand still for a third of the year, when the cable to the mainland is full.
The school's physics teacher did the sums: charged at night, the ferry would use a fifth of the power that
is now thrown away. The yard, which has not had an order for a new ship in three years, offered to build
the hull at cost if the county would let it show the ship to other buyers.

The county's engineers went through the figures in May and found two mistakes, neither of them large. The
crossing takes longer against the spring tide than the teacher had assumed, and the batteries would have to
be replaced in their ninth year rather than their twelfth. Even so the island's plan came out two million
crowns below the cheapest plan of the county. The council votes on it in September. Until then the old
ferry sails as before, three times a day, and four times on Fridays.""",
    """When the library of Elm closed for repairs, its nine hundred boxes of local papers were to
spend eight months in a warehouse by the railway. They spent six years there. The builders had found, under
the reading room, a cellar that was on no drawing, half full of water, and the question of who had to pay
for it went through three courts. In the meantime the warehouse was sold twice, and the second buyer, a
maker of bathroom tiles, did not know what stood behind the pallets in hall four.

Marta Lindqvist, who had retired from the library in the first of those years, did know. She had written
the list of the boxes herself, by hand, and kept the carbon copy. Every spring she wrote a letter to the
council to ask how the papers were, and every summer she was told that they were well. In the fifth year
she took the bus to the warehouse, asked for hall four, and found that a pipe had burst above row twelve. A
hundred and thirty boxes were wet, and in sixty of them mould had begun to grow.

What followed took two years and cost less than anyone had feared. The wet papers were frozen, in a cold
store that a fish merchant lent for nothing, so that the mould could not spread, and were then dried in
small lots under vacuum at the university. Volunteers from the town, most of them pupils, brushed the
sheets and copied the labels. Of the hundred and thirty boxes eleven were lost, among them the ledgers of
the old tannery. All the others can be read again. The library opened in October with a new rule in its
statutes: whatever it stores elsewhere is to be visited twice a year, by somebody with the list in hand.""",
    """For thirty years the bakers of the Lower Town heated their ovens with gas, and none of them thought
of wood until the price of gas tripled in a single winter. Ivo Bren was the first to try. Behind his shop
stood an oven from his grandfather's days, bricked up since 1961. He opened it, had the chimney lined, and
lit it on a Sunday, so that nobody would have to go without bread if it failed. It failed. The stones had
drawn in sixty years of damp, and the first loaves came out grey and flat. It took nine days of small fires
to dry the oven, and another week to learn how much heat it kept.

What he had not expected was the timetable. A gas oven is hot whenever one wants it to be. The old oven is
hottest at two in the morning, good for bread until five, for cakes until eight, and for nothing but drying
plums after that. Bren changed his whole day to suit it. He sold his dough mixer's night shift to a
neighbour, began to bake a dark loaf that likes a falling oven, and stopped making rolls altogether. He
lost some customers and won others, who came from across the river for the dark loaf. After a year his
costs for fuel were down by two thirds and his sales by a tenth.

The town looked on with mixed feelings. There were complaints about smoke, which ended when a filter was
put on the chimney at the town's expense, and a worry about the woods, which the forester laid to rest: the
oven burns what two hectares grow. By now four bakers share the old ovens of the quarter between them, each
at his own hour, and the school sends its classes to see how the heat is handed on.""",
)

STORY_PROMPTS = (
    "Tell a long story about a lighthouse keeper who finds a letter that was written to her a century ago.",
    "Write the first chapter of a novel that is set in a railway station in the mountains, in winter.",
    "Tell the story of two brothers who inherit a clock that runs backwards, in detail and with dialogue.",
    "Describe at length a market on the deck of a ship that has not come to land for thirty years.",
)

CONVERSATIONS = (
    (
        "I want to write a Python program that keeps track of books I lend to friends. Where do I begin?",
        "Good. Show me the class for a loan, with its date, and a method that says if it is overdue.",
        "Now add a function that prints all overdue loans, the oldest first.",
    ),
    (
        "What is the difference between a process and a thread? Explain it to somebody new to programming.",
        "When would I use one and when the other? Give two examples of each.",
        "Show one of these examples in Python, as short as possible.",
    ),
    (
        "I have twenty tomato plants on a balcony that gets sun until noon. How should I water them?",
        "What changes if I go away for ten days in August?",
        "Make a list of what I should buy for that, with the reason for each thing.",
    ),
)

_WHO = ("The surveyor", "Our guide", "The older of the two", "A woman from the village", "The carter")
_DID = ("counted", "wrote down", "could not find", "showed us", "asked about", "pointed out", "forgot")
_WHAT = (
    *("the wells", "three boundary stones", "the way to the mill", "the flood marks", "a row of old limes"),
    *("the names of the fields", "the height of the bridge", "a gate that nobody had opened for years"),
)
_WHEN = (
    *("before noon", "while it rained", "on the way back", "with some pride", "as soon as we had eaten"),
    *("although it was late", "for the second time", "without a word"),
)
_THEN = (
    *("and the measurements agreed with the map.", "which the map did not show.", "so the list grew."),
    *("and we went on to the next farm.", "but the ink had run.", "as the parish book says, too."),
    *("and nobody could say why.", "which cost us an hour."),
)
_SENTENCE = (_WHO, _DID, _WHAT, _WHEN, _THEN)


def field_notes(n_words: int, seed: int) -> str:
    """A surveyor's diary of at least `n_words` words: sentences whose parts come in ever new combinations."""
    draw = random.Random(seed)
    parts = [f"Field notes, book {draw.randrange(2, 60)}.\n\n"]
    n = 0
    while n < n_words:
        sentences = [" ".join(map(draw.choice, _SENTENCE)) for _ in range(draw.randrange(3, 7))]
        day = f"Day {len(parts)}. {' '.join(sentences)} We walked {draw.randrange(4, 31)} miles.\n\n"
        parts.append(day)
        n += len(day.split())
    return "".join(parts)
