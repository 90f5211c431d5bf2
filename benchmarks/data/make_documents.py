"""Print long prompts, a made-up document and a question about it, one JSON line each.

Everything follows from the seed; benchmarks/README.md says how prompts.jsonl was put together from it.
"""

import json
import random
from collections.abc import Iterator

SEED = 20240917
NUM_RECORDS = (12, 18, 24, 30, 36, 42)  # of each document; 12 records are about 500 words

PLACES = ("Harbour Street", "Mill Lane", "the North Quay", "Station Road", "the Old Dairy", "Castle Hill", "Pine Court")
TEAMS = (
    "the night shift",
    "the harbour crew",
    "two electricians",
    "a surveyor",
    "the gardening team",
    "the fire watch",
)
OBJECTS = (
    "a cracked water main",
    "the street lamps",
    "a stuck lift",
    "the drainage pump",
    "a fallen tree",
    "the bus shelter",
)
CAUSES = (
    "last week's frost",
    "a burst valve",
    "worn cables",
    "the storm on Sunday",
    "a delivery van",
    "blocked gutters",
)
RESULTS = (
    "The work was finished before noon and nobody had to be moved.",
    "A second visit is planned, because the right part was not in stock.",
    "The residents had been told a day ahead and raised no objection.",
    "The road stayed closed overnight and was opened again at six.",
    "Photographs were taken before and after and are kept with the invoice.",
    "The cost was lower than the estimate, since the old parts could be used again.",
)
QUESTIONS = (
    "Which record cost the most, and what had caused the damage? Answer in two sentences.",
    "Summarise the document in five short points for the town council.",
    "List the places that were visited more than once and say why.",
)


def main() -> None:
    """Print all prompts."""
    rng = random.Random(SEED)
    for index, num_records in enumerate(NUM_RECORDS):
        document = "\n".join(write_records(num_records, rng))
        question = QUESTIONS[index % len(QUESTIONS)]
        content = f"Use only the document below to answer.\n\n{document}\n\nQuestion: {question}"
        print(json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 96}))


def write_records(num_records: int, rng: random.Random) -> Iterator[str]:
    """Write the entries of a maintenance log."""
    for number in range(1, num_records + 1):
        yield (
            f"Record {number}. On day {rng.randint(1, 28)} of month {rng.randint(1, 12)}, {rng.choice(TEAMS)} went to "
            f"{rng.choice(PLACES)} to see about {rng.choice(OBJECTS)}, damaged by {rng.choice(CAUSES)}. "
            f"{rng.choice(RESULTS)} Cost: {rng.randint(4, 90) * 25} crowns."
        )


if __name__ == "__main__":
    main()
