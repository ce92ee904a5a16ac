"""`benchmarks/simulations.py`: the tables of docs/simulations.md are what its commands print."""

from __future__ import annotations

import shlex

from benchmarks import simulations

PAGE = simulations.PAGE.read_text(encoding="utf-8")
ACCURACY = "coverage.py accuracy"


def test_a_table_on_the_page_has_the_rows_of_its_command() -> None:
    def one_run(command: str) -> str:
        return simulations.run(f"{command} --runs 1")  # the last --runs counts

    def labels(page: str) -> list[list[str]]:
        [block] = [match for match in simulations.BLOCK.finditer(page) if ACCURACY in match["command"]]
        header, *rows = block["tables"].strip().splitlines()
        return [header.split("|"), *(row.split("|")[:4] for row in rows)]

    assert labels(simulations.regenerate(PAGE, [ACCURACY], one_run)) == labels(PAGE)


def test_each_command_has_tables_and_only_those_that_are_named_run_again() -> None:
    commands = [match["command"] for match in simulations.BLOCK.finditer(PAGE)]
    assert {shlex.split(command)[0] for command in commands} == {"benchmarks/coverage.py", "benchmarks/auto_stop.py"}
    commands_run: list[str] = []

    def run(command: str) -> str:
        commands_run.append(command)
        return "| new |\n|---|\n\n| second |"

    page = simulations.regenerate(PAGE, ["margins", "auto_stop"], run)
    assert commands_run == [command for command in commands if "margins" in command or "auto_stop" in command]
    assert page.count("| new |\n|---|\n\n| second |\n") == len(commands_run) == 2
    assert simulations.regenerate(page, ["margins"], run) == page
