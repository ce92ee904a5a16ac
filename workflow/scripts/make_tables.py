"""Rule make_tables: Tables 1 to 4 of the paper, their tests and the bill, from the files the stages left."""

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.informativeness import read_informativeness, success_counts
from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.controls import controls, learnt_from
from g2d.experiment.samples import drawn_beside
from g2d.experiment.sections import Frontier
from g2d.experiment.sweep import DEVELOPMENT
from g2d.experiment.trained import candidate_policies, checkpoints
from g2d.jobs.attempts import read_attempts
from g2d.jobs.cost import read_cost
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.regimes.probes import PROBE_COLUMNS
from g2d.rollouts.rollout import BUDGET_VERDICTS, TEXTLESS, read_rollouts
from g2d.tables.accuracy import ablation_table, equal_compute_table, main_table
from g2d.tables.bills import attempt_table, cost_table
from g2d.tables.bridging import bridging_table
from g2d.tables.calibration import calibration_table
from g2d.tables.controls import controls_table, seen_in_training
from g2d.tables.disputes import dispute_table
from g2d.tables.families import comparison_table
from g2d.tables.frames import read_table, write_table
from g2d.tables.frontier import calibration_of, costs_of, frontier_table, matched_table
from g2d.tables.harvest import auto_table, correlation_points, correlation_table, harvest_table
from g2d.tables.margins import margin_table
from g2d.tables.paper import published_table
from g2d.tables.parts import budget_table, decomposition_table
from g2d.tables.power import power_table, variance_table
from g2d.tables.regimes import regime_table, spent_on
from g2d.tables.selection import CANDIDATE_COLUMNS, selection_table
from g2d.tables.sweep import sweep_bills
from g2d.tables.synthesis import synthesis_table


def main(snakemake):
    with stage(snakemake):
        config, out = load(snakemake.params.config), snakemake.output
        records = {key: read_policy(f"results/{key.folder}/policy.json") for key in grid.policies(config)}
        policies, columns = grid.with_steps_taken(records), (*TEXTLESS, BUDGET_VERDICTS)
        evaluations = {
            (policy, benchmark): read_rollouts(f"results/{policy.folder}/eval/{benchmark}.parquet", columns)
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
        for (policy, _), place in drawn_beside(config).items():
            bills[policy] += read_cost(f"results/{place}.cost.json").records
        for policy in policies if config.open_ended else []:
            bills[policy] += read_cost(f"results/{policy.folder}/open-ended/cost.json").records
        if config.sweep:
            tried = {
                key: [
                    record
                    for file in ("cost.json", f"eval/{DEVELOPMENT}.cost.json")
                    for record in read_cost(f"results/{key.folder}/{file}").records
                ]
                for _, key in candidate_policies(config)
            }
            bills |= sweep_bills(tried, [record for bill in bills.values() for record in bill])
        measured = {
            policy: records[policy].settings
            | {"tokens": sum(record.tokens_generated for record in costs[policy].records)}
            for policy in trained
        }
        harvested = {
            key: read_rollouts(f"results/{key.folder}/rollouts.parquet", TEXTLESS) for key in grid.harvests(config)
        }
        summaries = {key: read_informativeness(f"results/{key.folder}/informativeness.json") for key in harvested}
        counts = {key: success_counts(rollouts) for key, rollouts in harvested.items()}
        levels = {
            model: read_table(f"results/{model}/calibration/levels.csv", LEVEL_COLUMNS) for model in config.models
        }
        points = correlation_points(summaries, evaluations)
        calibrated = {policy: calibration_of(cost.records) for policy, cost in costs.items()}
        results = main_table(evaluations, hours, {policy: own["device_hours"] for policy, own in calibrated.items()})
        write_table(out.main, results)
        write_table(out.published, published_table(results, config))
        if out.get("bridging"):
            write_table(out.bridging, bridging_table(results, config))
        write_differences(config, out, evaluations)
        write_table(out.decomposition, decomposition_table(evaluations))
        write_table(out.budgets, budget_table(evaluations))
        write_table(out.harvest, harvest_table(summaries, counts))
        write_table(out.correlations, correlation_table(points))
        changes = grid.ablation_changes(config)
        write_table(out.ablations, ablation_table(evaluations, hours, changes, measured))
        write_regimes(config, out, evaluations, hours, costs, measured)
        if out.get("auto"):
            probes = {
                key: read_table(f"results/{key.folder}/probes.csv", PROBE_COLUMNS) for key in grid.auto_warmups(config)
            }
            write_table(out.auto, auto_table(probes))
        if out.get("selection"):
            tried = {key: f"results/{key.folder}/selection.csv" for key in checkpoints(config)}
            write_table(out.selection, selection_table({k: read_table(tried[k], CANDIDATE_COLUMNS) for k in tried}))
        write_table(out.calibration, calibration_table(levels))
        drawn = {key.folder: rollouts for key, rollouts in harvested.items()}
        evaluated = {f"{policy.folder}/eval/{name}": frame for (policy, name), frame in evaluations.items()}
        write_table(out.disputes, dispute_table(drawn | evaluated))
        attempts = read_attempts("results/attempts")  # no input: what a failed job cost makes no table stale
        write_table(out.cost, cost_table(bills, attempts))
        write_table(out.attempts, attempt_table(attempts))


def write_differences(config, out, evaluations):
    """Which differences there are, and which this grid can see."""
    margin = (config.frontier or Frontier()).margin
    write_table(out.comparisons, comparison_table(evaluations))
    write_table(out.margins, margin_table(evaluations, margin))
    write_table(out.power, power_table(evaluations, margin))
    write_table(out.variance, variance_table(evaluations))
    if out.get("synthesis"):
        write_table(out.synthesis, synthesis_table(evaluations))


def write_regimes(config, out, evaluations, hours, costs, measured):
    """What compares regimes and rewards, each table where the configuration has it."""
    spent = {}
    if out.get("regimes") or out.get("frontier"):
        spent = {key: spent_on(key, cost.records, config) for key, cost in costs.items()}
    if out.get("regimes"):
        write_table(out.regimes, regime_table(evaluations, hours, spent))
    if out.get("frontier"):
        margin = (config.frontier or Frontier()).margin
        shared = {key: calibration_of(cost.records) for key, cost in costs.items()}
        paid = {key: costs_of(key, cost.records, spent[key], config) for key, cost in costs.items()}
        write_table(out.frontier, frontier_table(evaluations, paid, margin, shared))
        write_table(out.matched, matched_table(evaluations, paid))
    if out.get("controls"):
        twins = controls(config)
        seen = {key: seen_in_training(learnt_from(config, key)) for key in costs if key.regime in twins}
        write_table(out.controls, controls_table(evaluations, twins, seen))
    if out.get("equal_compute"):
        write_table(out.equal_compute, equal_compute_table(evaluations, hours, measured))


if __name__ == "__main__":
    main(snakemake)
