"""Options of the subcommands, with their help texts."""
