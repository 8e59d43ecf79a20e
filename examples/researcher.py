"""A researcher that works in the background: a schedule sends it, and nobody has to watch.

It reads a folder of notes, writes what it found beside them, and is asked about it later. Run it by
`python examples/researcher.py`; examples/researcher/README.md tells what happens.
"""

from offline import offline, run

from everturn.schedules import NewSchedule, scheduled
from everturn_activities.cron import coming

QUESTION = "What did our measurements say about the new pump? Write it to findings.md."


async def research() -> None:
    async with offline("researcher") as (client, workspace):
        schedule = await client.schedules.add(
            NewSchedule(
                name="research",
                prompt=QUESTION,
                cron=("0 7 * * MON-FRI",),
                time_zone="Europe/Berlin",
                workspace=str(workspace),
                agent="researcher",
            )
        )
        print(f"{scheduled(schedule)} {coming(schedule)}")

        begun = await client.schedules.run("research", "the-first")
        assert begun.session is not None
        assert begun.message is not None
        print(f"For once it runs now, in session {begun.session}.")
        result = await client.wait(begun.session, begun.message)
        print(f"{result.outcome} in {result.steps} steps: {result.text}")
        print(f"\nfindings.md:\n{(workspace / 'findings.md').read_text()}")

        # Its session goes on like any other.
        asked = await client.send(begun.session, "Which of these is the least certain?")
        answer = await client.wait(begun.session, asked.id, asked.cursor)
        print(f"Asked again: {answer.text}")
        again = (await client.schedules.get("research")).runs[0]
        print(f"The schedule remembers: {again.state}, {again.outcome}, ${again.cost_usd:.6f}")


if __name__ == "__main__":
    run(research)
