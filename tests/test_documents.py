"""README.md and docs/ hold: their code runs as a user runs it, prints what they show, and a command is one line."""

import importlib
import json
from pathlib import Path

import pytest

from tests.documents import broken_links, crowded_lines, python_blocks, run_blocks, shell_block, wrong_outputs
from tests.house import PACKAGES
from tests.user_process import ROOT, run_python

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in DOCUMENTS}
WITH_CODE = [name for name, text in TEXTS.items() if list(python_blocks(text))]


def test_every_document_is_found() -> None:
    expected = {
        "start",
        "how_it_works",
        "glossary",
        "references",
        "changelog",
        "contributing",
        "measured",
        "schedules",
        "by_hand",
    }
    expected |= {"correctness", "integrations", "migrate"}
    assert {"README.md", *(f"docs/{name}.md" for name in expected)} <= set(TEXTS)
    assert {"README.md", "docs/start.md", "docs/how_it_works.md", "docs/schedules.md", "docs/by_hand.md"} <= set(
        WITH_CODE
    )


@pytest.mark.parametrize("name", WITH_CODE)
def test_code_runs_and_prints_what_is_shown(name: str) -> None:
    printed = [(line, output) for line, output in json.loads(run_python("-m", "tests.documents", name))]
    assert wrong_outputs(TEXTS[name], printed) == []


@pytest.mark.parametrize("name", WITH_CODE)
def test_output_is_shown_wherever_there_is_one(name: str) -> None:
    silent = [block.line for block in python_blocks(TEXTS[name]) if "print(" in block.code and block.shown is None]
    assert silent == []


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    assert broken_links(TEXTS[name], (ROOT / name).parent) == []


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "docs/references.md"])
def test_one_sentence_stands_on_one_line(name: str) -> None:
    assert crowded_lines(TEXTS[name]) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_changelog_names_every_public_symbol(package: str) -> None:
    names = [f"`{package}.{name}`" for name in importlib.import_module(package).__all__]
    assert [name for name in names if name not in TEXTS["docs/changelog.md"]] == []


COMMANDS = {
    "installs, and fits a model": "python3 -m venv .venv && ",
    "installs, and passes the tests.": "python3 -m venv .venv && ",
    "passes the tests that rest on its version": "python3.12 -m venv .venv-newest && ",
}


@pytest.mark.parametrize("marker", COMMANDS)
def test_each_command_is_one_line(marker: str) -> None:
    command = shell_block(TEXTS["README.md"], marker)
    assert "\n" not in command
    assert command.startswith(COMMANDS[marker])


SOUND = "# A\n\n```python\nx = 2\nprint(x)\n```\n\n```text\n2\n```\n\nand\n\n```python\nprint(x + 1)\n```\n"


def test_blocks_share_one_namespace() -> None:
    assert run_blocks(SOUND, "sound.md") == [(4, "2\n"), (15, "3\n")]
    assert wrong_outputs(SOUND, run_blocks(SOUND, "sound.md")) == []


def test_a_wrong_output_is_found() -> None:
    wrong = SOUND.replace("```text\n2", "```text\n3")
    assert len(wrong_outputs(wrong, run_blocks(wrong, "wrong.md"))) == 1


def test_a_failing_block_is_found() -> None:
    with pytest.raises(NameError, match="undefined"):
        run_blocks("```python\nundefined\n```\n", "failing.md")


def test_a_failing_process_is_found() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_python("-c", "1 / 0")


def test_a_missing_command_is_found() -> None:
    with pytest.raises(ValueError, match="no sh block below 'marker'"):
        shell_block("marker\n", "marker")


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "here.md").touch()
    text = "[a](here.md#part), [b](gone.md), [c](https://example.org)"
    assert broken_links(text, tmp_path) == ["gone.md"]


def test_two_sentences_on_a_line_are_found() -> None:
    assert crowded_lines("One.\n**Label.** Two.\nThree. Four.\n```text\nA. B.\n```\n") == ["line 3: Three. Four."]
