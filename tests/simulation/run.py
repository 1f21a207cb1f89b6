"""Run worlds: python -m tests.simulation.run --seed 7 --verbose, or --seeds 100000.

With `--policies` their jobs run under batch policies instead of a fixed number of virtual workers.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from .policies import PolicyWorld
from .world import Outcome, World

REPLAY = "python -m tests.simulation.run {flags}--seed {seed} --verbose"
POLICIES = "--policies "


def run_seed(seed: int) -> Outcome:
    """Live through one world."""
    return World(seed).run()


def run_policy_seed(seed: int) -> Outcome:
    """Live through one world under a batch policy."""
    return PolicyWorld(seed).run()


def describe_failure(outcome: Outcome, flags: str = "") -> str:
    """Return the line that replays a failed world."""
    return f"{outcome.violation}   [{REPLAY.format(seed=outcome.seed, flags=flags)}]"


def run_seeds(seeds: Iterable[int], run: Callable[[int], Outcome] = run_seed) -> list[str]:
    """Live through many worlds; return a line for each that failed."""
    flags = "" if run is run_seed else POLICIES
    return [describe_failure(o, flags) for o in map(run, seeds) if o.violation]


def main() -> int:
    """Run the worlds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="live through this world alone")
    parser.add_argument("--seeds", type=int, default=2000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--verbose", action="store_true", help="print the transcript")
    parser.add_argument("--policies", action="store_true", help="jobs under batch policies")
    options = parser.parse_args()
    if options.seed is not None:
        kind = PolicyWorld if options.policies else World
        world = kind(options.seed, verbose=options.verbose)
        outcome = world.run()
        print("\n".join(world.lines))
        print(outcome)
        return 1 if outcome.violation else 0
    seeds = range(options.first, options.first + options.seeds)
    return _run_many(seeds, run_policy_seed, POLICIES) if options.policies else _run_many(seeds)


def _run_many(seeds: range, run: Callable[[int], Outcome] = run_seed, flags: str = "") -> int:
    began_s = time.process_time()
    phases: Counter[str] = Counter()
    failures = events = steps = 0
    for seed in seeds:
        outcome = run(seed)
        phases[outcome.phase.value] += 1
        events += outcome.events
        steps += outcome.steps
        if outcome.violation:
            failures += 1
            print(describe_failure(outcome, flags), flush=True)
    took_s = time.process_time() - began_s
    print(
        f"{len(seeds)} worlds, {failures} failed; {took_s:.1f} s, {took_s / len(seeds) * 1e3:.1f} ms and "
        f"{events // len(seeds)} events a world, {steps} steps; jobs ended as {dict(sorted(phases.items()))}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
