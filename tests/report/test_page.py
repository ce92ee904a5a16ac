"""The page in a real browser."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import pytest
from playwright.sync_api import Browser, Locator, Page

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.report.page import TEMPLATES, content_security_policy
from g2d.report.provenance import without_folders
from g2d.report.styles import series_styles
from g2d.report.summary import loss_caveats, panels, rounding_caveats
from g2d.tables.results import read_by_name
from tests.report.browser import PHONE, chromium, draw_all, open_sections, opened, require_accessible
from tests.report.conftest import texts, write_tables
from tests.report.rows import HOSTILE


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser, page: Path) -> Iterator[Page]:
    with opened(browser, page) as (tab, complaints):
        yield tab
        assert not complaints, complaints


def column(tab: Page, table: str, index: int) -> list[str]:
    return tab.locator(f"#rows-{table} tbody tr:visible td:nth-child({index})").all_inner_texts()


def header_of(tab: Page, name: str) -> tuple[int, Locator]:
    """Return the number of a column of Table 1, and its header."""
    number = tab.locator("#rows-main th").all_inner_texts().index(name) + 1
    return number, tab.locator(f"#rows-main th:nth-child({number})")


def test_the_first_page_answers_the_question(tab: Page) -> None:
    assert tab.locator("h1").inner_text() == "How much online RL is enough?"
    assert (
        tab.locator(".headline:visible")
        .inner_text()
        .startswith("Whether K=0 was enough is open on easy (greedy answers, margin 2 points): K=0 50")
    )
    assert tab.locator(".sentences:visible p").count() == 4
    assert "accuracy is highest after K=20" in tab.locator(".sentences:visible").inner_text()
    assert tab.locator(".demonstration:visible").inner_text() == "Made of frames."
    open_sections(tab)
    assert draw_all(tab) == 4  # accuracy, harvest, calibration, cost
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        require_accessible(tab)


def test_the_figure_switches_between_benchmarks_and_axes(tab: Page) -> None:
    figure = tab.locator("#answer figure.chart:visible")
    assert figure.get_attribute("data-spec") == "tiny/easy/steps"
    tab.get_by_role("button", name="against device time").click()
    tab.get_by_role("button", name="hard").click()
    assert figure.get_attribute("data-spec") == "tiny/hard/device_hours"
    assert "On hard (greedy answers)," in tab.locator(".sentences:visible").inner_text()
    assert " on hard (greedy answers, margin 2 points): " in tab.locator(".headline:visible").inner_text()
    assert tab.locator(".reading:visible").inner_text().startswith("Device time as measured here")
    draw_all(tab)
    assert "device-hours per seed" in figure.locator("svg.marks").inner_html()


def test_every_switch_is_reached_and_pressed_by_key(tab: Page) -> None:
    pressed = set()
    focused = "document.activeElement.closest('.switch') && document.activeElement.dataset.value"
    while len(pressed) < tab.locator(".switch button").count():
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.closest('footer, #provenance') !== null"):
            break
        if value := tab.evaluate(focused):
            tab.keyboard.press("Enter")
            assert tab.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
            pressed.add(value)
    assert pressed >= {"easy", "hard", "steps", "device_hours"}
    assert tab.locator("#answer figure.chart:visible").get_attribute("data-spec") == "tiny/hard/device_hours"


def test_the_first_screen_has_the_headline_the_whole_chart_and_what_its_names_mean(tab: Page) -> None:
    tab.set_viewport_size({"width": 1280, "height": 800})
    tab.locator("#answer figure.chart:visible svg.marks").wait_for()
    parts = [".headline:visible", "#answer figure.chart:visible", ".legend:visible", ".sentences:visible"]
    boxes = [tab.locator(part).bounding_box() for part in parts]
    for above, below in itertools.pairwise(boxes):
        assert above["y"] + above["height"] <= below["y"]
    assert boxes[2]["y"] + boxes[2]["height"] <= 800
    assert tab.locator(".legend:visible dt").all_inner_texts() == ["M0", "G2D", "DPO", "GRPO alone", "G"]


def test_tables_sort_by_click_and_by_key(tab: Page) -> None:
    number, header = header_of(tab, "accuracy")
    button = header.get_by_role("button")
    for press, order in ((button.click, "ascending"), (lambda: button.press("Enter"), "descending")):
        press()
        assert header.get_attribute("aria-sort") == order
        shown = [float(re.match(r"[\d.]+", text).group()) for text in column(tab, "main", number)]
        assert shown == sorted(shown, reverse=order == "descending")
        assert len(shown) == 14
    number, header = header_of(tab, "std over seeds")
    for _ in range(2):  # missing values stay last: M0 has no seeds
        header.get_by_role("button").click()
        values = column(tab, "main", number)
        assert values[-2:] == ["–"] * 2
        assert "–" not in values[:-2]


def test_tables_filter_by_every_word(tab: Page) -> None:
    block = tab.locator("#table-main")
    assert block.locator("output").inner_text() == "14 rows"
    block.get_by_role("searchbox").fill("GRPO hard")
    assert block.locator("output").inner_text() == "2 of 14 rows"
    assert {text.partition(" ")[0] for text in column(tab, "main", 1)} == {"GRPO"}


def test_a_long_table_shows_its_first_rows_until_it_is_unfolded_or_filtered(tab: Page) -> None:
    assert tab.locator("#table-main").is_visible()
    assert tab.locator("#table-cost").is_hidden()
    tab.locator('nav a[href="#cost"]').click()  # opens its section
    block = tab.locator("#table-cost")
    block.wait_for(state="visible")
    rows, unfold = block.locator("tbody tr:visible"), block.locator(".unfold")
    n = block.locator("tbody tr").count()
    assert n > 15
    assert rows.count() == 12
    assert unfold.inner_text() == f"All {n} rows"
    unfold.click()
    assert rows.count() == n
    unfold.click()
    assert rows.count() == 12
    block.get_by_role("searchbox").fill("calibrate")
    assert rows.count() == n / 2
    assert unfold.is_hidden()
    assert tab.locator("#table-main .unfold").count() == 0  # so few rows are all shown


def test_a_print_has_at_most_ten_pages_with_every_benchmark_and_the_open_sections(tab: Page) -> None:
    tab.locator('nav a[href="#cost"]').click()
    assert len(re.findall(rb"/Type */Page\b", tab.pdf(prefer_css_page_size=True))) <= 10
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("#table-cost tbody tr:visible").count() == 12
    assert tab.locator("details:not([open]):visible, #answers:visible, #pairs:visible").count() == 0
    assert tab.locator("[data-benchmark][hidden]").count() == 0
    assert tab.locator("nav:visible, button.unfold:visible, .table-tools:visible").count() == 0
    for table in tab.locator(".scroll").all():
        assert table.evaluate("element => element.scrollHeight <= element.clientHeight + 1")
    for figure in tab.locator("figure.chart:visible").all():
        figure.locator("svg.marks").wait_for()
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("[data-benchmark][hidden]").count() > 0


def test_the_answer_browser_counts_and_shows_where_two_policies_differ(tab: Page) -> None:
    cells, question = tab.locator("#answer-browser .cells button"), tab.locator("#answer-question option")
    n = len(list(texts()))
    even, third, both = ((n + step - 1) // step for step in (2, 3, 6))
    tab.locator("#answer-first").select_option(label="DPO (K=0)")
    tab.locator("#answer-second").select_option(label="G2D (K=10)")
    counted = [int(text.split()[0]) for text in cells.all_inner_texts()]
    assert counted == [even - both, third - both, both, n - even - third + both]
    cells.nth(1).click()
    every_verdict = question.count()
    assert 0 < every_verdict <= counted[1]
    verdict = tab.locator("#answer-verdict")
    assert verdict.locator("option").all_inner_texts() == ["any", "correct", "incorrect", "truncated"]
    shown = {}
    for name in ("truncated", "incorrect"):
        verdict.select_option(label=name)
        shown[name] = question.count()
        badges = tab.locator("#answer-stage .badge").all_inner_texts()
        assert [badge.split()[1] for badge in badges] == [name, "correct"]
    assert min(shown.values()) > 0
    assert sum(shown.values()) == every_verdict
    assert "g2d at K=10 on easy" in tab.locator("#answer-stage .card").nth(1).inner_text()
    tab.locator("#answer-second").select_option(label="DPO (K=0)")  # a policy never differs from itself
    assert verdict.input_value() == ""
    assert [int(text.split()[0]) for text in cells.all_inner_texts()] == [0, 0, even, n - even]
    assert tab.locator("#answer-stage .card").count() == 0
    tab.locator("#answer-series").select_option(label="tiny, hard")
    cells.nth(2).click()
    assert "on hard" in tab.locator("#answer-stage .card").nth(0).inner_text()


def select_problem(tab: Page, part: str) -> None:
    """Select the first problem with this part in its label."""
    labels = tab.locator("#pair-problem option").all_inner_texts()
    tab.locator("#pair-problem").select_option(index=next(i for i, label in enumerate(labels) if part in label))


def test_the_pair_browser_steps_through_k(tab: Page) -> None:
    step = tab.locator("#pair-stage .step:visible")
    steps = tab.locator("#pair-stage .ks button")
    assert [text.split()[0] for text in steps.all_inner_texts()] == ["K=0", "K=10", "K=20"]
    assert steps.nth(0).get_attribute("aria-pressed") == "true"
    steps.nth(1).click()
    assert "K=10, attempt" in step.locator(".card.chosen").inner_text()
    assert "K=10, attempt" in step.locator(".card.rejected").inner_text()
    tab.locator("#pair-browser").focus()
    tab.keyboard.press("ArrowRight")
    assert "K=20, attempt" in step.inner_text()
    tab.keyboard.press("ArrowRight")  # there is no further K
    assert steps.nth(2).get_attribute("aria-pressed") == "true"
    tab.keyboard.press("ArrowLeft")
    assert "K=10, attempt" in step.inner_text()
    before = tab.locator("#pair-problem").input_value()
    tab.locator("#pair-next").click()
    assert tab.locator("#pair-problem").input_value() != before
    assert "K=10, attempt" in step.inner_text()  # the next problem at the same K
    tab.locator("#pair-series").select_option(label="tiny, seed 1, G=2")
    assert steps.count() == 3


def test_pairs_show_formulas_and_why_a_problem_has_none(tab: Page) -> None:
    select_problem(tab, "1 of 3 K")
    unpaired = tab.locator("#pair-stage .step", has_text="No pair:").first
    assert re.search(r"No pair: (all|none) of 4 rollouts right", unpaired.text_content())
    assert unpaired.locator(".card").count() == 1
    select_problem(tab, "p30")
    assert tab.locator("#pair-stage .card:visible mfrac").count() >= 1
    box = tab.locator("#pair-stage .card:visible menclose").first
    assert box.evaluate("box => getComputedStyle(box).borderTopStyle") == "solid"


def hostile(tab: Page, select: str) -> list[int]:
    """Return the places in a list of the problems with hostile texts and of one with a formula."""
    numbers = [int(re.search(r"p(\d+)", label)[1]) for label in tab.locator(f"{select} option").all_inner_texts()]
    return [i for i, number in enumerate(numbers) if number < len(HOSTILE) or number == 30]


def test_what_a_model_wrote_stays_inert(tab: Page) -> None:
    """Hostile texts cause no dialog, request, element, handler or link at any K."""
    open_sections(tab)
    elements = ":is(script, img, iframe, svg, style, a, i, .text b, [onclick], [onload], [onerror], [href])"
    assert tab.locator("#pair-problem option").count() == 40
    problems = hostile(tab, "#pair-problem")
    assert len(problems) == 10
    for index in problems:
        tab.locator("#pair-problem").select_option(index=index)
        for button in tab.locator("#pair-stage .ks button").all():
            button.click()
        assert tab.locator(f":is(#pair-stage, #table-cost tbody) {elements}").count() == 0
    for cell in tab.locator("#answer-browser .cells button").all():
        cell.click()
        for index in hostile(tab, "#answer-question"):
            tab.locator("#answer-question").select_option(index=index)
            assert tab.locator(f"#answer-stage {elements}").count() == 0
    tab.locator("#table-cost .unfold").click()
    stage = tab.locator("#pair-stage").inner_text() + tab.locator("#table-cost").inner_text()
    assert "<script>alert(1)</script>" in stage
    assert "{{7*7}}" in stage
    assert "U+202E" in stage
    assert "\u202e" not in stage


def test_markup_that_slipped_through_could_not_act(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Without the escaping, the content security policy still stops scripts, handlers and images."""
    broken = tmp_path / "index.html"
    attack = "<script>alert(1)</script><img src=https://example.org/x onerror=alert(2)><svg onload=alert(3)></svg>"
    broken.write_text(page.read_text(encoding="utf-8").replace("<h2>Provenance</h2>", attack), encoding="utf-8")
    with opened(browser, broken) as (tab, complaints):
        assert tab.locator(".sentences:visible p").count() == 4
        tab.wait_for_function("document.querySelector('#pair-stage .ks')")  # the page's scripts ran
        assert not complaints.dialogs
        assert complaints.requests == complaints.blocked
        assert any("Content Security Policy" in message for message in complaints.console)


