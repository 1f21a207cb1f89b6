"""The command that lets this machine serve a job that was made elsewhere."""

from typing import Annotated

import msgspec
import typer

from elastane.agent.folder import check_script_here, open_folder
from elastane.agent.patience import insist
from elastane.agent.serve import Order, serve
from elastane.agent.settings import AgentSettings
from elastane.cli.exits import Exit
from elastane.cli.home import make_home
from elastane.cli.options import Desk, NodeFlags
from elastane.cli.serve import shown
from elastane.jobs.registry import find_job, list_jobs
from elastane.jobs.requests import read_picture
from elastane.model.errors import JobNotFoundError
from elastane.model.records import JobInfo, JobPhase
from elastane.store.base import Store

JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Id or name of the job [the only one that has not ended]."),
]


def serve_node(*, job: JobOption = None, here: NodeFlags, desk: Desk) -> int:
    """Serve a job on this machine: start and watch its workers here until it has ended.

    Ctrl-C or SIGTERM takes this machine out of the job, which goes on elsewhere; twice does so at once.
    """
    out = desk.output()
    where = desk.resolve()
    make_home(where)

    def find() -> JobInfo:
        with desk.open() as store:
            return find_job(store, job) if job else find_only_job(store)

    info = insist(find, AgentSettings().store_patience_s)
    order = Order(
        store_url=where.store_url,
        job=info.job,
        home=str(where.path),
        node=here.name(),
        devices=here.devices,
        address=here.address,
        guest=True,
    )
    out.remark(f"serving job {info.job} ({info.name}) as node {order.node}")
    check_script_here(info)
    # Its folder as this machine sees it: what happens here is told, and of the rest what the store knows.
    here_seen = msgspec.structs.replace(info, directory=str(open_folder(info, where.path)))
    with shown(where, here_seen, out, plain=True):
        status = serve(order)
    data = {"job": info.job, "node": order.node, "phase": status.phase, "message": status.message}
    text = f"{status.phase.value}{f' ({status.message})' if status.message else ''}"
    if not status.phase.ended:
        text = f"node {order.node} has left; the job goes on without it"
    out.show(data, f"job {info.job}: {text}")
    return Exit.FAILED if status.phase is JobPhase.FAILED else Exit.DONE


def find_only_job(store: Store) -> JobInfo:
    """Return the one job that has not ended.

    Raises:
        JobNotFoundError: there is none, or several; the message names them.
    """
    living = [info for info in list_jobs(store) if not read_picture(store, info.job).view.status.phase.ended]
    if len(living) == 1:
        return living[0]
    if not living:
        raise JobNotFoundError("no job of this store has yet to end; start one with `elastane run --nodes N`")
    listed = ", ".join(f"{info.job} ({info.name})" for info in living)
    raise JobNotFoundError(f"{len(living)} jobs of this store run: {listed}; name one with --job")
