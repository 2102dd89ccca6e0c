"""The reference agent on Restate: a server in front of your service keeps a journal of each call.

Restate guarantees that a `ctx.run` whose result is in the journal is not executed again, and that
the server calls the service again, with the journal, until the handler has returned. It leaves to
you: the server, a service that is there to be called, and a receiver that knows the key of a
repeated effect. The server's two doors are `$RESTATE_INGRESS_URL` and `$RESTATE_ADMIN_URL`; this
process listens at `$PORT`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

LIMIT_S = 600.0  # for how long a client waits for a run

world = outside()
agent = restate.Workflow("ReferenceAgent")


@agent.main()
async def run(ctx: restate.WorkflowContext, order: str) -> Result:
    def key(step: str) -> str:
        """What Restate offers: the invocation's id. Which step it is you add yourself."""
        return f"{ctx.request().id}/{step}"

    def charge() -> str:
        return world.charge(order, AMOUNT, idempotency_key=key("charge"))

    def send_email() -> str:
        return world.send_email(order, letter, idempotency_key=key("send_email"))

    def update_crm() -> str:
        return world.update_crm(order, "upgraded", idempotency_key=key("update_crm"))

    plan = await ctx.run_typed("plan", lambda: world.think("plan", order))
    notes = await ctx.run_typed("research", lambda: world.think("research", plan))
    draft = await ctx.run_typed("draft", lambda: world.think("draft", notes))
    receipt = await ctx.run_typed("charge", charge)
    letter = await ctx.run_typed("compose", lambda: world.think("compose", [draft, receipt]))
    await ctx.run_typed("send_email", send_email)
    await ctx.run_typed("update_crm", update_crm)
    return {"order": order, "letter": letter}


@asynccontextmanager
async def working() -> AsyncIterator[Callable[[str], Awaitable[Result]]]:
    """The service, which the server is told of, with a client beside it that asks for runs."""
    here, stop = f"127.0.0.1:{os.environ['PORT']}", asyncio.Event()
    config = Config.from_mapping(bind=[here], loglevel="ERROR")
    service = restate.app(services=[agent])
    serving = asyncio.create_task(serve(service, config, shutdown_trigger=stop.wait))
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:

        async def run(order: str) -> Result:
            ingress = os.environ["RESTATE_INGRESS_URL"]
            await http.post(f"{ingress}/ReferenceAgent/{order}/run/send", json=order)
            answer = await http.get(f"{ingress}/restate/workflow/ReferenceAgent/{order}/attach")
            return answer.raise_for_status().json()

        admin = f"{os.environ['RESTATE_ADMIN_URL']}/deployments"
        told = await http.post(admin, json={"uri": f"http://{here}", "force": True})
        told.raise_for_status()
        yield run
    stop.set()
    await serving


if __name__ == "__main__":
    stage("restate", working)