# The texts that a reader sees in a chart; the outline of a text is at the same place.
TEXTS = """svg => [...svg.querySelectorAll("text")]
  .filter(text => text.textContent && text.getAttribute("opacity") !== "0")
  .map(text => [text.textContent, text.getBoundingClientRect()])
  .map(([text, box]) => [text, box.left, box.top, box.right, box.bottom])"""


def colliding(texts: list[tuple[str, float, float, float, float]]) -> list[tuple[str, str]]:
    apart = 2.0  # pixels that boxes of neighbours may share
    return [
        (a[0], b[0])
        for a, b in itertools.combinations(dict.fromkeys(map(tuple, texts)), 2)
        if min(a[3], b[3]) - max(a[1], b[1]) > apart and min(a[4], b[4]) - max(a[2], b[2]) > apart and a[0] != b[0]
    ]


def test_the_page_fits_a_phone(browser: Browser, page: Path) -> None:
    with opened(browser, page, PHONE) as (tab, complaints):
        for axis in ("against device time", "against K"):
            tab.get_by_role("button", name=axis).click()
            draw_all(tab)
            for chart in tab.locator("svg.marks:visible").all():
                texts = chart.evaluate(TEXTS)
                assert not colliding(texts)
                assert max(text[3] for text in texts) <= PHONE[0]
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE[0]  # tables scroll inside their frame
        assert tab.locator("nav a").first.is_hidden()  # the menu is closed
        tab.locator("nav summary").click()
        assert tab.locator("nav a").first.is_visible()
        assert not complaints, complaints


