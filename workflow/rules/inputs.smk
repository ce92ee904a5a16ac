# Functions that rules name: inputs, params and GPUs that depend on the wildcards.


@cache
def policy_at(folder):
    """Policy of a folder below results/."""
    try:
        return GRID.at(folder)
    except LookupError as error:
        raise Refusal(plain(error.args[0]))


def policy_of(wildcards):
    """Policy that a training makes. The folders of GRPO have no {run}."""
    w = wildcards
    run = w.get("variant", "") + w.get("run", "grpo")
    return policy_at(f"{w.model}/seed{w.seed}/{run}/g{w.g}/k{w.k}")


@cache
def continued(policy):
    """Policy whose checkpoint a training continues; if it has finished, the one that it really continued.

    So another K makes no finished training stale.
    """
    planned = policy.reads.continues
    finished = finished_record(policy)
    if finished is None or finished.settings != GRID.settings_of(policy):
        return planned
    if finished.continued_from is None:
        return None
    return replace(policy, k=finished.continued_from)


def finished_record(policy):
    """Record of an online training that has finished. One that stops automatically continues nothing."""
    file = RESULTS / policy.folder / "policy.json"
    if policy.run.stops or not file.exists():
        return None
    try:
        return read_policy(file)
    except (OSError, ValueError) as error:
        raise Refusal(plain(str(error), lines=True))


# Inputs.


def pool_of(wildcards):
    """Prompts to train on that a benchmark must not contain."""
    pool = OPEN_ENDED if wildcards.benchmark == HELD_OUT else "pool"
    return f"results/problems/{pool}.jsonl"


def m0_of(wildcards):
    """Folder of the M0 of a policy."""
    return f"results/{model_of(wildcards)}/base/model"


def weights_of(policy):
    """Trained weights of a policy; [] for M0."""
    if policy.run == M0:
        return []
    return [f"results/{policy.folder}/{WEIGHTS}", f"results/{policy.folder}/{WEIGHTS_CONFIG}"]


def start_files(wildcards):
    """Record and weights of the policy that a training starts from, if not M0."""
    start = policy_of(wildcards).reads.start
    if start is None or start.run == M0:
        return []
    return [f"results/{start.folder}/policy.json", *weights_of(start)]


def prompts(wildcards):
    """The training set, the open-ended prompts, or both."""
    asked = policy_of(wildcards).run.prompt_mix.prompts
    files = []
    if asked != "open_ended":
        files.append(f"results/{wildcards.model}/calibration/train.jsonl")
    if asked != "verifiable":
        files.append(f"results/problems/{OPEN_ENDED}.jsonl")
    return files


def checkpoint_before(wildcards):
    """Checkpoint of the next smaller K."""
    before = continued(policy_of(wildcards))
    return [f"results/{before.folder}/checkpoint"] if before else []


def costs_before(wildcards):
    """Costs that a policy is charged for the jobs before it: calibration, its start, and the K before."""
    files = [f"results/{wildcards.model}/calibration/cost.json"]
    policy = policy_of(wildcards)
    for before in (policy.reads.start, continued(policy)):
        if before:
            files.append(f"results/{before.folder}/cost.json")
    return files


def harvested(wildcards):
    """pi_K: the GRPO policy at K, or M0 at K=0."""
    try:
        return GRID.harvested(harvest_of(wildcards))
    except LookupError as error:
        raise Refusal(plain(error.args[0]))


def harvested_weights(wildcards):
    return weights_of(harvested(wildcards))


def harvested_record(wildcards):
    return f"results/{harvested(wildcards).folder}/policy.json"


def rollouts_to_judge(wildcards):
    """Rollouts of M0 in the main grid, if an ablation with another reward judges them again."""
    again = GRID.judged_again(harvest_of(wildcards))
    return [f"results/{again.folder}/rollouts.parquet"] if again else []


def costs_of_harvested(wildcards):
    """Costs that the harvest is charged: of pi_K, or of the harvest that is judged again."""
    again = GRID.judged_again(harvest_of(wildcards))
    if again:
        return [f"results/{again.folder}/cost.json"]
    policy = harvested(wildcards)
    folder = f"{policy.model}/calibration" if policy.run == M0 else policy.folder
    return [f"results/{folder}/cost.json"]


def automatic_warmup(wildcards):
    """Record of a warm-up that stopped automatically: it has its K."""
    policy = policy_of(wildcards)
    if not policy.run.stops:
        return []
    return [f"results/{harvested(wildcards).folder}/policy.json"]


