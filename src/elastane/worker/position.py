"""Where in the data a job stands: replicated, so that whoever joins goes on at the same step of the epoch."""

from dataclasses import dataclass


@dataclass(slots=True)
class Position:
    """Hold where in the data the job stands; part of the replicated state."""

    epoch: int = 0
    epoch_step: int = 0

    def state_dict(self) -> dict[str, int]:
        """Return both counters."""
        return {"epoch": self.epoch, "epoch_step": self.epoch_step}

    def load_state_dict(self, state: dict[str, int], /) -> None:
        """Take both counters over."""
        self.epoch, self.epoch_step = state["epoch"], state["epoch_step"]
