# Model and data set cards in the Hub's format.

# Cards that every grid of the configuration has; the rule writes the cards of later seeds too.
FIRST = at_look(CONFIG, {}) if LOOKS else CONFIG
CARDS = [f"results/{p.folder}/{CONFIG.lora.folder}/README.md" for p in grid.policies(FIRST) if p.role != "base"]
CARDS += [f"results/{h.folder}/README.md" for h in grid.harvests(FIRST)]


rule write_cards:
    input:
        tables=["results/tables/main.csv", "results/tables/ablations.csv"],
        policies=at_last(lambda config: [f"results/{p.folder}/policy.json" for p in grid.policies(config)]),
        informativeness=at_last(informativeness_of_all),
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
        "Write a card beside every policy and every harvest"
    script:
        "../scripts/write_cards.py"
