"""Equal inputs give equal digests, whatever order Python hashes strings in."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

SCRIPT = """
from sim_traces import make_markovian, read_tiresias
from elastane.model.cluster import Cluster
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import POLICIES, make_policy
from elastane.sim.engine import simulate
workload = read_tiresias("60_job")
for name in POLICIES:
    run = simulate(workload, Cluster.of(1, 16), make_policy(name), overhead=PRESETS["edl"])
    print(name, run.digest)
"""


def run_under(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=HERE, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    first = run_under("1")
    assert len(first.splitlines()) == 15
    assert run_under("2") == first
