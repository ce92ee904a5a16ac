# Open-ended prompts: replies to held-out prompts, and win rates against M0.


rule draw_replies:
    input:
        planned("draw_replies", ""),
        policy="results/{policy}/policy.json",
        problems=f"results/problems/{HELD_OUT}.jsonl",
        leakage=f"results/problems/{HELD_OUT}.leakage.json",
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
