"""Base models from GGUF files: what is refused before a job runs, and that the conversion changes nothing."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from g2d.checks.load import load
from g2d.checks.requirements import require_files
from g2d.policies.gguf import READER, file_in, origin
from g2d.policies.model_keys import ASSUMED_PARAMETERS, GgufModel, parameters
from g2d.policies.pretrained import make_base
from g2d.policies.record import PolicyRecord, end_tokens, load_base, load_tokenizer, read_policy, write_policy
from g2d.settings import ConfigError
from tests.shared import NEEDS_SMOLLM2, SMOLLM2, made_once

NEEDS_GGUF = pytest.mark.skipif(find_spec("gguf") is None, reason=f"needs the reader: pip install --no-deps {READER}")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A file that nothing can read."""
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    return tmp_path / "small.gguf"


def here(file: Path) -> GgufModel:
    return GgufModel(source="gguf", path=str(file))


def test_the_number_of_parameters_is_guessed_from_the_name() -> None:
    assert parameters(GgufModel(source="gguf", **SMOLLM2)) == 135e6
    assert parameters(here(Path("of/Qwen2.5-0.5B-Q8_0.gguf"))) == 0.5e9
    assert parameters(here(Path("135M/model.gguf"))) == ASSUMED_PARAMETERS


@NEEDS_GGUF
def test_a_file_that_cannot_be_read_is_named(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"small\.gguf: transformers cannot convert it"):
        make_base("m", here(llama), tmp_path / "made")


@pytest.mark.skipif(find_spec("gguf") is not None, reason="needs an environment without the package gguf")
def test_a_missing_reader_is_named_with_the_command(llama: Path) -> None:
    with pytest.raises(ConfigError, match=f"pip install --no-deps {READER}"):
        require_files(configuration({"source": "gguf", "path": str(llama)}))


