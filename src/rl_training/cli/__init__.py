"""The command line: one small module per verb, each calling the API."""
