"""Seeds as pure functions of where one is: (seed, step, vrank), (seed, epoch, step, vrank), ...

No random state is stored or moved: it is recomputed. The mixing function is splitmix64's finaliser
(Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014), applied per part.
"""

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: the increment of splitmix64


def mix_seed(seed: int, *parts: int) -> int:
    """Return a 64-bit seed for the place named by `parts`; equal inputs give equal seeds everywhere."""
    state = 0
    for part in (seed, *parts):  # the seed too: else (seed, part) and (seed + 1, part - 1) would be one place
        state = (state + _GOLDEN_GAMMA + (part & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


INIT_STREAM = 1
"""Building the model and everything else before the first step."""
STEP_STREAM = 2
"""Forward and backward of one virtual worker in one step: dropout and the like."""
DATA_STREAM = 3
"""Fetching one virtual worker's batch: augmentation."""
EVAL_STREAM = 4
"""Fetching one evaluation batch."""