def test_the_page_is_one_file_that_admits_its_own_scripts(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "The primary comparison is of this page." in html
    assert 'href="../plan.json"' in html
    outside_scripts = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert "<link" not in outside_scripts
    assert set(re.findall(r'<(?:script|img|iframe)[^>]+src="([^:]+:)', outside_scripts)) == {"data:"}
    assert len(html) < 6_000_000
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1).replace("&#39;", "'")
    assert policy == content_security_policy(re.findall(r"<script>(.*?)</script>", html, re.S))
    assert re.match(r"default-src 'none'; script-src( 'sha256-[^']+')+; ", policy)


# ------------------------------------------------------------------------------------------------------------- caveats


@pytest.fixture
def frames(tmp_path: Path, config: Config) -> dict[str, pd.DataFrame]:
    return {name: read_by_name(file) for name, file in write_tables(tmp_path, config).items()}


def caveats(
    frames: dict[str, pd.DataFrame], config: Config, part: str, **more: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return the caveats with this part by benchmark."""
    shown = panels(frames, Grid(config), {}, series_styles(Grid(config)), more)
    return {panel.answer.benchmark: [line for line in panel.answer.caveats if part in line] for panel in shown}


def test_an_ablation_is_a_row_of_table_1_and_in_no_chart(frames: dict[str, pd.DataFrame], config: Config) -> None:
    assert "ipo" in set(frames["main"]["policy"])
    specs: dict[str, Any] = {}
    panels(frames, Grid(config), specs, series_styles(Grid(config)), {})
    assert "G2D" in json.dumps(specs, allow_nan=False)
    assert "ipo" not in json.dumps(specs)


def test_policies_that_answer_nothing_right_are_named_where_m0_does(
    config: Config, frames: dict[str, pd.DataFrame]
) -> None:
    assert caveats(frames, config, "Accuracy 0") == {"easy": [], "hard": []}
    main = frames["main"]
    main.loc[(main["policy"] == "g2d") & (main["K"] == 20) & (main["benchmark"] == "hard"), "accuracy"] = 0.0
    shown = caveats(frames, config, "Accuracy 0")
    [caveat] = shown["hard"]
    assert "G2D (K=20)" in caveat and shown["easy"] == []
    main.loc[(main["policy"] == "base") & (main["benchmark"] == "hard"), "accuracy"] = 0.0
    assert caveats(frames, config, "Accuracy 0")["hard"] == []


def test_caveats_of_a_model_stand_beside_each_of_its_answers(config: Config, frames: dict[str, pd.DataFrame]) -> None:
    shown = caveats(frames, config, ".", tiny=("Lost.",), other=("Found.",))
    assert list(shown.values()) == [["Lost."], ["Lost."]]


LOST = {"tiny/seed0/grpo/g2/k2": 0.45, "tiny/seed1/grpo/g2/k2": 0.8, "tiny/seed0/dpo/g2/k2": 0.99, "other/x": 0.1}


@pytest.mark.parametrize(
    ("engine", "is_lost"),
    [
        ({"name": "vllm"}, True),
        ({"name": "vllm", "adapters": "lora"}, True),
        ({"name": "vllm", "adapters": "merge"}, False),
        ({}, True),
        ({"adapters": "merge"}, True),
    ],
)
def test_the_page_says_which_adapters_bfloat16_swallows(config: Config, engine: dict[str, str], is_lost: bool) -> None:
    tiny = config.model_copy(update={"engine": config.engine.model_copy(update=engine)})
    caveats = rounding_caveats(LOST, "tiny", tiny)
    assert len(caveats) == is_lost
    for sentence in caveats:
        assert "engine.adapters: merge, with vLLM, keeps it." in sentence
        assert "45\u00a0% for seed0/grpo/g2/k2" in sentence and "2 policies" in sentence
    assert rounding_caveats({"tiny/seed0/dpo/g2/k2": 0.99}, "tiny", tiny) == ()


def test_losses_that_were_not_finite_are_a_caveat() -> None:
    lost = {"tiny/seed0/dpo/g2/k2": 40, "other/seed0/dpo/g2/k2": 1}
    [caveat] = loss_caveats(lost, "tiny")
    assert "seed0/dpo/g2/k2 (40 steps)" in caveat and "other" not in caveat
    many = {f"tiny/seed{n}/dpo/g0/k0": 1 for n in range(9)}
    assert loss_caveats(many, "tiny")[0].count("steps)") == 5
    assert loss_caveats({}, "tiny") == ()


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"warmup": {"steps": [0, 10], "prompts_per_step": 8}}, "<dd>8 prompts, G completions of each</dd>"),
        (
            {"warmup": {"steps": [0, 10], "prompts_per_step": None, "gradient_accumulation_steps": 4}},
            "<dd>16 completions for any G, so fewer prompts if G is larger</dd>",
        ),
        ({"evaluation": {"sampled": {"n": 4}}}, "on 4 samples per problem"),
        ({"evaluation": {"sampled": {"n": 4, "beside_greedy": True}}}, "is evaluated greedily"),
    ],
)
def test_the_experiment_is_described_with_its_settings(config: Config, keys: dict[str, Any], expected: str) -> None:
    changed = Config.model_validate(config.model_dump(exclude_unset=True) | keys)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined)
    assert expected in environment.get_template("experiment.html").render(config=changed, trained_on=None)


def test_folders_of_this_machine_are_not_published() -> None:
    settings = {"models": {"mine": {"path": "/home/me/models/mine"}}, "pool": {"path": "data/pool.jsonl"}, "seeds": [1]}
    settings["rewards"] = {"own": {"reward": "python", "file": "/home/me/rewards.py"}}
    assert without_folders(settings) == {
        "models": {"mine": {"path": "path/to/mine"}},
        "rewards": {"own": {"reward": "python", "file": "path/to/rewards.py"}},
        "pool": {"path": "data/pool.jsonl"},
        "seeds": [1],
    }
