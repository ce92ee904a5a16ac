"""Write a card for every policy and every harvest."""

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.files import write_text
from g2d.jobs.stage import stage
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.inputs import Inputs


def main(snakemake):
    with stage(snakemake):
        from g2d.report.cards import harvest_card, model_card, results_of  # imports the Hub's client

        note = snakemake.params.note
        grid = Grid(load(snakemake.config))
        inputs = Inputs(grid, given=snakemake.input)
        table = read_table(snakemake.input.table, MAIN_COLUMNS)
        bases = {policy.model: record for policy, record in inputs.records.items() if policy.role == "base"}
        for policy in grid.trained:
            shown = inputs.finished[policy]
            results = results_of(table, shown)
            card = model_card(shown, inputs.records[policy], bases[policy.model], results, note)
            write_text(f"results/{policy.folder}/{grid.config.lora.folder}/README.md", card)
        for harvest, counts in inputs.summaries.items():
            reward = grid.runs[harvest.model][harvest.run_name].other_reward
            card = harvest_card(harvest, bases[harvest.model], counts, reward, note)
            write_text(f"results/{harvest.folder}/README.md", card)


if __name__ == "__main__":
    main(snakemake)
