"""A policy's card names base model, training, and how to load it; configured text in it is text."""

from __future__ import annotations

import re
from dataclasses import replace

from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from g2d.policies import PolicyRecord
from g2d.stages.model_card import model_card

RENDER = MarkdownIt("gfm-like", {"html": True, "linkify": False})
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=1> [link](javascript:1) ![i](x) `c` **b** _u_ | &lt; \\* $x$\n\n# H"
)
BASE = PolicyRecord("m/base", "m", "base", "models/m", revision="abc", settings={"id": "org/m"})
POLICY = PolicyRecord(
    "m/seed0/on-coin/dpo/g2/k4", "m", "on-coin/dpo", "models/m", group_size=2, k=4, seed=0, adapter="a"
)


def test_the_card_names_base_model_method_and_settings() -> None:
    policy = replace(POLICY, settings={"reward": {"reward": "random", "p": 0.5}}, started_from="m/seed0/grpo/g2/k4")
    card = ModelCard(str(model_card(policy, BASE, "DPO")))
    data = card.data.to_dict()
    assert (data["base_model"], data["library_name"]) == ("org/m", "peft")
    for words in ("DPO (`on-coin/dpo`), K=4, G=2, seed 0", "started from: `m/seed0/grpo/g2/k4`", "  p: 0.5"):
        assert words in card.text


def test_the_code_loads_the_adapter_onto_the_base_model() -> None:
    text = model_card(POLICY, BASE, "DPO").text
    assert 'AutoModelForCausalLM.from_pretrained("org/m", revision="abc")' in text
    assert "PeftModel.from_pretrained(base," in text


def test_the_code_loads_whole_weights_without_peft() -> None:
    card = model_card(replace(POLICY, adapter=None, weights="w"), BASE, "DPO")
    assert card.data.to_dict()["library_name"] == "transformers"
    assert "All weights of" in card.text and "Peft" not in card.text


def test_the_card_shows_what_was_configured_and_runs_none_of_it() -> None:
    base = replace(BASE, revision="r`", settings={"id": 'a"`<b>/m; rm -rf ~'})
    policy = replace(
        POLICY,
        policy_id=f"m/{HOSTILE}",
        regime="dpo/`x`",
        settings={"template": f"```\n{HOSTILE}\n~~~"},
        chat_template_kwargs={"style": HOSTILE},
    )
    text = model_card(policy, base, "DPO").text
    assert_inert(RENDER.render(text))
    assert 'from_pretrained("a\\"`<b>/m; rm -rf ~", revision=' in text


def test_the_card_names_no_file_of_this_machine() -> None:
    base = PolicyRecord("m/base", "m", "base", "/home/me/model")
    settings = {"reward": {"file": "/home/me/mine.py", "weights": ["/data/a/b", "/no_think", 1]}, "template": "a/b.txt"}
    card = str(model_card(replace(POLICY, base=base.base, settings=settings), base, "DPO"))
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
