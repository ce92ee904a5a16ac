# What the grid consists of: its policies, harvests, tables and figures, and how a report calls them.

HARVESTS = grid.harvests(CONFIG)
PROBES = grid.probes(CONFIG)
POLICIES = grid.policies(CONFIG)
TRAINED = [policy for policy in POLICIES if policy.role != "base"]
AUTO_WARMUPS = grid.auto_warmups(CONFIG)
TABLES = {
    "main": "Table 1: accuracy and cost",
    "comparisons": "Which differences are real: paired tests",
    "decomposition": "Where a gain comes from",
    "budgets": "Accuracy by token budget",
    "harvest": "Table 2: informativeness of the harvest",
    "correlations": "Table 2: correlation with accuracy",
    "ablations": "Table 3: ablations",
    "calibration": "Table 4: difficulty calibration",
    "disputes": "Verifier: disputed answers",
    "cost": "The bill by policy and stage",
    "published": "The paper's Table 1 beside this grid's",
    "audit": "Published numbers recomputed",
    "attempts": "What the grid really cost, failed attempts included",
}
FACTORIAL = {model: files for model in CONFIG.models if (files := grid.factorial_files(CONFIG, model))}
if FACTORIAL:
    TABLES |= {
        "factorial": "Level x temperature: the cells",
        "factorial_effects": "Level x temperature: the effects",
    }
if POLICIES and any("grpo" in ablation.policies for ablation in CONFIG.ablations.values()):
    TABLES["equal_compute"] = "GRPO variants at equal compute"
if AUTO_WARMUPS:
    TABLES["auto"] = "Warm-up that stops by itself: its probes"
if CONFIG.probe.compare:
    TABLES |= {
        "advice": "Advice: which K",
        "advice_levels": "Advice: which levels",
        "advice_hours": "Advice: device-hours",
        "advice_check": "Advice: what the grid showed",
    }
FIGURES = ["accuracy", "informativeness", "gains", "budgets"]


def category(title):
    """A heading of the report's menu, which every page shows: a demonstration says so there too."""
    return f"{title} (synthetic demonstration)" if CONFIG.demonstration else title


def write_report(path):
    """Render the report of the finished grid, as `snakemake --report` does."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", workflow.main_snakefile, "--report", path]
    subprocess.run([*command, "--configfile", "results/config.yaml", "--quiet", "all"], check=True)


def caption_file(name):
    """The caption of a table or figure, relative to the working directory, so that a project can be moved."""
    return os.path.relpath(Path(workflow.basedir) / f"workflow/report/{name}.rst")
