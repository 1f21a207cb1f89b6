"""Acts begin at their step, one after another, and end when the job has come to rest."""

from demo.story import ACTS, Act, Deed, Story, begin_scene, choose_device, choose_mover, choose_victim
from demo_jobs import make_change, make_snapshot, make_worker

ALONE = make_worker("w1", (0, 4))
PAIR = (make_worker("w1", (0, 2), leader=True), make_worker("w2", (2, 4)))
START = make_change(1, "start")


def test_the_story_has_every_deed_once_in_the_order_of_its_steps() -> None:
    assert [act.deed for act in ACTS] == list(Deed)
    assert [act.at for act in ACTS] == sorted(act.at for act in ACTS)


def test_an_act_waits_for_its_step_and_for_a_job_at_rest() -> None:
    story = Story(100, (Act(deed=Deed.SCALE_OUT, title="out", at=0.5),))
    assert story.turn(make_snapshot(ALONE, step=49)) is None
    assert story.turn(make_snapshot(ALONE, step=50, activity=("something changes",))) is None
    assert story.turn(make_snapshot(ALONE, step=50)) is story.scenes[0]


def test_an_act_is_done_when_its_change_was_made_and_the_job_is_at_rest() -> None:
    story = Story(100, (Act(deed=Deed.SCALE_OUT, title="out", at=0.0),))
    before = make_snapshot(ALONE, changes=(START,))
    begin_scene(story.scenes[0], before, "elastane scale demo 2", 5.0)
    story.turn(before)
    assert not story.over
    changed = make_change(2, "planned")
    story.turn(make_snapshot(*PAIR, changes=(START, changed), activity=("w2 is preparing",)))
    assert not story.over
    story.turn(make_snapshot(*PAIR, changes=(START, changed)))
    assert story.over
    assert story.scenes[0].changes == (changed,)


def test_a_kill_is_done_only_after_a_recovery() -> None:
    story = Story(100, (Act(deed=Deed.KILL, title="kill", at=0.0),))
    begin_scene(story.scenes[0], make_snapshot(*PAIR), "kill -9 1", 5.0, "w1")
    story.turn(make_snapshot(*PAIR, changes=(make_change(2, "planned"),)))
    assert not story.over
    story.turn(make_snapshot(*PAIR, changes=(make_change(2, "recovery"), make_change(3, "planned"))))
    assert story.over


def test_the_next_act_waits_until_the_one_before_is_done() -> None:
    first, second = (Act(deed=deed, title=deed, at=0.0) for deed in (Deed.SCALE_OUT, Deed.SCALE_IN))
    story = Story(100, (first, second))
    begin_scene(story.scenes[0], make_snapshot(ALONE), "elastane scale demo 2", 5.0)
    assert story.turn(make_snapshot(ALONE)) is None
    done = make_snapshot(*PAIR, changes=(make_change(2, "planned"),))
    assert story.turn(done) is story.scenes[1]


def test_nothing_is_done_to_a_job_that_has_ended() -> None:
    story = Story(100)
    ended = make_snapshot(ALONE, step=100, phase=make_snapshot().phase.FINISHED)
    assert story.turn(ended) is None


def test_the_leader_is_killed_and_the_last_worker_moved_to_a_free_device() -> None:
    followers = (make_worker("w1", (0, 2)), make_worker("w2", (2, 4), leader=True))
    assert choose_victim(make_snapshot(*followers)).worker == "w2"
    assert choose_victim(make_snapshot(ALONE)).worker == "w1"
    assert choose_mover(make_snapshot(*PAIR, make_worker("w3", None))).worker == "w2"
    assert choose_device(make_snapshot(*PAIR), ("cpu:0", "cpu:1")) == "cpu:1"
