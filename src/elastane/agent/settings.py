"""What an agent must be told: which job on which node, and the constants of its work."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastane.core.staffing import FailureLimits, StaffingSettings
from elastane.model.ids import DeviceId, JobId, NodeId
from elastane.model.records import CheckpointPlan, Launch, ProfilePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Hold what the job's command line says to every worker."""

    virtual_workers: int | None = None
    checkpoints: CheckpointPlan = CheckpointPlan()  # noqa: RUF009 - frozen
    lease_ttl_s: float = 3.0
    orphan_grace_s: float = 60.0
    step_timeout_s: float = 600.0
    intra_op_threads: int = 1
    autoscale: str = ""
    stragglers: str = "off"
    profile: ProfilePlan | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Hold the constants of an agent."""

    workers: WorkerSettings = WorkerSettings()
    staffing: StaffingSettings = StaffingSettings()  # noqa: RUF009 - frozen
    lease_ttl_s: float = 5.0
    """Life of the agent's records without renewal: who looks for an agent (people, workers that fear to be
    orphans, who wants the job's name) hears of its death so late."""
    stop_grace_s: float = 30.0
    """How long a graceful stop may take before it is ended by force."""
    look_s: float = 1.0
    """Longest time between two looks at the job, should a wake-up be lost; frozen workers wake nobody."""
    store_patience_s: float = 60.0
    """How long the store may be out of reach before the agent ends its workers and itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlace:
    """Say which job an agent serves, and where."""

    job: JobId
    node: NodeId
    devices: tuple[DeviceId, ...]
    store_url: str
    address: str = "127.0.0.1"
    """Under which the workers of other nodes reach those of this one."""
    directory: str = ""
    """The job's folder on this node; "" = where the job was made."""
    guest: bool = False
    """The job was made elsewhere: a request to stop here means that this node leaves the job."""


def make_agent_settings(launch: Launch) -> AgentSettings:
    """Return how an agent serves a job that is to be run as `launch` says."""
    script, machine, preemption = launch.failures
    return AgentSettings(
        workers=WorkerSettings(
            virtual_workers=launch.virtual_workers,
            checkpoints=launch.checkpoints,
            lease_ttl_s=launch.lease_s,
            orphan_grace_s=launch.orphan_grace_s,
            step_timeout_s=launch.step_timeout_s,
            intra_op_threads=launch.threads,
            autoscale=launch.autoscale,
            stragglers=launch.stragglers,
            profile=launch.profile,
        ),
        staffing=StaffingSettings(
            limits=FailureLimits(script=script, machine=machine, preemption=preemption)
        ),
        stop_grace_s=launch.grace_s,
    )
