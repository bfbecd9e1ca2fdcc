"""Configuration: errors, typed options, YAML. Imports nothing of the package.

- `errors`   every error that users see, and `Problem`, one thing wrong with a configuration
- `options`  `Options`, the base of every group of options, and `option`, one of its fields
- `yaml`     reading and writing YAML
- `packaged` names and texts of packaged configurations
- `text`     text on its way to a terminal
"""

from rl_training.config.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    EnvError,
    MissingExtraError,
    OutputError,
    Problem,
    RLTrainingError,
    RunError,
    suggest,
    unknown_key,
)
from rl_training.config.options import (
    Options,
    OptionsT,
    meaning_of_none,
    option,
    problems_of,
    type_name,
)
from rl_training.config.packaged import (
    packaged_config_text,
    packaged_configs,
    packaged_space_text,
    packaged_spaces,
    packaged_suite_text,
    packaged_suites,
)
from rl_training.config.text import first_line, lasting, visible, without_colours
from rl_training.config.yaml import dump_yaml, dump_yaml_value, parse_yaml

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DatasetError",
    "EnvError",
    "MissingExtraError",
    "Options",
    "OptionsT",
    "OutputError",
    "Problem",
    "RLTrainingError",
    "RunError",
    "dump_yaml",
    "dump_yaml_value",
    "first_line",
    "lasting",
    "meaning_of_none",
    "option",
    "packaged_config_text",
    "packaged_configs",
    "packaged_space_text",
    "packaged_spaces",
    "packaged_suite_text",
    "packaged_suites",
    "parse_yaml",
    "problems_of",
    "suggest",
    "type_name",
    "unknown_key",
    "visible",
    "without_colours",
]
