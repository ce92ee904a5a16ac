"""Generate `config/schema.json` and `config/README.md` from the configuration classes.

g2d config docs            write both
g2d config check FILE      validate a configuration
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from g2d import config as c
from g2d.files import read_text, write_text

INTRODUCTION = """# Configuration

`config.yaml` is the demonstration and the default; `paper.yaml` is the paper's grid. Use another file with
`snakemake --configfile my.yaml`: it replaces the default, and several files given together are merged. A single value
can be changed on the command line, for example `--config seeds='[0]'`.

Unknown keys are refused, and every mistake is reported with its file, key and fix before any job starts
(`g2d config check my.yaml` does only that, and names files that are not UTF-8, which Snakemake cannot read). In one
file no key may be given twice; where several are given, the last one wins. Nor may a number be another one to YAML than
to a reader: `010` is 8 there, and `1:30` is 90. Defaults below are the paper's values (arXiv 2605.21266) wherever it
states one. Editors that understand `# yaml-language-server: $schema=schema.json` complete and check keys as you type.

This page is generated from `src/g2d/config.py` by `g2d config docs`; edit it there.
"""

PAGES: list[tuple[str, str, type[BaseModel]]] = [
    ("Top level", "", c.Config),
    ("A scratch model", "models.<name>", c.ScratchModel),
    ("A local model", "models.<name>", c.LocalModel),
    ("A model on the Hub", "models.<name>", c.HubModel),
    ("Recorded completions", "models.<name>", c.RecordedModel),
    ("Synthetic problems", "pool, benchmarks.<name>", c.SyntheticProblems),
    ("Problems in a local file", "pool, benchmarks.<name>", c.LocalProblems),
    ("Problems on the Hub", "pool, benchmarks.<name>", c.HubProblems),
    ("Columns of a data set", "pool.fields, benchmarks.<name>.fields", c.Fields),
    ("Prompt", "prompt", c.Prompt),
    ("Engine", "engine", c.EngineSettings),
    ("Shards", "engine.shards", c.Shards),
    ("Adapter", "lora", c.Lora),
    ("Difficulty calibration", "calibration", c.Calibration),
    ("Training set", "training_set", c.TrainingSet),
    ("GRPO warm-up", "warmup", c.Warmup),
    ("Warm-up that stops by itself", "warmup.auto", c.AutoStop),
    ("Harvest", "harvest", c.Harvest),
    ("Probe", "probe", c.Probe),
    ("Pairs", "pairs", c.Pairs),
    ("DPO", "dpo", c.Dpo),
    ("Ablations", "ablations.<name>", c.Ablation),
    ("Baselines", "baselines", c.Baselines),
    ("Evaluation", "evaluation", c.Evaluation),
    ("Sampled evaluation", "evaluation.sampled", c.SampledEvaluation),
]


def schema() -> str:
    """The JSON schema of a configuration file."""
    return json.dumps(c.Config.model_json_schema(), indent=2) + "\n"


def readme() -> str:
    """The reference of every key, in Markdown."""
    pages = [INTRODUCTION]
    for title, where, section in PAGES:
        doc = (section.__doc__ or "").strip().splitlines()[0]
        head = f"## {title}" + (f": `{where}`" if where else "")
        pages.append(f"{head}\n\n{doc}\n\n| key | type | default | paper | meaning |\n|---|---|---|---|---|")
        pages[-1] += "".join("\n" + _row(name, field) for name, field in section.model_fields.items()) + "\n"
    return "\n".join(pages)


def _row(name: str, field: FieldInfo) -> str:
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    unit = f" ({extra['unit']})" if "unit" in extra else ""
    cells = [f"`{name}`", _type(field.annotation) + unit, _default(field), extra.get("paper", ""), field.description]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return "see its section"
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _type(annotation: Any) -> str:
    """A type as a reader of YAML would say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if a is type(None) else _type(a) for a in arguments)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is tuple:
        return "pair of numbers"
    if origin is dict:
        return "mapping by name" if arguments[0] is not str else "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, str(annotation))


def register(subparsers: Any) -> None:
    """Add `g2d config` to the command line."""
    parser = subparsers.add_parser("config", help="check a configuration, or regenerate its documentation")
    actions = parser.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="validate a configuration file")
    check.add_argument("file", type=Path)
    check.set_defaults(run=_check)
    docs = actions.add_parser("docs", help="write config/schema.json and config/README.md")
    docs.add_argument("--folder", type=Path, default=Path("config"))
    docs.set_defaults(run=_docs)


def _check(arguments: argparse.Namespace) -> int:
    try:
        c.require_files(c.read(arguments.file))
    except c.ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{arguments.file}: valid")
    return 0


def _docs(arguments: argparse.Namespace) -> int:
    pages = {"schema.json": (schema(), '"title": "Config"'), "README.md": (readme(), "`g2d config docs`")}
    for name, (_, mark) in pages.items():
        if (file := arguments.folder / name).exists() and mark not in read_text(file):
            raise ValueError(f"{file}: not made by g2d config docs, so it is not replaced: name another --folder")
    for name, (text, _) in pages.items():
        write_text(arguments.folder / name, text)
    return 0
