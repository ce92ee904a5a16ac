"""Configured text in Markdown is text, for a renderer that lets HTML through."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from g2d.markdown import code, fenced, literal, shown

RENDER = MarkdownIt("gfm-like", {"html": True, "linkify": False})


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
