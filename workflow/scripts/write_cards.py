"""Write a card for every policy and every harvest."""

from g2d.analysis.informativeness import read_informativeness
from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.jobs.files import write_text
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table


def main(snakemake):
    with stage(snakemake):
        from g2d.report.cards import harvest_card, model_card, results_of  # imports the Hub's client

        config, note = load(snakemake.config), snakemake.params.note
        table = read_table(snakemake.input.table, MAIN_COLUMNS)
        bases = {name: read_policy(f"results/{name}/base/policy.json") for name in config.models}
        records = {key: read_policy(f"results/{key.folder}/policy.json") for key in grid.policies(config)}
        for key in grid.with_steps_taken(records):
            if key.regime == "base":
                continue
            card = model_card(key, records[key], bases[key.model], results_of(table, key), note)
            write_text(f"results/{key.folder}/{config.lora.folder}/README.md", card)
        for key in grid.harvests(config):
            counts = read_informativeness(f"results/{key.folder}/informativeness.json")
            write_text(f"results/{key.folder}/README.md", harvest_card(key, bases[key.model], counts, note))


if __name__ == "__main__":
    main(snakemake)
