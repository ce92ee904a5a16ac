"""Rule make_tables: Tables 1 to 4 of the paper and the bill, for this grid, from the files the stages left."""

from g2d import grid, tables
from g2d.attempts import read_attempts
from g2d.config import load
from g2d.cost import read_cost
from g2d.informativeness import read_informativeness
from g2d.policies import read_policy
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake):
        config, out = load(snakemake.params.config), snakemake.output
        policies = grid.policies(config)
        evaluations = {
            (policy, benchmark): read_rollouts(f"results/{policy.folder}/eval/{benchmark}.parquet", TEXTLESS)
            for policy in policies
            for benchmark in config.benchmarks
        }
        trained = [policy for policy in policies if policy.regime != "base"]
        costs = {policy: read_cost(f"results/{policy.folder}/cost.json") for policy in trained}
        # M0 is given: whoever trained it, its bill is not part of this experiment.
        hours = {policy: costs[policy].device_hours if policy in costs else 0.0 for policy in policies}
        # The bill also lists what evaluation took, which is not part of a policy's own device-hours.
        bills = {policy: [*costs[policy].records] if policy in costs else [] for policy in policies}
        for policy, benchmark in evaluations:
            bills[policy] += read_cost(f"results/{policy.folder}/eval/{benchmark}.cost.json").records
        n_pairs = {
            policy: read_policy(f"results/{policy.folder}/policy.json").settings["n_pairs"]
            for policy in trained
            if policy.regime != "grpo"
        }
        changes = {name: ablation.dpo for name, ablation in config.ablations.items()}
        harvest = tables.harvest_table(
            {key: read_informativeness(f"results/{key.folder}/informativeness.json") for key in grid.harvests(config)}
        )
        main_table = tables.main_table(evaluations, hours)
        levels = {model: tables.read_table(f"results/{model}/calibration/levels.csv") for model in config.models}
        tables.write_table(out.main, main_table)
        tables.write_table(out.harvest, harvest)
        tables.write_table(out.correlations, tables.correlation_table(harvest, main_table))
        tables.write_table(out.ablations, tables.ablation_table(evaluations, hours, changes, n_pairs))
        tables.write_table(out.calibration, tables.calibration_table(levels))
        harvested = {
            key.folder: read_rollouts(f"results/{key.folder}/rollouts.parquet", TEXTLESS)
            for key in grid.harvests(config)
        }
        evaluated = {f"{policy.folder}/eval/{name}": frame for (policy, name), frame in evaluations.items()}
        tables.write_table(out.disputes, tables.dispute_table(harvested | evaluated))
        attempts = read_attempts("results/attempts")  # no input: what a failed job cost makes no table stale
        tables.write_table(out.cost, tables.cost_table(bills, attempts))
        tables.write_table(out.attempts, tables.attempt_table(attempts))


if __name__ == "__main__":
    main(snakemake)