def matched_pairs(wildcards):
    """Pairs of the harvests that limit how many pairs DPO trains on (`match_pairs_to`)."""
    return [f"results/{harvest.folder}/pairs.jsonl" for harvest in policy_of(wildcards).reads.matched_harvests]


def chosen_pairs(wildcards):
    """Pairs of the harvest, if RFT trains on their chosen completions."""
    policy = policy_of(wildcards)
    if not policy.run.settings.needs_pairs:
        return []
    return f"results/{policy.reads.harvest.folder}/pairs.jsonl"


def policy_weights(wildcards):
    return weights_of(policy_at(wildcards.policy))


def names_of_benchmarks(folder):
    """Benchmarks of the configuration, then removed ones that have answers: removing one must not run the job again."""
    answered = [file.stem for file in Path(folder).glob("*.parquet")]
    removed = [name for name in answered if os.path.exists(f"results/problems/{name}.leakage.json")]
    return sorted({*CONFIG.benchmarks, *removed})


def benchmarks_in(folder):
    """Problems of all benchmarks, for the answers in a folder of a policy."""

    def benchmarks(wildcards):
        names = names_of_benchmarks(f"results/{wildcards.policy}/{folder}")
        return [f"results/problems/{name}.jsonl" for name in names]

    return benchmarks


def leakage_in(folder):
    def leakage(wildcards):
        names = names_of_benchmarks(f"results/{wildcards.policy}/{folder}")
        return [f"results/problems/{name}.leakage.json" for name in names]

    return leakage


# Inputs of targets.


def pairs_at(k):
    return [f"results/{harvest.folder}/pairs.jsonl" for harvest in GRID.harvests if harvest.k == k]


def evaluations_at(k):
    """Answers of the policies at a K and of M0, but not of policies that stopped automatically."""
    files = []
    for policy in GRID.policies:
        if policy.run == M0 or (policy.k == k and not policy.run.stops):
            files += [f"results/{policy.folder}/eval/{benchmark}.parquet" for benchmark in CONFIG.benchmarks]
    return files


# Params.


def training_settings(wildcards):
    return GRID.settings_of(policy_of(wildcards))


def training_machine(wildcards, threads):
    """Settings that change no result. Snakemake does not compare the params of a function of `threads`."""
    return GRID.job_settings[wildcards.model].machine(policy_of(wildcards))


def sampling_machine(section):
    """The same for jobs that sample with the keys of a section."""

    def machine(wildcards, threads):
        return GRID.job_settings[model_of(wildcards)].sampling_machine(section)

    return machine


def harvest_settings(wildcards):
    run = GRID.runs[wildcards.model][harvest_of(wildcards).run_name]
    return GRID.job_settings[wildcards.model].harvest(run)


def engine_name(wildcards):
    return GRID.job_settings[model_of(wildcards)].engine


# GPUs.


def engine_gpus(wildcards):
    engine = GRID.settings[model_of(wildcards)].engine
    return engine.tensor_parallel_size if engine.name == "vllm" else 1


def harvest_gpus(wildcards):
    harvest = harvest_of(wildcards)
    if not GRID.judged_again(harvest):
        return engine_gpus(wildcards)
    reward = GRID.job_settings[harvest.model].reward_for(GRID.runs[harvest.model][harvest.run_name])
    return int(reward is not None and kind_of(reward).gpu)


# Time limits on a cluster.


@cache
def finished_here():
    """Costs of finished jobs; only the Snakemake that submits jobs reads them, once."""
    return finished_jobs(RESULTS, CONFIG.models) if workflow.is_main_process else {}


def run_minutes(wildcards, attempt, rulename):
    """Minutes that a job requests, of the steps that it runs or the benchmarks that it answers."""
    stage = own_name(rulename)
    policy = None
    benchmarks = []
    if stage in (*ONLINE_STAGES, *OFFLINE_STAGES):
        policy = policy_of(wildcards)
    elif stage in EVALUATIONS:
        folder = "eval" if stage == "evaluate" else "samples"
        costs = [f"results/{wildcards.policy}/{folder}/{name}.cost.json" for name in CONFIG.benchmarks]
        benchmarks = to_answer(costs, RESULTS)
    work = work_of(GRID, stage, model_of(wildcards), policy, benchmarks)
    return limits.run_minutes(work, finished_here(), attempt)
