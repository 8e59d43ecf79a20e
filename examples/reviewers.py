"""A swarm that reviews every file of a repository, and an editor that makes one report of it.

Run it by `python examples/reviewers.py`; examples/reviewers/README.md tells what happens.
"""

from offline import offline, run

from everturn.swarms import SwarmSpec


async def review() -> None:
    async with offline("reviewers") as (client, workspace):
        files = sorted(str(path.relative_to(workspace)) for path in workspace.glob("shop/**/*.py"))
        spec = SwarmSpec(
            agent="reviewer",
            prompt="Review {file}.",
            width=3,
            reduce="editor",
            reduce_prompt="Put these reviews together, the worst first.\n\n{results}",
        )
        # The same id again would find this swarm and begin no other.
        swarm = await client.swarms.create(
            spec,
            [{"id": file, "file": file} for file in files],
            id="review",
            workspace=str(workspace),
        )
        print(f"{swarm.items} files are reviewed, {spec.width} at once.")
        done = await client.swarms.done("review")
        for item in (await client.swarms.results("review", order="item")).items:
            print(f"{item.id}: {item.outcome} in {item.steps} steps: {item.text}")
        print(f"\nAll together:\n{done.text}")
        print(f"\n{done.counts.done} of {done.items} files, ${done.cost_usd:.6f}")

        # Each review is a session, which can be asked what it meant.
        worst = (await client.swarms.items("review")).items[0].session
        assert worst is not None
        asked = await client.send(worst, "How would you mend it?")
        answer = await client.wait(worst, asked.id, asked.cursor)
        print(f"Session {worst}, asked again: {answer.text}")


if __name__ == "__main__":
    run(review)
