"""Configured text in Markdown is text, for a renderer that lets HTML through."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from g2d.analysis.informativeness import Informativeness
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest
from g2d.markdown import code, fenced, literal, shown
from g2d.policies import PolicyRecord
from g2d.report.cards import harvest_card, model_card
from tests.configs import SMALL

DPO = next(policy for policy in Grid(Config.model_validate(SMALL)).policies if policy.role == "dpo")
RENDER = MarkdownIt("gfm-like", {"html": True, "linkify": False})
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=1> [link](javascript:1) ![i](x) `c` **b** _u_ | &lt; \\* $x$\n\n# H"
)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab1 \n\\`*_{}[]<>()#+-.!|&;~=$:x/\t'\"é")))
def test_literal_text_is_rendered_as_it_was_written(text: str) -> None:
    rendered = RENDER.render(literal(text))
    assert html.unescape(re.sub(r"</?p>", "", rendered)).strip() == " ".join(text.split())
    assert shown(literal(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    "text", ["a_b/c-d", "Qwen/Qwen2.5-7B", "K in {0, 150}, alpha=0.5 (see B.2); 3 < 4 is false.", "A & B"]
)
def test_plain_sentences_are_hardly_touched(text: str) -> None:
    assert literal(text).replace("\\<", "<") == text


@settings(deadline=None)
@given(st.text(st.sampled_from("a`~ \n")).filter(str.strip))
def test_code_stays_code(text: str) -> None:
    [block] = [token for token in RENDER.parse(fenced(text)) if token.type != "inline"]
    assert block.content == text.rstrip() + "\n"
    line = " ".join(text.split())
    assert RENDER.renderInline(f"x {code(line)} x") == f"x <code>{html.escape(line)}</code> x"


def test_cards_show_what_was_configured_and_run_none_of_it() -> None:
    base = PolicyRecord("m/base", "m", "base", "", revision="r`", settings={"id": 'a"`<b>/m; rm -rf ~'})
    base = replace(base, chat_template_kwargs={"style": "'; rm -rf ~"})
    policy = replace(
        base, policy_id="m/<i>", regime="dpo/`x`", seed=0, adapter="a", settings={"template": f"```\n{HOSTILE}\n~~~"}
    )
    results = pd.DataFrame([{"benchmark": "a|<b>", "accuracy": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n_seeds": 1}])
    counts = Informativeness(**dict.fromkeys(Informativeness.__dataclass_fields__, 1))
    cards = [
        model_card(DPO, policy, base, results, HOSTILE),
        harvest_card(Harvest("m", 2, 4, 0), base, counts, HOSTILE, HOSTILE),
    ]
    for card in cards:
        rendered = RENDER.render(card.split("---\n", 2)[2])
        assert_inert(rendered)
        assert "<strong>" + html.escape(" ".join(HOSTILE.split()), quote=True).replace("&#x27;", "'") in rendered
    assert 'from_pretrained("a\\"`<b>/m; rm -rf ~", revision=' in cards[0]
    assert "vllm serve 'a\"`<b>/m; rm -rf ~' --enable" in cards[0]
    assert """ --default-chat-template-kwargs '{"style": "'"'"'; rm -rf ~"}'""" in cards[0]


def test_a_card_names_no_file_of_this_machine() -> None:
    base = PolicyRecord("m/base", "m", "base", "/home/me/model")
    settings = {"reward": {"file": "/home/me/mine.py", "weights": ["/data/a/b", "/no_think", 1]}, "template": "a/b.txt"}
    card = model_card(DPO, replace(base, settings=settings), base, pd.DataFrame(), None)
    assert "/home/me" not in card and "/data" not in card
    assert all(kept in card for kept in ("path/to/mine.py", "path/to/m", "path/to/b", "/no_think", "a/b.txt"))


def assert_inert(rendered: str) -> None:
    alive = set(re.findall(r"<([a-z]\w*)", re.sub(r"<pre>.*?</pre>", "", rendered, flags=re.S)))
    assert alive <= {
        "p",
        "h1",
        "h2",
        "blockquote",
        "strong",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "a",
    }
    assert set(re.findall(r'href="([^"]*)"', rendered)) <= {"https://arxiv.org/abs/2605.21266"}
