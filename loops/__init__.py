"""Graph, nodes, policies, run config, runner, archive, rescoring and the command line."""
