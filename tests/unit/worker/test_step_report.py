import pytest

from elastane.model.errors import DeterminismError
from elastane.worker.report import (
    StepReport,
    VrankReport,
    average_values,
    compute_seconds_per_vrank,
    count_samples,
    pack_report,
    unpack_reports,
)


def report(*vranks: VrankReport) -> StepReport:
    return StepReport(list(vranks), [1], [1], 0.5)


def test_a_report_survives_the_way_to_the_other_members() -> None:
    sent = StepReport([VrankReport(3, 5, {"loss": 0.1, "lr": 1e-3})], [1, 0], [2], 0.25, 77)
    assert unpack_reports([pack_report(sent), pack_report(report())]) == [sent, report()]


def test_values_are_averaged_by_samples_over_the_virtual_workers_that_logged_them() -> None:
    first = report(VrankReport(0, 4, {"loss": 1.0, "only": 7.0}), VrankReport(1, 2, {"loss": 4.0}))
    second = report(VrankReport(2, 0, {}))
    assert average_values([first, second]) == {"loss": (4.0 + 8.0) / 6, "only": 7.0}


def test_the_bits_of_an_average_do_not_depend_on_who_held_which_virtual_worker() -> None:
    vranks = [VrankReport(r, 3 + r % 2, {"loss": 0.1 * (r + 1) ** 3}) for r in range(7)]
    together = average_values([report(*vranks)])
    for cut in range(1, 7):
        assert average_values([report(*vranks[:cut]), report(*vranks[cut:])]) == together


def test_the_samples_of_all_virtual_workers_are_counted_and_must_be_those_planned() -> None:
    reports = [report(VrankReport(0, 4, {}), VrankReport(1, 2, {})), report(VrankReport(2, 0, {}))]
    assert count_samples(reports, planned=6, step=9) == 6
    with pytest.raises(
        DeterminismError, match="8 samples were planned for step 9, but the workers trained 6"
    ):
        count_samples(reports, planned=8, step=9)


def test_a_step_without_logged_values_has_none() -> None:
    assert average_values([report(VrankReport(0, 4, {}))]) == {}


def test_compute_time_is_told_per_virtual_worker() -> None:
    first = StepReport([VrankReport(r, 4, {}) for r in range(3)], [1], [1], 0.6)
    second = StepReport([VrankReport(3, 4, {})], [1], [1], 0.3)
    assert compute_seconds_per_vrank([first, second]) == pytest.approx([0.2, 0.3])


def test_a_step_with_unequal_parts_tells_nothing_of_the_workers() -> None:
    whole = report(VrankReport(0, 4, {}))
    assert compute_seconds_per_vrank([whole, report(VrankReport(1, 2, {}))]) == []
    assert compute_seconds_per_vrank([report(VrankReport(0, 1, {})), report(VrankReport(1, 0, {}))]) == []
    # A batch policy cuts 65 samples into 33 and 32 in every step.
    assert compute_seconds_per_vrank([whole, report(VrankReport(1, 3, {}))]) == [0.5, 0.5]
