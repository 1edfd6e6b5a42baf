"""The version of the package, which messages name."""

VERSION = "0.1.0.dev0"