@pytest.fixture
def package(tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package a-model 1.2 with the file small.gguf; return the path of the file."""
    site = tmp_path / "site"
    (site / "a_model").mkdir(parents=True)
    (info := site / "a_model-1.2.dist-info").mkdir()
    file = site / "a_model/small.gguf"
    file.write_bytes(llama.read_bytes())
    digest = urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-model\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"a_model/small.gguf,sha256={digest},{file.stat().st_size}\n")
    monkeypatch.syspath_prepend(site)
    return file


def of_package(package: str, file: str = "small.gguf") -> GgufModel:
    return GgufModel(source="gguf", package=package, file=file)


def test_the_file_of_an_installed_package_has_a_name_or_a_path(package: Path) -> None:
    assert file_in(of_package("a-model==1.2")) == package
    assert file_in(of_package("a-model==1.2", "a_model/small.gguf")) == package


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (of_package("no-such-model==1"), "pip install --no-deps no-such-model==1"),
        (of_package("a-model==1.3"), "a-model 1.2 is installed, and 1.3 is configured: pip install"),
        (of_package("a-model==1.2", "large.gguf"), "a-model==1.2 has no large.gguf, but small.gguf"),
    ],
)
def test_a_package_that_does_not_have_the_file_is_refused(package: Path, source: GgufModel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        file_in(source)


def test_path_or_package_and_file_are_given(llama: Path) -> None:
    for keys in ({}, {"package": "a==1"}, {"path": "x", "package": "a==1", "file": "x"}, {"path": "x", "file": "x"}):
        with pytest.raises(ValueError, match="give path, or package and file"):
            GgufModel(source="gguf", **keys)


def configuration(source: Mapping[str, Any]) -> Any:
    synthetic = {"source": "synthetic", "family": "arithmetic", "n": 20}
    pool, benchmark = {**synthetic, "split": "train"}, {**synthetic, "split": "test"}
    sets = {"pool": pool, "training_set": {"n": 20}, "benchmarks": {"b": benchmark}}
    return load({"models": {"m": source}} | sets)


def test_the_configuration_is_refused_by_key(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"models\.m\.path: nowhere\.gguf does not exist"):
        require_files(configuration({"source": "gguf", "path": "nowhere.gguf"}))
    with pytest.raises(ConfigError, match=r"models\.m: the package no-such is not installed"):
        require_files(configuration({"source": "gguf", "package": "no-such==1", "file": "x.gguf"}))
    with pytest.raises(ConfigError, match=r"write \{source: gguf, path: small\.gguf\}"):
        require_files(configuration({"source": "local", "path": "."}))


def test_a_converted_model_needs_its_package_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = configuration({"source": "gguf", "package": "no-such==1", "file": "x.gguf"})
    (tmp_path / "results/m/base").mkdir(parents=True)
    (tmp_path / "results/m/base/policy.json").write_text("{}")
    require_files(config)


# ------------------------------------------------------------------------------------------------------ conversion


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random F16 weights, different tokens for the end of a text and of a turn, and no padding."""
    gguf = pytest.importorskip("gguf", reason=f"needs the reader: pip install --no-deps {READER}")
    import numpy as np
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = [*bytes_to_unicode().values(), "12", "34", "<|begin|>", "<|end|>", "<|turn|>"]
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    sizes = {"context_length": 64, "embedding_length": 32, "feed_forward_length": 32, "vocab_size": len(tokens)}
    sizes |= {"block_count": 1, "head_count": 2, "head_count_kv": 1}
    ids = {"bos_token_id": 258, "eos_token_id": 259, "eot_token_id": 260, "add_bos_token": False}
    types = [3 if token.startswith("<|") else 1 for token in tokens]
    lists = {"token_list": tokens, "token_types": types, "token_merges": ["1 2", "3 4"]}
    template = "{% for m in messages %}<|begin|>{{ m.role }} {{ m.content }}<|turn|>{% endfor %}"
    rest = {"layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0, "tokenizer_model": "gpt2", "chat_template": template}
    for name, value in {"file_type": gguf.LlamaFileType.MOSTLY_F16, **sizes, **ids, **lists, **rest}.items():
        getattr(writer, f"add_{name}")(value)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{name}": (32, 32) for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
    shapes |= {f"blk.0.{name}": (16, 32) for name in ("attn_k", "attn_v")}
    shapes |= {f"blk.0.{name}": (32,) for name in ("attn_norm", "ffn_norm")}
    for name, shape in shapes.items():
        kind = np.float16 if len(shape) == 2 else np.float32
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def converted(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    return make_base("tiny", here(tiny), tmp_path_factory.mktemp("base") / "model")


def test_ends_and_padding_come_from_the_file(converted: PolicyRecord) -> None:
    tokenizer = load_tokenizer(converted)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<|begin|>", "<|end|>", "<|end|>")
    assert end_tokens(converted, tokenizer) == {259, 260}
    assert load_base(converted).generation_config.eos_token_id == [259, 260]


def test_the_vocabulary_comes_from_the_file(converted: PolicyRecord) -> None:
    tokenizer = load_tokenizer(converted)
    assert tokenizer("12 a")["input_ids"] == [256, *tokenizer(" a")["input_ids"]]


def test_unquantized_weights_are_those_of_the_original(converted: PolicyRecord) -> None:
    assert converted.converted_from is not None
    assert converted.converted_from["quantization"] == "F16"
    assert "numbers are not those" not in origin(converted.converted_from)


def test_a_file_that_names_no_end_is_refused(tiny: Path, tmp_path: Path) -> None:
    content = tiny.read_bytes()
    for name in (b"eos", b"eot"):
        content = content.replace(b"ggml." + name + b"_token_id", b"ggml.x" + name[1:] + b"_token_id")
    (tmp_path / "endless.gguf").write_bytes(content)
    with pytest.raises(ValueError, match="names no token that ends a text"):
        make_base("tiny", here(tmp_path / "endless.gguf"), tmp_path / "base/model")


@pytest.fixture(scope="module")
def smollm2() -> PolicyRecord:
    folder = made_once("smollm2", lambda folder: write_policy(folder / "policy.json", _converted(folder)))
    return read_policy(folder / "policy.json")


def _converted(folder: Path) -> PolicyRecord:
    return make_base("smollm2", GgufModel(source="gguf", **SMOLLM2), folder / "model")


@pytest.mark.slow
@NEEDS_SMOLLM2
class TestSmolLM2:
    """The real model, against what transformers and the package gguf read from the same file."""

    def test_texts_are_the_same_tokens(self, smollm2: PolicyRecord, texts: list[str]) -> None:
        from transformers import AutoTokenizer

        file = file_in(GgufModel(source="gguf", **SMOLLM2))
        theirs, ours = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name), load_tokenizer(smollm2)
        for shown in texts:
            assert ours(shown)["input_ids"] == theirs(shown)["input_ids"]
            assert ours.decode(ours(shown)["input_ids"]) == shown
        assert (ours.eos_token, ours.eos_token_id, ours.pad_token_id) == ("<|im_end|>", 2, 2)
        assert end_tokens(smollm2, ours) == {2}

    def test_the_template_is_the_makers(self, smollm2: PolicyRecord) -> None:
        from gguf import GGUFReader
        from transformers.utils.chat_template_utils import render_jinja_template

        file = file_in(GgufModel(source="gguf", **SMOLLM2))
        template = GGUFReader(file).get_field("tokenizer.chat_template").contents()
        tokenizer = load_tokenizer(smollm2)
        for turns in (
            [("user", "1 + 1?")],
            [("system", "Be brief."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")],
        ):
            messages = [{"role": role, "content": content} for role, content in turns]
            theirs = render_jinja_template([messages], chat_template=template, add_generation_prompt=True)[0][0]
            assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == theirs
            assert ("named SmolLM" in theirs) == (turns[0][0] == "user")

    def test_the_weights_equal_the_file(self, smollm2: PolicyRecord) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        file = file_in(GgufModel(source="gguf", **SMOLLM2))
        theirs = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
        ours = load_base(smollm2, exact=True)
        wanted = theirs.state_dict()
        assert ours.state_dict().keys() == wanted.keys()
        assert all(torch.equal(weights, wanted[name]) for name, weights in ours.state_dict().items())
        ids = torch.tensor([load_tokenizer(smollm2)("Two and three are")["input_ids"]])
        with torch.inference_mode():
            assert torch.equal(ours(ids).logits, theirs(ids).logits)

    def test_the_record_says_that_it_was_quantized(self, smollm2: PolicyRecord) -> None:
        record, file = smollm2.converted_from, file_in(GgufModel(source="gguf", **SMOLLM2))
        assert record == {
            "file": SMOLLM2["file"],
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "quantization": "Q4_1",
            "package": SMOLLM2["package"],
        }
        assert "quantized as Q4_1" in origin(record)


@pytest.fixture
def texts() -> Iterator[list[str]]:
    yield [
        "Janet has 12 eggs and eats 3.5 of them, for $1,234 each.",
        "  x^2 \\le \\frac{1}{2}\n\n\\boxed{42}\t?",
        "Ünïcode 数学 🙂 don't , stop .",
        "<|im_start|>user\n2 + 3 = ?<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_the_packages_are_pinned_where_make_installs_them() -> None:
    pins = (Path(__file__).parents[2] / "envs/smollm2.txt").read_text().splitlines()
    assert {READER, SMOLLM2["package"]} <= set(pins)
    try:
        assert f"gguf=={version('gguf')}" == READER
    except PackageNotFoundError:
        pytest.skip("the package gguf is not installed")
