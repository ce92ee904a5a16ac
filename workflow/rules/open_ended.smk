# Open-ended prompts: reward model, replies to held-out prompts, and win rates against M0.


REWARD_MODELS = {own.name: own for own in CONFIG.rewards.values() if isinstance(own, ScratchRewardModel)}


rule scratch_reward_model:
    output:
        weights="results/reward-models/{reward}/model.safetensors",
        config="results/reward-models/{reward}/config.json",
        tokenizer="results/reward-models/{reward}/tokenizer.json",
        tokenizer_config="results/reward-models/{reward}/tokenizer_config.json",
        chat_template="results/reward-models/{reward}/chat_template.jinja",
    log:
        "results/logs/scratch_reward_model/{reward}.log",
    benchmark:
        "results/benchmarks/scratch_reward_model/{reward}.tsv"
    wildcard_constraints:
        reward=names(REWARD_MODELS),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["scratch_reward_model"],
        source=lambda w: REWARD_MODELS[w.reward].trained_with,
    message:
        "Train the embedded reward model {wildcards.reward} from scratch"
    script:
        "../scripts/scratch_reward_model.py"


rule draw_replies:
    input:
        planned("draw_replies", ""),
        policy="results/{policy}/policy.json",
        problems=f"results/problems/{HELD_OUT}.jsonl",
        leakage=f"results/problems/{HELD_OUT}.leakage.json",
        reward=planned("draw_replies", "reward"),
        shards=[],
        costs=[],
    output:
        rollouts="results/{policy}/open-ended/rollouts.parquet",
        cost="results/{policy}/open-ended/cost.json",
    log:
        "results/logs/draw_replies/{policy}.log",
    benchmark:
        "results/benchmarks/draw_replies/{policy}.tsv"
    conda:
        "../../envs/g2d.yaml"
    resources:
        gpu=gpus,
    params:
        version=VERSIONS["draw_replies"],
        settings=param("draw_replies", "settings"),
        engine=param("draw_replies", "engine"),
    message:
        "Have {wildcards.policy} reply to the held-out prompts"
    script:
        "../scripts/draw_replies.py"
