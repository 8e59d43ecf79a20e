"""`everturn config show`, and what commands say of variables that are no settings."""

import json


async def test_settings_are_shown_masked_with_where_they_come_from(commands, runtime):
    given = {"EVERTURN_API_KEY": "canary-key", "EVERTURN_DATABASE_URL": "sqlite:////srv/x.db"}
    file = runtime.folder / "home" / "everturn.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text('redis_url = "redis://me:canary-word@cache:6379/0"\n')

    told = await commands("config", "show", "--port", "1", **given)
    as_json = await commands("config", "show", "--json", "--port", "1", **given)

    assert told.code == as_json.code == 0
    assert "canary" not in told.out + told.err + as_json.out + as_json.err
    [line] = [line for line in told.out.splitlines() if line.split()[:1] == ["redis_url"]]
    assert "redis://me:***@cache:6379/0" in line
    assert "everturn.toml line 1" in line
    assert str(file) in told.err
    rows = {row["name"]: row for row in map(json.loads, as_json.out.splitlines())}
    assert rows["redis_url"]["sources"] == [f"{file} line 1"]
    assert (rows["port"]["value"], rows["port"]["sources"]) == (1, ["the flag --port"])
    assert (rows["api_key"]["value"], rows["agent"]["value"]) == ("***", None)


async def test_a_variable_that_is_no_setting_is_told_of_and_the_command_goes_on(commands):
    ran = await commands("sessions", "list", EVERTURN_PROT="1", EVERTURN_TEMPORAL_BINARY="/x")

    assert ran.code == 0
    assert ran.err.splitlines()[0] == (
        "The variable EVERTURN_PROT is no setting (did you mean 'EVERTURN_PORT'?); mend or unset"
        " it."
    )
    assert "TEMPORAL_BINARY" not in ran.err


async def test_the_home_is_taken_for_no_workspace(commands, runtime):
    home = runtime.folder / "home"
    home.mkdir(exist_ok=True)
    (home / "everturn.toml").write_text("# port = 1\n")

    named = await commands("run", "x", "--workspace", str(home))
    commands.folder = home
    nearest = await commands("run", "x")

    assert (named.code, nearest.code) == (2, 2)
    assert "is the home folder" in named.err
    assert "No everturn.toml in" in nearest.err
