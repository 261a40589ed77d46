"""How often tests repeat what they do."""

import os


def repeats(count, few):
    """``count`` times; ``few`` times where ``HALOCLINE_SEEDS`` limits tests, as in the fast tier."""
    return few if "HALOCLINE_SEEDS" in os.environ else count


def seeds(count):
    """Seeds of random input, at most ``HALOCLINE_SEEDS`` of them. ``HALOCLINE_SEED`` is the only one. pytest shows what is printed here when a
    test fails: the last line is the seed that failed."""
    only = os.environ.get("HALOCLINE_SEED")
    for seed in [int(only)] if only else range(min(count, int(os.environ.get("HALOCLINE_SEEDS", count)))):
        print(f"HALOCLINE_SEED={seed}")
        yield seed
