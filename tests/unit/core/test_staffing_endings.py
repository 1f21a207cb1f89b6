"""What an agent makes of a job that stops while its workers come or go."""

from protocol_records import READY, record, topology, view

from elastane.core.staffing import NodeState, StaffingPlan, StaffingSettings, plan_staffing
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.topology import Mode

NODE = NodeState(node=NodeId("n"), devices=(DeviceId("cpu:0"), DeviceId("cpu:1")))


def test_a_job_whose_first_generation_is_about_to_be_entered_is_not_called_lost() -> None:
    picture = view(record("a", READY), wanted=1, current=topology("a", mode=Mode.START), stop=True)
    assert plan_staffing(picture, NODE, 5.0, StaffingSettings()) == StaffingPlan()


def test_a_stop_whose_workers_are_all_lost_gets_somebody_who_says_so() -> None:
    stop = topology(generation=2, mode=Mode.STOP, leaving=(WorkerId("a"),))
    for stage in ({"current": stop}, {"current": topology("a"), "proposal": stop}):
        plan = plan_staffing(view(wanted=1, **stage), NODE, 5.0, StaffingSettings())
        assert [start.device for start in plan.starts] == ["cpu:0"]
    living = view(record("a"), wanted=2, current=topology("a"), proposal=stop)
    assert plan_staffing(living, NODE, 5.0, StaffingSettings()).starts == ()
