"""The floor's worker as a process: `floor_worker.py TEMPORAL_ADDRESS MODEL_URL`."""

import asyncio
import sys

from floor_workflow import QUEUE, FloorActivities, FloorFan, FloorSlow, FloorSwarm, FloorTurn
from openai import AsyncOpenAI
from temporalio.client import Client
from temporalio.worker import Worker


async def main(address: str, model_url: str) -> None:
    activities = FloorActivities(AsyncOpenAI(base_url=model_url, api_key="none", max_retries=0))
    worker = Worker(
        await Client.connect(address),
        task_queue=QUEUE,
        workflows=[FloorTurn, FloorSlow, FloorFan, FloorSwarm],
        activities=[
            activities.floor_model,
            activities.floor_add,
            activities.floor_slow,
            activities.floor_nap,
        ],
    )
    print("ready", flush=True)
    await worker.run()


asyncio.run(main(*sys.argv[1:]))
