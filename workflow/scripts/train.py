"""Train a policy of the grid."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.stages.train_policy import training

    with training(snakemake) as job:
        trained = job.train()
        if trained.probes is not None:
            from g2d.tables.frames import write_table

            write_table(snakemake.output.probes, trained.probes)
        job.leave(trained)


if __name__ == "__main__":
    run(main, snakemake)
