"""The script that converts GGUF files: it changes no weights, and takes the special tokens from the file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.gguf_to_hf import convert, main
from g2d.policies.model_keys import LocalModel
from g2d.policies.pretrained import resolve_base
from g2d.policies.record import PolicyRecord, end_tokens, load_base, load_tokenizer
from tests.shared import NEEDS_SMOLLM2, made_smollm2, smollm2_gguf

READER = "needs the package gguf: pip install --no-deps --requirement envs/smollm2.txt"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random F16 weights, different tokens for the end of a text and of a turn, and no padding."""
    gguf = pytest.importorskip("gguf", reason=READER)
    import numpy as np
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = [*bytes_to_unicode().values(), "12", "34", "<|begin|>", "<|end|>", "<|turn|>"]
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    sizes = {"context_length": 64, "embedding_length": 32, "feed_forward_length": 32, "vocab_size": len(tokens)}
    sizes |= {"block_count": 1, "head_count": 2, "head_count_kv": 1}
    ids = {"bos_token_id": 258, "eos_token_id": 259, "eot_token_id": 260, "add_bos_token": False}
    types = [1] * (len(tokens) - 3) + [3] * 3  # ordinary and special
    lists = {"token_list": tokens, "token_types": types, "token_merges": ["1 2", "3 4"]}
    template = "{% for m in messages %}<|begin|>{{ m.role }} {{ m.content }}<|turn|>{% endfor %}"
    rest = {"layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0, "tokenizer_model": "gpt2", "chat_template": template}
    for name, value in {"file_type": gguf.LlamaFileType.MOSTLY_F16, **sizes, **ids, **lists, **rest}.items():
        getattr(writer, f"add_{name}")(value)
    rng = np.random.default_rng(0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.normal(size=32).astype(np.float32))
    shapes = {"token_embd": (len(tokens), 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32)}
    for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}"] = (32, 32)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def record(folder: Path) -> PolicyRecord:
    return resolve_base("m", LocalModel(source="local", path=str(folder)))


@pytest.fixture(scope="module")
def converted(tiny: Path) -> PolicyRecord:
    folder = tiny.parent / "models/tiny"
    convert(tiny, folder)
    return record(folder)


def test_ends_and_padding_come_from_the_file(converted: PolicyRecord) -> None:
    tokenizer = load_tokenizer(converted)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<|begin|>", "<|end|>", "<|end|>")
    assert end_tokens(converted, tokenizer) == {259, 260}
    assert load_base(converted).generation_config.eos_token_id == [259, 260]


def test_the_vocabulary_comes_from_the_file(converted: PolicyRecord) -> None:
    tokenizer = load_tokenizer(converted)
    assert tokenizer("12 a")["input_ids"] == [256, *tokenizer(" a")["input_ids"]]


def test_a_file_that_names_no_end_is_refused(tiny: Path, tmp_path: Path) -> None:
    content = tiny.read_bytes()
    for name in (b"eos", b"eot"):
        content = content.replace(b"ggml." + name + b"_token_id", b"ggml.x" + name[1:] + b"_token_id")
    (tmp_path / "endless.gguf").write_bytes(content)
    with pytest.raises(ValueError, match="names no token that ends a text"):
        convert(tmp_path / "endless.gguf", tmp_path / "model")


def test_a_folder_that_exists_is_kept(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gguf_to_hf.py", str(tiny), str(tmp_path)])
    with pytest.raises(SystemExit, match="exists already"):
        main()


@pytest.fixture(scope="module")
def smollm2() -> PolicyRecord:
    return record(made_smollm2())


@pytest.mark.smollm2
@pytest.mark.slow
@NEEDS_SMOLLM2
class TestSmolLM2:
    """The real model, against what transformers and the package gguf read from the same file."""

    def test_texts_are_the_same_tokens(self, smollm2: PolicyRecord, texts: list[str]) -> None:
        from transformers import AutoTokenizer

        file = smollm2_gguf()
        theirs = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        ours = load_tokenizer(smollm2)
        for shown in texts:
            assert ours(shown)["input_ids"] == theirs(shown)["input_ids"]
            assert ours.decode(ours(shown)["input_ids"]) == shown
        assert (ours.eos_token, ours.eos_token_id, ours.pad_token_id) == ("<|im_end|>", 2, 2)
        assert end_tokens(smollm2, ours) == {2}

    def test_the_template_is_the_makers(self, smollm2: PolicyRecord) -> None:
        from gguf import GGUFReader
        from transformers.utils.chat_template_utils import render_jinja_template

        file = smollm2_gguf()
        template = GGUFReader(file).get_field("tokenizer.chat_template").contents()
        tokenizer = load_tokenizer(smollm2)
        question = {"role": "user", "content": "1 + 1?"}
        system = {"role": "system", "content": "Be brief."}
        for messages in ([question], [system, question, {"role": "assistant", "content": "2"}, question]):
            theirs = render_jinja_template([messages], chat_template=template, add_generation_prompt=True)[0][0]
            assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == theirs
            assert ("named SmolLM" in theirs) == (messages[0] == question)

    def test_the_weights_equal_the_file(self, smollm2: PolicyRecord) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        file = smollm2_gguf()
        theirs = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
        ours = load_base(smollm2, exact=True)
        wanted = theirs.state_dict()
        assert ours.state_dict().keys() == wanted.keys()
        for name, weights in ours.state_dict().items():
            assert torch.equal(weights, wanted[name]), name
        ids = torch.tensor([load_tokenizer(smollm2)("Two and three are")["input_ids"]])
        with torch.inference_mode():
            assert torch.equal(ours(ids).logits, theirs(ids).logits)


@pytest.fixture
def texts() -> list[str]:
    return [
        "Janet has 12 eggs and eats 3.5 of them, for $1,234 each.",
        "  x^2 \\le \\frac{1}{2}\n\n\\boxed{42}\t?",
        "Ünïcode 数学 🙂 don't , stop .",
        "<|im_start|>user\n2 + 3 = ?<|im_end|>\n<|im_start|>assistant\n",
    ]
