"""Names that users import: a managed class for every registered algorithm, and functions.

Names are looked up when they are first used, so that importing this room costs no torch import.
`rl_training.api.TD3BC` and the like are made from the registry; `__init__.pyi` lists them for type
checkers.

- `algorithms`  the managed classes: learn, evaluate, predict, save, load
- `runs`        train, resume, evaluate and predict as functions
- `sweeps`      many runs: several seeds as a function
- `data`        describe, check, convert and collect datasets
- `catalog`     algorithms, packaged configurations, built-in datasets, options
- `schema`      JSON Schema of configurations and options
- `installation`  what is wrong with the installed package
- `machine`     cores, threads, device, cache: facts for `rl-training doctor`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "rl_training.api.algorithms": ("ManagedAlgorithm", "algorithm", "load"),
    "rl_training.api.runs": (
        "evaluate", "predict", "resume", "summarize_results", "train",
    ),
    "rl_training.api.sweeps": ("train_seeds",),
    "rl_training.api.data": (
        "action_bounds", "check_dataset", "collect_dataset", "convert_dataset", "describe_dataset",
        "export_replay", "parse_observations", "read_observations", "save_actions",
    ),
    "rl_training.api.catalog": (
        "OptionGroup", "builtin_datasets", "load_plugin", "nested_options", "option_groups",
        "resolve_config", "unset_options",
    ),
    "rl_training.api.installation": ("installation_problems",),
    "rl_training.api.schema": ("config_schema", "option_schema"),
    "rl_training.algorithms.registry": ("get_algorithm_spec", "list_algorithm_specs"),
    "rl_training.config.packaged": ("packaged_configs",),
    "rl_training.runtime.config.files": ("load_config", "parse_assignments"),
    "rl_training.ope.card": ("CardEstimate", "Interval", "ScoreCard", "estimator_label"),
    "rl_training.ope.fit_runs": ("FitInterruptedError",),
    "rl_training.ope.fitted_q": ("FitOptions",),
    "rl_training.ope.judging": ("judge",),
    "rl_training.ope.selecting": ("Ranking", "select"),
    "rl_training.reports.card_page": ("check_card", "write_card"),
    "rl_training.reports.comparison": (
        "Aggregate", "BrokenRun", "ComparedRun", "Comparison", "Group", "Improvement", "Profile",
        "Series", "Task",
        "compare_runs",
    ),
    "rl_training.reports.configurations": ("differences", "group_by_configuration", "summarize_seeds"),
    "rl_training.reports.curves": ("Curve", "metric_curves", "metric_names"),
    "rl_training.reports.figures": ("write_figures",),
    "rl_training.reports.pages.page": ("check_page_packages",),
    "rl_training.reports.report_page": ("write_report",),
    "rl_training.reports.search_page": ("write_search_figures", "write_search_page"),
    "rl_training.reports.sides": ("Side", "SideComparison", "TaskComparison", "compare_sides"),
    "rl_training.reports.statistics": ("Summary",),
    "rl_training.reports.tables": ("comparison_facts", "side_facts", "write_tables"),
    "rl_training.reports.verdicts": ("Verdict",),
    "rl_training.data.checks.dataset_checks": ("Finding", "is_wrong"),
    "rl_training.runs.durations": ("duration",),
    "rl_training.runs.layout": ("check_output_dir", "runs_in"),
    "rl_training.runs.metadata": ("package_versions",),
    "rl_training.runs.metrics": ("Sink", "register_logger"),
    "rl_training.runs.reading": ("RunReport", "Score", "read_run"),
    "rl_training.sweeps.benchmarking": ("SuiteResult", "SuiteRun", "place_of_table", "replace_table", "write_table"),
    "rl_training.sweeps.board": ("TrialBoard", "trial_cells", "trial_text"),
    "rl_training.sweeps.description": ("Sweep", "Trial"),
    "rl_training.sweeps.directory": ("SweepDirectory", "TrialRecord"),
    "rl_training.sweeps.driver": ("Outcome",),
    "rl_training.sweeps.executor": ("Limits",),
    "rl_training.sweeps.local": ("LocalExecutor",),
    "rl_training.sweeps.probe": ("Estimate", "estimate"),
    "rl_training.sweeps.ray_executor": ("RayCluster", "RayOptions", "ray_cluster"),
    "rl_training.sweeps.running": (
        "RunOptions", "SweepResult", "check_problems", "run_sweep", "trials_in",
    ),
    "rl_training.sweeps.suites": ("Suite", "list_suites"),
    "rl_training.runs.search_record": (
        "SearchRecord", "SearchTrial", "is_search", "read_search",
    ),
    "rl_training.sweeps.search": ("Search",),
    "rl_training.sweeps.search_replay": ("search_in",),
    "rl_training.sweeps.search_summary": ("plan_search", "resume_search_command", "search_facts"),
    "rl_training.sweeps.tuning": ("TuneEvents", "TuneResult", "tune"),
    "rl_training.sweeps.summary": (
        "PointSummary", "resume_sweep_command", "summarize_points", "sweep_facts",
    ),
    "rl_training.sweeps.seeds": ("SeedsFailedError", "run_seeds", "seed_trials"),
    "rl_training.sweeps.status": ("TrialStatus",),
    "rl_training.sweeps.watching": ("Sight", "WatchedTrial", "Watcher"),
    "rl_training.runtime.callbacks": ("Callback",),
    "rl_training.runtime.checkpoints.directories": ("checkpoints_of", "find_checkpoint"),
    "rl_training.runtime.config.train_config": ("TrainConfig", "group_classes"),
    "rl_training.runtime.trainer": ("TrainResult",),
    "rl_training.runtime.trust": ("resume_command",),
}  # fmt: skip
_SUBMODULES = (
    "algorithms",
    "catalog",
    "data",
    "installation",
    "machine",
    "runs",
    "schema",
    "sweeps",
)
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _SUBMODULES:  # asked here first by `from rl_training.api import machine`
        return import_module(f"rl_training.api.{name}")
    if not name.startswith("_"):
        from rl_training.algorithms.registry import list_algorithm_specs
        from rl_training.api.algorithms import managed_class

        for spec in list_algorithm_specs():
            if spec.class_name == name:
                return managed_class(spec)
    raise AttributeError(f"module 'rl_training.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    from rl_training.algorithms.registry import list_algorithm_specs

    return sorted({*__all__, *(spec.class_name for spec in list_algorithm_specs())})
