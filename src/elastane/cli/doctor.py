"""The command `doctor`: examine this machine and say how to mend what is wrong with it."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli import examine
from elastane.cli.examine import Finding, Verdict
from elastane.cli.examine_etcd import examine_etcd
from elastane.cli.exits import Exit
from elastane.cli.home import Home, resolve_home
from elastane.cli.options import HomeOption, JsonOption, StoreOption
from elastane.cli.output import Output
from elastane.store.etcd_address import is_etcd

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def doctor(home: HomeOption = None, store: StoreOption = None, as_json: JsonOption = False) -> int:
    """Examine this machine and say how to mend what is wrong; 1 if something does not work."""
    out = Output(as_json=as_json)
    if not as_json:
        out.remark("loading torch ...")
    findings = examine_machine(resolve_home(home, store))
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    out.show({"ok": not failed, "findings": findings}, render_findings(findings))
    return Exit.FAILED if failed else Exit.DONE


def examine_machine(home: Home) -> tuple[Finding, ...]:
    """Return all findings, those that others build on first."""
    begun_s = time.perf_counter()
    torch = examine.load_torch()
    import_s = time.perf_counter() - begun_s
    return (
        examine.examine_python(),
        examine.examine_torch(torch, import_s),
        examine.examine_communication(torch),
        examine.examine_devices(torch),
        examine.examine_threads(),
        examine.examine_memory(),
        examine.examine_loopback(),
        examine.examine_memory_reads(),
        examine.examine_host_name(),
        examine.examine_home(home),
        examine.examine_file_system(home),
        *examine_any_store(home),
        examine.examine_clock(),
        examine.examine_limits(),
        examine.examine_shared_memory(),
    )


def examine_any_store(home: Home) -> tuple[Finding, ...]:
    """Return what is found about a store, whatever kind it is of."""
    if is_etcd(home.store_url):
        return examine_etcd(home.store_url)
    return (examine.examine_store(home),)


def render_findings(findings: Sequence[Finding]) -> RenderableType:
    """Return one row for each finding, with the way to mend it below, and the sum."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict.value, style=STYLES[finding.verdict])
        table.add_row(verdict, finding.name, Text(finding.found))
        if finding.mend:
            table.add_row("", "", Text(f"-> {finding.mend}"))
    counts = [sum(finding.verdict is verdict for finding in findings) for verdict in Verdict]
    return Group(table, Text(f"{counts[0]} ok, {counts[1]} to look at, {counts[2]} to mend", style="bold"))
