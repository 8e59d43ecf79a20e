"""everturn skills list, check and show, and skills asked for by `run`."""

import json


def write(runtime, name: str, text: str) -> None:
    folder = runtime.workspace / "skills"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text)


async def test_skills_are_listed_with_whose_they_are_and_who_may_ask(commands, runtime):
    write(runtime, "review", "---\ndescription: Reviews.\nuser_invocable: false\n---\nReview.")
    ran = await commands("skills", "list", "--json")
    found = {line["name"]: line for line in map(json.loads, ran.out.splitlines())}
    assert found["review"]["trust"] == "project"
    assert found["review"]["asked_by"] == "the model"
    assert found["code-review"]["trust"] == "builtin"
    shown = await commands("skills", "list")
    assert "Reviews." in shown.out


async def test_who_asks_for_a_skill_and_what_it_lacks_is_told(commands, runtime):
    write(runtime, "daily", "---\nalways: true\n---\nText.")
    hidden = "disable-model-invocation: true\nuser-invocable: false"
    write(runtime, "locked", f"---\n{hidden}\n---\nText.")
    write(runtime, "poor", "---\nrequires_env: NOT_THERE_AT_ALL\n---\nText.")

    ran = await commands("skills", "list", "--json")
    shown = await commands("skills", "list")

    asked_by = {line["name"]: line["asked_by"] for line in map(json.loads, ran.out.splitlines())}
    assert asked_by["daily"] == "always on"
    assert asked_by["locked"] == "nobody"
    assert "poor" not in asked_by
    assert shown.err == ("Skill poor is left out: it needs the variable NOT_THERE_AT_ALL.\n")


async def test_what_is_wrong_with_skills_is_told_a_sentence_a_line(commands, runtime):
    fine = await commands("skills", "check")
    assert (fine.code, fine.out) == (0, "")
    write(runtime, "broken", "+++\nname = 1\n+++\n")
    listed = await commands("skills", "list")
    assert listed.err == "There is 1 problem: see 'everturn skills check'.\n"
    write(runtime, "another", "---\n")
    listed = await commands("skills", "list")
    assert listed.err == "There are 2 problems: see 'everturn skills check'.\n"
    (runtime.workspace / "skills" / "another.md").unlink()
    ran = await commands("skills", "check")
    assert ran.code == 1
    assert ran.out == (
        "The skill skills/broken.md has a wrong 'name': input should be a valid string; mend it.\n"
    )


async def test_a_skills_text_is_shown_and_an_unknown_one_refused(commands, runtime):
    write(runtime, "review", "---\ndescription: Reviews.\n---\nReview: $ARGUMENTS")
    ran = await commands("skills", "show", "review")
    assert ran.out == "Review: $ARGUMENTS\n"
    assert "skills/review.md" in ran.err
    unknown = await commands("skills", "show", "reviw")
    assert unknown.code == 2
    assert unknown.err.startswith("There is no skill 'reviw' (did you mean 'review'?)")


async def test_a_task_may_ask_for_a_skill(commands, runtime):
    write(runtime, "review", "Review $0.")
    await commands("run", "/review main.py", "--session", "s", "--detach")
    await runtime.work("s", "done")
    shown = await commands("sessions", "show", "s")
    assert "/review main.py" in shown.out
    write(runtime, "inner", "---\nuser-invocable: false\n---\nText.")
    refused = await commands("run", "/inner", "--session", "s", "--detach")
    assert refused.code == 2
    assert "not for people to invoke" in refused.err
