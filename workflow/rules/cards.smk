# Model and data set cards in the Hub's format.

CARDS = JOBS["write_cards",].outputs[""]


rule write_cards:
    input:
        table="results/tables/main.csv",
        policies=planned("write_cards", "policies"),
        informativeness=planned("write_cards", "informativeness"),
    output:
        CARDS,
    log:
        "results/logs/write_cards.log",
    benchmark:
        "results/benchmarks/write_cards.tsv"
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["write_cards"],
        config=CONFIG.identity,
        note=CONFIG.demonstration,
    message:
        "Write a card beside every policy and every harvest"
    script:
        "../scripts/write_cards.py"
