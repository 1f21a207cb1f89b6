"""What an agent tells the others of its node, and how its own fresher knowledge comes into the common
picture."""

from dataclasses import replace

from elastane.core.staffing.history import find_resting
from elastane.core.staffing.nouns import NodeState, StaffingSettings
from elastane.core.view import JobView
from elastane.model.records import AgentRecord, DeviceFailures, Post, Roster


def make_roster(node: NodeState, now_s: float, settings: StaffingSettings) -> Roster:
    """Return the record that tells other agents, and this one's successor, what runs here."""
    return Roster(
        node=node.node,
        posts={
            process.worker: Post(
                device=process.device,
                pid=process.pid,
                born=process.born,
                registered=process.last_phase is not None,
            )
            for process in node.processes.values()
        },
        resting=tuple(sorted(find_resting(node.history, now_s, settings))),
        failures={
            device: DeviceFailures(
                in_a_row=past.failures,
                since_progress={kind.value: count for kind, count in past.since_progress.items()},
            )
            for device, past in node.history.items()
        },
    )


def with_own_knowledge(view: JobView, node: NodeState, now_s: float, settings: StaffingSettings) -> JobView:
    """Return the view as all agents would see it if this node's records were up to date."""
    present = AgentRecord(node=node.node, pid=0, devices=node.devices)
    return replace(
        view,
        agents={**view.agents, node.node: present},
        rosters={**view.rosters, node.node: make_roster(node, now_s, settings)},
    )
