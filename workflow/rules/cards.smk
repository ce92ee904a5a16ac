# Model and data set cards, as the Hub shows them.

CARDS = [f"results/{p.folder}/adapter/README.md" for p in TRAINED]
CARDS += [f"results/{h.folder}/README.md" for h in HARVESTS]


rule write_cards:
    input:
        tables=["results/tables/main.csv", "results/tables/ablations.csv"],
        policies=[f"results/{p.folder}/policy.json" for p in POLICIES],
        informativeness=[f"results/{h.folder}/informativeness.json" for h in HARVESTS],
    output:
        CARDS,
    log:
        "results/logs/write_cards.log",
    benchmark:
        "results/benchmarks/write_cards.tsv"
    conda:
        "../../envs/g2d.yaml"
    threads: 1
    params:
        version=VERSIONS["write_cards"],
        config=CONFIG.identity,
        note=CONFIG.demonstration,
    message:
        "Write a card beside every adapter and every harvest"
    script:
        "../scripts/write_cards.py"
