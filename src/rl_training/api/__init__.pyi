"""Typed names of `rl_training.api`. A new algorithm adds a class here; a test says so."""

from rl_training.algorithms.registry import get_algorithm_spec as get_algorithm_spec
from rl_training.algorithms.registry import list_algorithm_specs as list_algorithm_specs
from rl_training.api.algorithms import ManagedAlgorithm as ManagedAlgorithm
from rl_training.api.algorithms import algorithm as algorithm
from rl_training.api.algorithms import load as load
from rl_training.api.catalog import OptionGroup as OptionGroup
from rl_training.api.catalog import builtin_datasets as builtin_datasets
from rl_training.api.catalog import load_plugin as load_plugin
from rl_training.api.catalog import nested_options as nested_options
from rl_training.api.catalog import option_groups as option_groups
from rl_training.api.catalog import resolve_config as resolve_config
from rl_training.api.catalog import unset_options as unset_options
from rl_training.api.data import action_bounds as action_bounds
from rl_training.api.data import check_dataset as check_dataset
from rl_training.api.data import collect_dataset as collect_dataset
from rl_training.api.data import convert_dataset as convert_dataset
from rl_training.api.data import describe_dataset as describe_dataset
from rl_training.api.data import export_replay as export_replay
from rl_training.api.data import parse_observations as parse_observations
from rl_training.api.data import read_observations as read_observations
from rl_training.api.data import save_actions as save_actions
from rl_training.api.installation import installation_problems as installation_problems
from rl_training.api.runs import evaluate as evaluate
from rl_training.api.runs import predict as predict
from rl_training.api.runs import resume as resume
from rl_training.api.runs import summarize_results as summarize_results
from rl_training.api.runs import train as train
from rl_training.api.schema import config_schema as config_schema
from rl_training.api.schema import option_schema as option_schema
from rl_training.api.sweeps import train_seeds as train_seeds
from rl_training.config.packaged import packaged_configs as packaged_configs
from rl_training.data.checks.dataset_checks import Finding as Finding
from rl_training.data.checks.dataset_checks import is_wrong as is_wrong
from rl_training.ope.card import CardEstimate as CardEstimate
from rl_training.ope.card import Interval as Interval
from rl_training.ope.card import ScoreCard as ScoreCard
from rl_training.ope.card import estimator_label as estimator_label
from rl_training.ope.fit_runs import FitInterruptedError as FitInterruptedError
from rl_training.ope.fitted_q import FitOptions as FitOptions
from rl_training.ope.judging import judge as judge
from rl_training.ope.selecting import Ranking as Ranking
from rl_training.ope.selecting import select as select
from rl_training.reports.card_page import check_card as check_card
from rl_training.reports.card_page import write_card as write_card
from rl_training.reports.comparison import Aggregate as Aggregate
from rl_training.reports.comparison import BrokenRun as BrokenRun
from rl_training.reports.comparison import ComparedRun as ComparedRun
from rl_training.reports.comparison import Comparison as Comparison
from rl_training.reports.comparison import Group as Group
from rl_training.reports.comparison import Improvement as Improvement
from rl_training.reports.comparison import Profile as Profile
from rl_training.reports.comparison import Series as Series
from rl_training.reports.comparison import Task as Task
from rl_training.reports.comparison import compare_runs as compare_runs
from rl_training.reports.configurations import differences as differences
from rl_training.reports.configurations import group_by_configuration as group_by_configuration
from rl_training.reports.configurations import summarize_seeds as summarize_seeds
from rl_training.reports.curves import Curve as Curve
from rl_training.reports.curves import metric_curves as metric_curves
from rl_training.reports.curves import metric_names as metric_names
from rl_training.reports.figures import write_figures as write_figures
from rl_training.reports.pages.page import check_page_packages as check_page_packages
from rl_training.reports.report_page import write_report as write_report
from rl_training.reports.search_page import write_search_figures as write_search_figures
from rl_training.reports.search_page import write_search_page as write_search_page
from rl_training.reports.sides import Side as Side
from rl_training.reports.sides import SideComparison as SideComparison
from rl_training.reports.sides import TaskComparison as TaskComparison
from rl_training.reports.sides import compare_sides as compare_sides
from rl_training.reports.statistics import Summary as Summary
from rl_training.reports.tables import comparison_facts as comparison_facts
from rl_training.reports.tables import side_facts as side_facts
from rl_training.reports.tables import write_tables as write_tables
from rl_training.reports.verdicts import Verdict as Verdict
from rl_training.runs.durations import duration as duration
from rl_training.runs.layout import check_output_dir as check_output_dir
from rl_training.runs.layout import runs_in as runs_in
from rl_training.runs.metadata import package_versions as package_versions
from rl_training.runs.metrics import Sink as Sink
from rl_training.runs.metrics import register_logger as register_logger
from rl_training.runs.reading import RunReport as RunReport
from rl_training.runs.reading import Score as Score
from rl_training.runs.reading import read_run as read_run
from rl_training.runs.search_record import SearchRecord as SearchRecord
from rl_training.runs.search_record import SearchTrial as SearchTrial
from rl_training.runs.search_record import is_search as is_search
from rl_training.runs.search_record import read_search as read_search
from rl_training.runtime.callbacks import Callback as Callback
from rl_training.runtime.checkpoints.directories import checkpoints_of as checkpoints_of
from rl_training.runtime.checkpoints.directories import find_checkpoint as find_checkpoint
from rl_training.runtime.config.files import load_config as load_config
from rl_training.runtime.config.files import parse_assignments as parse_assignments
from rl_training.runtime.config.train_config import TrainConfig as TrainConfig
from rl_training.runtime.config.train_config import group_classes as group_classes
from rl_training.runtime.trainer import TrainResult as TrainResult
from rl_training.runtime.trust import resume_command as resume_command
from rl_training.sweeps.benchmarking import SuiteResult as SuiteResult
from rl_training.sweeps.benchmarking import SuiteRun as SuiteRun
from rl_training.sweeps.benchmarking import place_of_table as place_of_table
from rl_training.sweeps.benchmarking import replace_table as replace_table
from rl_training.sweeps.benchmarking import write_table as write_table
from rl_training.sweeps.board import TrialBoard as TrialBoard
from rl_training.sweeps.board import trial_cells as trial_cells
from rl_training.sweeps.board import trial_text as trial_text
from rl_training.sweeps.description import Sweep as Sweep
from rl_training.sweeps.description import Trial as Trial
from rl_training.sweeps.directory import SweepDirectory as SweepDirectory
from rl_training.sweeps.directory import TrialRecord as TrialRecord
from rl_training.sweeps.driver import Outcome as Outcome
from rl_training.sweeps.executor import Limits as Limits
from rl_training.sweeps.local import LocalExecutor as LocalExecutor
from rl_training.sweeps.probe import Estimate as Estimate
from rl_training.sweeps.probe import estimate as estimate
from rl_training.sweeps.ray_executor import RayCluster as RayCluster
from rl_training.sweeps.ray_executor import RayOptions as RayOptions
from rl_training.sweeps.ray_executor import ray_cluster as ray_cluster
from rl_training.sweeps.running import RunOptions as RunOptions
from rl_training.sweeps.running import SweepResult as SweepResult
from rl_training.sweeps.running import check_problems as check_problems
from rl_training.sweeps.running import run_sweep as run_sweep
from rl_training.sweeps.running import trials_in as trials_in
from rl_training.sweeps.search import Search as Search
from rl_training.sweeps.search_replay import search_in as search_in
from rl_training.sweeps.search_summary import plan_search as plan_search
from rl_training.sweeps.search_summary import resume_search_command as resume_search_command
from rl_training.sweeps.search_summary import search_facts as search_facts
from rl_training.sweeps.seeds import SeedsFailedError as SeedsFailedError
from rl_training.sweeps.seeds import run_seeds as run_seeds
from rl_training.sweeps.seeds import seed_trials as seed_trials
from rl_training.sweeps.status import TrialStatus as TrialStatus
from rl_training.sweeps.suites import Suite as Suite
from rl_training.sweeps.suites import list_suites as list_suites
from rl_training.sweeps.summary import PointSummary as PointSummary
from rl_training.sweeps.summary import resume_sweep_command as resume_sweep_command
from rl_training.sweeps.summary import summarize_points as summarize_points
from rl_training.sweeps.summary import sweep_facts as sweep_facts
from rl_training.sweeps.tuning import TuneEvents as TuneEvents
from rl_training.sweeps.tuning import TuneResult as TuneResult
from rl_training.sweeps.tuning import tune as tune
from rl_training.sweeps.watching import Sight as Sight
from rl_training.sweeps.watching import WatchedTrial as WatchedTrial
from rl_training.sweeps.watching import Watcher as Watcher

class AWAC(ManagedAlgorithm): ...
class BC(ManagedAlgorithm): ...
class CQL(ManagedAlgorithm): ...
class CRR(ManagedAlgorithm): ...
class DDPG(ManagedAlgorithm): ...
class DQN(ManagedAlgorithm): ...
class HER(ManagedAlgorithm): ...
class IQL(ManagedAlgorithm): ...
class REDQ(ManagedAlgorithm): ...
class RLPD(ManagedAlgorithm): ...
class ReBRAC(ManagedAlgorithm): ...
class SAC(ManagedAlgorithm): ...
class TD3(ManagedAlgorithm): ...
class TD3BC(ManagedAlgorithm): ...
class TQC(ManagedAlgorithm): ...
