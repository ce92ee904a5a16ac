"""The page in a real browser."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import pytest
from playwright.sync_api import Browser, Locator, Page

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.report.page import TEMPLATES, content_security_policy
from g2d.report.styles import series_styles
from g2d.report.summary import panels
from g2d.tables.results import read_by_name
from tests.report.browser import PHONE, chromium, draw_all, open_sections, opened, require_accessible
from tests.report.conftest import MODEL_TEXTS, write_tables
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
    headline = tab.locator(".headline:visible").inner_text()
    assert headline.startswith("K=0 was not enough on easy (greedy answers, margin 2 points): 50")
    assert tab.locator(".sentences:visible p").count() == 4
    assert "the most accurate warmed-up policy, K=20" in tab.locator(".sentences:visible").inner_text()


def test_a_demonstration_is_called_one(tab: Page) -> None:
    assert tab.locator(".demonstration:visible").inner_text() == "Made of frames."


def test_all_charts_are_drawn_and_accessible(tab: Page) -> None:
    open_sections(tab)
    assert draw_all(tab) == 6  # accuracy, comparisons on two benchmarks, harvest, calibration, cost
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        require_accessible(tab)


@pytest.fixture
def switched(tab: Page) -> Page:
    """The page after a click on the other axis and the other benchmark."""
    assert tab.locator("#answer figure.chart:visible").get_attribute("data-spec") == "tiny/easy/steps"
    tab.get_by_role("button", name="against device time").click()
    tab.get_by_role("button", name="hard").click()
    return tab


def test_the_figure_switches_between_benchmarks_and_axes(switched: Page) -> None:
    figure = switched.locator("#answer figure.chart:visible")
    assert figure.get_attribute("data-spec") == "tiny/hard/device_hours"
    draw_all(switched)
    assert "device-hours per seed" in figure.locator("svg.marks").inner_html()


def test_the_sentences_switch_with_the_benchmark(switched: Page) -> None:
    assert "On hard (greedy answers)," in switched.locator(".sentences:visible").inner_text()
    assert " on hard (greedy answers, margin 2 points): " in switched.locator(".headline:visible").inner_text()


def test_the_explanation_switches_with_the_axis(switched: Page) -> None:
    assert switched.locator(".reading:visible").inner_text().startswith("Device time as measured here")


def test_every_switch_is_reached_and_pressed_by_key(tab: Page) -> None:
    pressed = set()
    focused = "document.activeElement.closest('.switch') && document.activeElement.dataset.value"
    while len(pressed) < tab.locator(".switch button").count():
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.closest('footer, #provenance') !== null"):
            break
        value = tab.evaluate(focused)
        if value:
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


def accuracies(tab: Page) -> list[float]:
    number, _ = header_of(tab, "accuracy")
    return [float(text.split()[0]) for text in column(tab, "main", number)]


def test_a_click_sorts_a_table_and_a_key_reverses_it(tab: Page) -> None:
    _, header = header_of(tab, "accuracy")
    button = header.get_by_role("button")
    button.click()
    assert header.get_attribute("aria-sort") == "ascending"
    shown = accuracies(tab)
    assert len(shown) == 14
    assert shown == sorted(shown)
    button.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert accuracies(tab) == shown[::-1]


def test_missing_values_are_last_in_both_orders(tab: Page) -> None:
    """M0 has no seeds, so no spread."""
    number, header = header_of(tab, "std over seeds")
    for _ in range(2):
        header.get_by_role("button").click()
        values = column(tab, "main", number)
        assert values[-2:] == ["–", "–"]
        assert "–" not in values[:-2]


def test_tables_filter_by_every_word(tab: Page) -> None:
    block = tab.locator("#table-main")
    assert block.locator("output").inner_text() == "14 rows"
    block.get_by_role("searchbox").fill("GRPO hard")
    assert block.locator("output").inner_text() == "2 of 14 rows"
    assert {text.partition(" ")[0] for text in column(tab, "main", 1)} == {"GRPO"}


@pytest.fixture
def long_table(tab: Page) -> Locator:
    """The table of selections, after a click on its link, which opens its section."""
    assert tab.locator("#table-selection").is_hidden()
    tab.locator('nav a[href="#online-training"]').click()
    table = tab.locator("#table-selection")
    table.wait_for(state="visible")
    return table


def test_a_long_table_shows_its_first_rows_until_it_is_unfolded(long_table: Locator) -> None:
    rows = long_table.locator("tbody tr:visible")
    unfold = long_table.locator(".unfold")
    n = long_table.locator("tbody tr").count()
    assert n > 15
    assert rows.count() == 12
    assert unfold.inner_text() == f"All {n} rows"
    unfold.click()
    assert rows.count() == n
    unfold.click()
    assert rows.count() == 12


def test_a_long_table_shows_all_rows_that_match_a_filter(long_table: Locator) -> None:
    long_table.get_by_role("searchbox").fill("second")
    assert long_table.locator("tbody tr:visible").count() == long_table.locator("tbody tr").count() // 2
    assert long_table.locator(".unfold").is_hidden()


def test_a_table_that_nobody_reads_is_a_link(tab: Page) -> None:
    open_sections(tab)
    assert tab.locator("#table-cost figure.chart").count() == 1
    assert tab.locator("#table-cost .table-tools a").get_attribute("href") == "../tables/cost.csv"
    assert tab.locator("#table-cost table").count() == 0


def test_a_table_without_rows_is_not_on_the_page(tab: Page) -> None:
    assert tab.locator("#table-published, #published-results").count() == 0


def test_a_short_table_cannot_be_folded(tab: Page) -> None:
    assert tab.locator("#table-main").is_visible()
    assert tab.locator("#table-main .unfold").count() == 0


@pytest.fixture
def printed(tab: Page) -> Iterator[Page]:
    """The page with one open section as it is printed."""
    tab.locator('nav a[href="#online-training"]').click()
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    yield tab
    tab.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_print_has_at_most_ten_pages(tab: Page) -> None:
    tab.locator('nav a[href="#online-training"]').click()
    assert len(re.findall(rb"/Type */Page\b", tab.pdf(prefer_css_page_size=True))) <= 10


def test_a_print_has_open_sections_and_no_browsers(printed: Page) -> None:
    assert printed.locator("#table-selection tbody tr:visible").count() == 12
    assert printed.locator("details:not([open]):visible, #answers:visible, #pairs:visible").count() == 0


def test_a_print_has_nothing_to_click(printed: Page) -> None:
    assert printed.locator("nav:visible, button.unfold:visible, .table-tools:visible").count() == 0


def test_a_print_has_whole_tables_and_drawn_charts(printed: Page) -> None:
    for table in printed.locator(".scroll").all():
        assert table.evaluate("element => element.scrollHeight <= element.clientHeight + 1")
    for figure in printed.locator("figure.chart:visible").all():
        figure.locator("svg.marks").wait_for()


def test_a_print_has_every_benchmark_and_the_screen_the_chosen_one(tab: Page) -> None:
    hidden = tab.locator("[data-benchmark][hidden]")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert hidden.count() == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert hidden.count() > 0


@dataclass
class AnswerBrowser:
    """The browser of answers, with DPO (K=0) and G2D (K=10) compared on easy.

    DPO has every second question right, G2D every third (`answer_frame`).
    """

    tab: Page

    def __post_init__(self) -> None:
        self.cells = self.tab.locator("#answer-browser .cells button")
        self.questions = self.tab.locator("#answer-question option")
        self.verdicts = self.tab.locator("#answer-verdict")
        self.cards = self.tab.locator("#answer-stage .card")
        self.tab.locator("#answer-first").select_option(label="DPO (K=0)")
        self.compare_with("G2D (K=10)")

    def compare_with(self, policy: str) -> None:
        self.tab.locator("#answer-second").select_option(label=policy)

    def counts(self) -> list[int]:
        """Numbers of questions: only the first is right, only the second, both, none."""
        return [int(text.split()[0]) for text in self.cells.all_inner_texts()]


@pytest.fixture
def answers(tab: Page) -> AnswerBrowser:
    return AnswerBrowser(tab)


def right_of_every(step: int) -> int:
    """The number of questions 0, step, 2 step, ..."""
    return len(MODEL_TEXTS[::step])


def test_the_answer_browser_counts_where_two_policies_differ(answers: AnswerBrowser) -> None:
    both = right_of_every(6)
    only_first = right_of_every(2) - both
    only_second = right_of_every(3) - both
    assert answers.counts() == [only_first, only_second, both, len(MODEL_TEXTS) - only_first - only_second - both]


def test_a_policy_does_not_differ_from_itself(answers: AnswerBrowser) -> None:
    answers.cells.nth(1).click()
    answers.verdicts.select_option(label="truncated")
    answers.compare_with("DPO (K=0)")
    right = right_of_every(2)
    assert answers.counts() == [0, 0, right, len(MODEL_TEXTS) - right]
    assert answers.cards.count() == 0
    assert answers.verdicts.input_value() == ""


def test_questions_can_be_chosen_by_the_verdict_of_the_first_policy(answers: AnswerBrowser) -> None:
    answers.cells.nth(1).click()  # only the second is right
    n = answers.questions.count()
    assert 0 < n <= answers.counts()[1]
    assert answers.verdicts.locator("option").all_inner_texts() == ["any", "correct", "incorrect", "truncated"]
    shown = []
    for verdict in ("truncated", "incorrect"):
        answers.verdicts.select_option(label=verdict)
        shown.append(answers.questions.count())
        first, second = answers.tab.locator("#answer-stage .badge").all_inner_texts()
        assert first.split()[1] == verdict
        assert second.split()[1] == "correct"
    assert min(shown) > 0
    assert sum(shown) == n


def test_a_card_has_the_answer_of_its_policy_on_the_chosen_benchmark(answers: AnswerBrowser) -> None:
    answers.cells.nth(1).click()
    assert "g2d at K=10 on easy" in answers.cards.nth(1).inner_text()
    answers.tab.locator("#answer-series").select_option(label="tiny, hard")
    answers.cells.nth(2).click()
    assert "on hard" in answers.cards.nth(0).inner_text()


def select_problem(tab: Page, part: str) -> None:
    """Select the first problem with this part in its label."""
    option = tab.locator("#pair-problem option", has_text=part).first
    tab.locator("#pair-problem").select_option(index=option.evaluate("option => option.index"))


@dataclass
class PairBrowser:
    """The browser of pairs: buttons of K, and the shown step."""

    tab: Page

    def __post_init__(self) -> None:
        self.ks = self.tab.locator("#pair-stage .ks button")
        self.step = self.tab.locator("#pair-stage .step:visible")

    def press(self, key: str) -> None:
        self.tab.locator("#pair-browser").focus()
        self.tab.keyboard.press(key)


@pytest.fixture
def pairs(tab: Page) -> PairBrowser:
    return PairBrowser(tab)


def test_the_pair_browser_begins_at_k_0(pairs: PairBrowser) -> None:
    first, second, third = pairs.ks.all_inner_texts()
    assert first.startswith("K=0")
    assert second.startswith("K=10")
    assert third.startswith("K=20")
    assert pairs.ks.nth(0).get_attribute("aria-pressed") == "true"


def test_a_click_shows_the_pair_of_a_k(pairs: PairBrowser) -> None:
    pairs.ks.nth(1).click()
    assert "K=10, attempt" in pairs.step.locator(".card.chosen").inner_text()
    assert "K=10, attempt" in pairs.step.locator(".card.rejected").inner_text()


def test_arrow_keys_step_through_k(pairs: PairBrowser) -> None:
    pairs.press("ArrowRight")
    assert "K=10, attempt" in pairs.step.inner_text()
    pairs.press("ArrowRight")
    assert "K=20, attempt" in pairs.step.inner_text()
    pairs.press("ArrowRight")  # there is no further K
    assert pairs.ks.nth(2).get_attribute("aria-pressed") == "true"
    pairs.press("ArrowLeft")
    assert "K=10, attempt" in pairs.step.inner_text()


def test_the_next_problem_is_shown_at_the_same_k(pairs: PairBrowser) -> None:
    pairs.ks.nth(1).click()
    before = pairs.tab.locator("#pair-problem").input_value()
    pairs.tab.locator("#pair-next").click()
    assert pairs.tab.locator("#pair-problem").input_value() != before
    assert "K=10, attempt" in pairs.step.inner_text()


def test_the_pairs_of_another_seed_are_shown(pairs: PairBrowser) -> None:
    pairs.tab.locator("#pair-series").select_option(label="tiny, seed 1, G=2")
    assert pairs.ks.count() == 3


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
    places = []
    for i, label in enumerate(tab.locator(f"{select} option").all_inner_texts()):
        number = int(re.search(r"p(\d+)", label)[1])
        if number < len(HOSTILE) or number == 30:
            places.append(i)
    return places


ACTIVE = ":is(script, img, iframe, svg, style, a, i, .text b, [onclick], [onload], [onerror], [href])"


def test_what_a_model_wrote_stays_inert_in_the_pair_browser(tab: Page) -> None:
    """Hostile texts cause no dialog, request, element, handler or link at any K."""
    open_sections(tab)
    assert tab.locator("#pair-problem option").count() == 40
    problems = hostile(tab, "#pair-problem")
    assert len(problems) == 10
    for index in problems:
        tab.locator("#pair-problem").select_option(index=index)
        for button in tab.locator("#pair-stage .ks button").all():
            button.click()
        assert tab.locator(f"#pair-stage {ACTIVE}").count() == 0


def test_what_a_model_wrote_stays_inert_in_the_answer_browser(tab: Page) -> None:
    open_sections(tab)
    for cell in tab.locator("#answer-browser .cells button").all():
        cell.click()
        for index in hostile(tab, "#answer-question"):
            tab.locator("#answer-question").select_option(index=index)
            assert tab.locator(f"#answer-stage {ACTIVE}").count() == 0


def test_what_a_table_has_stays_inert_and_is_shown_as_it_is(tab: Page) -> None:
    open_sections(tab)
    tab.locator("#table-selection .unfold").click()
    assert tab.locator(f"#table-selection tbody {ACTIVE}").count() == 0
    shown = tab.locator("#table-selection").inner_text()
    assert "<script>alert(1)</script>" in shown
    assert "{{7*7}}" in shown


def test_characters_that_reverse_a_text_are_shown_by_their_number(tab: Page) -> None:
    open_sections(tab)
    tab.locator("#table-selection .unfold").click()
    shown = tab.locator("#table-selection").inner_text()
    assert "U+202E" in shown
    assert "\u202e" not in shown


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
    may_share = 2.0  # pixels
    found = []
    for one, other in itertools.combinations(texts, 2):
        width = min(one[3], other[3]) - max(one[1], other[1])
        height = min(one[4], other[4]) - max(one[2], other[2])
        if min(width, height) > may_share and one[0] != other[0]:
            found.append((one[0], other[0]))
    return found


def test_charts_fit_a_phone_without_overlapping_texts(browser: Browser, page: Path) -> None:
    with opened(browser, page, PHONE) as (tab, complaints):
        for axis in ("against device time", "against K"):
            tab.get_by_role("button", name=axis).click()
            draw_all(tab)
            for chart in tab.locator("svg.marks:visible").all():
                texts = chart.evaluate(TEXTS)
                assert not colliding(texts)
                assert max(text[3] for text in texts) <= PHONE[0]
        assert not complaints, complaints


def test_on_a_phone_tables_scroll_inside_their_frame(browser: Browser, page: Path) -> None:
    with opened(browser, page, PHONE) as (tab, complaints):
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        assert not complaints, complaints


def test_on_a_phone_the_menu_opens_by_a_click(browser: Browser, page: Path) -> None:
    with opened(browser, page, PHONE) as (tab, complaints):
        assert tab.locator("nav a").first.is_hidden()
        tab.locator("nav summary").click()
        assert tab.locator("nav a").first.is_visible()
        assert not complaints, complaints


@pytest.fixture(scope="module")
def html(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_page_names_the_dated_plan(html: str) -> None:
    assert "The primary comparison is of this page." in html
    assert 'href="../plan.json"' in html


def test_the_page_is_one_file(html: str) -> None:
    outside_scripts = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert "<link" not in outside_scripts
    assert set(re.findall(r'<(?:script|img|iframe)[^>]+src="([^":]+:)', outside_scripts)) == {"data:"}
    assert len(html) < 6_000_000


def test_the_page_admits_only_its_own_scripts(html: str) -> None:
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
    found = {}
    for panel in panels(frames, Grid(config), {}, series_styles(Grid(config)), more):
        found[panel.answer.benchmark] = [line for line in panel.answer.caveats if part in line]
    return found


def test_an_ablation_is_a_row_of_table_1_and_in_no_chart(frames: dict[str, pd.DataFrame], config: Config) -> None:
    assert "ipo" in set(frames["main"]["policy"])
    specs: dict[str, Any] = {}
    panels(frames, Grid(config), specs, series_styles(Grid(config)), {})
    assert "G2D" in json.dumps(specs, allow_nan=False)
    assert "ipo" not in json.dumps(specs)


def test_a_policy_that_answers_nothing_right_is_a_caveat(config: Config, frames: dict[str, pd.DataFrame]) -> None:
    assert caveats(frames, config, "Accuracy 0") == {"easy": [], "hard": []}
    last_on_hard = frames["main"].query("policy == 'g2d' and K == 20 and benchmark == 'hard'")
    frames["main"].loc[last_on_hard.index, "accuracy"] = 0.0
    shown = caveats(frames, config, "Accuracy 0")
    [caveat] = shown["hard"]
    assert "G2D (K=20)" in caveat
    assert shown["easy"] == []


def test_caveats_of_a_model_stand_beside_each_of_its_answers(config: Config, frames: dict[str, pd.DataFrame]) -> None:
    shown = caveats(frames, config, ".", tiny=("Lost.",), other=("Found.",))
    assert list(shown.values()) == [["Lost."], ["Lost."]]


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
