# Selected checkpoints: every K answers the development prompts, and a copy of the best is evaluated.


rule choose_checkpoint:
    input:
        planned("choose_checkpoint", ""),
        answers=planned("choose_checkpoint", "answers"),
        replies=planned("choose_checkpoint", "replies"),
        policies=planned("choose_checkpoint", "policies"),
        weights=planned("choose_checkpoint", "weights"),
        costs=planned("choose_checkpoint", "costs"),
    output:
        policy="results/{model}/seed{seed}/{owner}/selected/g{g}/k{k}/policy.json",
        weights=f"results/{{model}}/seed{{seed}}/{{owner}}/selected/g{{g}}/k{{k}}/{WEIGHTS}",
        weights_config=f"results/{{model}}/seed{{seed}}/{{owner}}/selected/g{{g}}/k{{k}}/{WEIGHTS_CONFIG}",
        selection="results/{model}/seed{seed}/{owner}/selected/g{g}/k{k}/selection.csv",
        cost="results/{model}/seed{seed}/{owner}/selected/g{g}/k{k}/cost.json",
    log:
        "results/logs/choose_checkpoint/{model}/seed{seed}/{owner}/g{g}/k{k}.log",
    benchmark:
        "results/benchmarks/choose_checkpoint/{model}/seed{seed}/{owner}/g{g}/k{k}.tsv"
    wildcard_constraints:
        owner=names(selecting(CONFIG).values()),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["choose_checkpoint"],
    message:
        "Select the checkpoint of {wildcards.owner} of {wildcards.model}, seed {wildcards.seed}"
    script:
        "../scripts/choose_checkpoint.py"


use rule evaluate as answer_development with:
    input:
        planned("answer_development", ""),
        policy="results/{policy}/policy.json",
        benchmark=f"results/problems/{DEVELOPMENT}.jsonl",
        leakage=f"results/problems/{DEVELOPMENT}.leakage.json",
        shards=[],
        costs=[],
    output:
        rollouts="results/{policy}/development/verifiable.parquet",
        cost="results/{policy}/development/verifiable.cost.json",
    log:
        "results/logs/answer_development/{policy}.log",
    benchmark:
        "results/benchmarks/answer_development/{policy}.tsv"
    params:
        settings=param("answer_development", "settings"),
        engine=param("answer_development", "engine"),
    message:
        "Have {wildcards.policy} answer the development problems"


use rule draw_replies as reply_to_development with:
    input:
        planned("reply_to_development", ""),
        policy="results/{policy}/policy.json",
        problems=f"results/problems/{OPEN_ENDED_DEVELOPMENT}.jsonl",
        leakage=f"results/problems/{OPEN_ENDED_DEVELOPMENT}.leakage.json",
        shards=[],
        costs=[],
    output:
        rollouts="results/{policy}/development/open_ended.parquet",
        cost="results/{policy}/development/open_ended.cost.json",
    log:
        "results/logs/reply_to_development/{policy}.log",
    benchmark:
        "results/benchmarks/reply_to_development/{policy}.tsv"
    params:
        settings=param("reply_to_development", "settings"),
        engine=param("reply_to_development", "engine"),
    message:
        "Have {wildcards.policy} reply to the open-ended development prompts"
