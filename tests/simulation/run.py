"""Run worlds: python -m tests.simulation.run --seed 7 --verbose, or --seeds 100000."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable

from .world import Outcome, World

REPLAY = "python -m tests.simulation.run --seed {seed} --verbose"


def run_seed(seed: int) -> Outcome:
    """Live through one world."""
    return World(seed).run()


def describe_failure(outcome: Outcome) -> str:
    """Return the line that replays a failed world."""
    return f"{outcome.violation}   [{REPLAY.format(seed=outcome.seed)}]"


def run_seeds(seeds: Iterable[int]) -> list[str]:
    """Live through many worlds; return a line for each that failed."""
    return [describe_failure(o) for o in map(run_seed, seeds) if o.violation]


def main() -> int:
    """Run the worlds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="live through this world alone")
    parser.add_argument("--seeds", type=int, default=2000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--verbose", action="store_true", help="print the transcript")
    options = parser.parse_args()
    if options.seed is not None:
        world = World(options.seed, verbose=options.verbose)
        outcome = world.run()
        print("\n".join(world.lines))
        print(outcome)
        return 1 if outcome.violation else 0
    return _run_many(range(options.first, options.first + options.seeds))


def _run_many(seeds: range) -> int:
    began_s = time.process_time()
    phases: Counter[str] = Counter()
    failures = events = steps = 0
    for seed in seeds:
        outcome = run_seed(seed)
        phases[outcome.phase.value] += 1
        events += outcome.events
        steps += outcome.steps
        if outcome.violation:
            failures += 1
            print(describe_failure(outcome), flush=True)
    took_s = time.process_time() - began_s
    print(
        f"{len(seeds)} worlds, {failures} failed; {took_s:.1f} s, {took_s / len(seeds) * 1e3:.1f} ms and "
        f"{events // len(seeds)} events a world, {steps} steps; jobs ended as {dict(sorted(phases.items()))}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
