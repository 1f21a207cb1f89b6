"""Names of things. Every id is a plain string that is never used for a second thing."""

from typing import NewType

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
"""One life of one worker process. A worker that comes back has a new id."""
NodeId = NewType("NodeId", str)
DeviceId = NewType("DeviceId", str)
