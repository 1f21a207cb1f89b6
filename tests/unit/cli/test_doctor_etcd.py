"""What the doctor says about an etcd."""

import pytest

from elastane.cli.examine import Verdict
from elastane.cli.examine_etcd import examine_etcd, judge_latency, judge_leases, judge_status
from elastane.store.etcd_messages import StatusReply


@pytest.mark.parametrize(
    ("status", "verdict", "found", "mend"),
    [
        (
            StatusReply(version="3.5.13", db_bytes=2_500_000),
            Verdict.OK,
            "etcd 3.5.13 at etcd://h, 2.5 MB",
            "",
        ),
        (StatusReply(version="3.5.12"), Verdict.WARN, "etcd 3.5.12 at", "update etcd to 3.5.13 or newer"),
        (StatusReply(version="3.4.20"), Verdict.WARN, "etcd 3.4.20 at", "update etcd to 3.4.21 or newer"),
        (StatusReply(version="3.4.23"), Verdict.OK, "etcd 3.4.23 at", ""),
        (StatusReply(version="3.6.0"), Verdict.OK, "etcd 3.6.0 at", ""),
        (StatusReply(version="unknown"), Verdict.OK, "etcd unknown", ""),
        (
            StatusReply(version="3.6.0", errors=("memberID:1 alarm:NOSPACE",)),
            Verdict.FAIL,
            "alarm:NOSPACE",
            "etcdctl alarm list",
        ),
    ],
)
def test_versions_and_alarms_are_judged(status: StatusReply, verdict: Verdict, found: str, mend: str) -> None:
    finding = judge_status("etcd://h", status)
    assert (finding.verdict, found in finding.found, finding.mend[: len(mend)]) == (verdict, True, mend)


def test_slow_writes_are_pointed_out() -> None:
    assert judge_latency(0.0007).found == "a write takes 0.7 ms"
    assert [judge_latency(latency_s).verdict for latency_s in (0.0007, 0.05)] == [Verdict.OK, Verdict.WARN]


@pytest.mark.parametrize(
    ("url", "shortest_s", "verdict", "found", "mend"),
    [
        ("etcd://h", 2, Verdict.OK, "from 3 s (the cluster's shortest: 2 s)", ""),
        ("etcd://h?timeout=0.2", 1, Verdict.OK, "from 2 s (the cluster's shortest: 1 s)", ""),
        ("etcd://h?timeout=2", 2, Verdict.WARN, "from 6 s", "run jobs with --lease 6"),
        ("etcd://h", 8, Verdict.WARN, "from 8 s", "etcd's --election-timeout is long"),
    ],
)
def test_the_shortest_lease_is_judged(
    url: str, shortest_s: int, verdict: Verdict, found: str, mend: str
) -> None:
    finding = judge_leases(url, shortest_s)
    assert (finding.verdict, finding.found[: len(found)], finding.mend[: len(mend)]) == (verdict, found, mend)


def test_an_etcd_that_is_away_or_misnamed_is_a_finding_without_secrets() -> None:
    for url in ("etcd://me:hunter2@127.0.0.1:1", "etcd://me:hunter2@host:port"):
        (finding,) = examine_etcd(url)
        assert (finding.name, finding.verdict, "hunter2" in repr(finding)) == ("store", Verdict.FAIL, False)
