"""A policy's KL divergence from M0 on the policy's answers."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.files import atomic
    from g2d.jobs.stage import stage
    from g2d.policies.policy import read_own_policy
    from g2d.problems import read_problems
    from g2d.problems.prompts import Prompt
    from g2d.problems.subsets import some_problems
    from g2d.rollouts.divergence import own_answers
    from g2d.rollouts.engine import Decoding

    with stage(snakemake) as meter:
        settings = dict(snakemake.params.settings["drift"])
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        problems = some_problems(read_problems(snakemake.input.benchmark), settings.pop("problems"), settings["seed"])
        policy, base = (read_own_policy(file) for file in (snakemake.input.policy, snakemake.input.base))
        answers = own_answers(policy, base, problems, prompt, Decoding(temperature=1.0, top_p=1.0, **settings))
        meter.tokens_generated = int(answers["token_count"].sum())
        with atomic(snakemake.output.answers) as draft:
            answers.to_parquet(draft, index=False)


if __name__ == "__main__":
    run(main, snakemake)
