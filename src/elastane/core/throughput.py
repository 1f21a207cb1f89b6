"""Measure a job's throughput at one size: some steps in a row, the first after a change left out."""

from statistics import median


class SizeMeter:
    """Collect the steps of one number of workers until there are enough of them.

    Args:
        interval_steps: steps to measure.
        skipped_steps: first steps of a generation that are left out: the switch lies in them.
    """

    def __init__(self, interval_steps: int, skipped_steps: int) -> None:
        self._interval = interval_steps
        self._skipped = skipped_steps
        self._generation: int | None = None
        self._to_skip = 0
        self._rates: list[float] = []

    def observe(self, generation: int, samples: int, step_time_s: float) -> float | None:
        """Take a step; return the median of samples per second when enough were seen, and begin anew."""
        if generation != self._generation:
            self._generation, self._to_skip = generation, self._skipped
            self._rates.clear()
        if self._to_skip:
            self._to_skip -= 1
            return None
        if step_time_s > 0:
            self._rates.append(samples / step_time_s)
        if len(self._rates) < self._interval:
            return None
        throughput = median(self._rates)
        self._rates.clear()
        return throughput
