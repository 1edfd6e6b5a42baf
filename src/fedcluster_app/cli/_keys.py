"""Parameters of commands: options, keys of the study file, or both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fedcluster.errors import InputError
from fedcluster.recipes.specifications import Fit, declared
from fedcluster_app.cli._options import (
    KINDS,
    OPTIONS,
    OWN,
    PLAIN,
    Set,
    algorithms,
    key_of,
    load_named,
    named,
    number_of_clusters,
)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace specifications among the parameters of a command by options and keys.

    A parameter whose type is a dataclass stands for its fields that `parameter` or `key` declares;
    the command receives the specification, or of a fit the words that say its kind. A field is an
    option of the command, a key of a study file, or both. What the command line says counts before
    the file. A parameter ``said`` receives what both say.
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    kinds = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    fields = {name: declared(kind) for name, kind in kinds.items()}
    keys = {f.name: key_of(kinds[name], f.name) for name, own in fields.items() for f in own}
    keys |= {name: tuple(PLAIN[name].split(".")) for name in signature.parameters if name in PLAIN}
    is_fit = command.__name__ == "fit"  # of whose results a study file tells where they go
    keys = {name: each for name, each in keys.items() if each and (is_fit or name != "out")}
    options = {
        each.name: each
        for name, own in signature.parameters.items()
        for each in (
            map(_option, fields[name])
            if name in kinds
            else [own.replace(annotation=hints[name], kind=keyword)]
        )
        if each.name not in ("said", "context") and is_option(each.name, keys)
    }
    if not OPTIONS.issuperset(keys):
        options["settings"] = inspect.Parameter("settings", keyword, default=None, annotation=Set)

    @wraps(command)
    def call(context: typer.Context, **values: Any) -> Any:
        said = _Said.of(context, keys, values)
        said.fill(values, options)
        load_named(values.get("plugins", values.pop("_plugins", None)))
        for name, kind in kinds.items():
            own = {f: values.pop(f.name, None) for f in fields[name]}
            for each, value in own.items():
                said.check_given(each, value)
            plain = {f.name: v.value if isinstance(v, StrEnum) else v for f, v in own.items()}
            values[name] = (dict if kind is Fit else kind)(
                **{f: v for f, v in plain.items() if v is not None}
            )
        more = {"context": context, "said": said.content}
        return command(**values, **{k: v for k, v in more.items() if k in signature.parameters})

    options["context"] = inspect.Parameter("context", keyword, annotation=typer.Context)
    every = sorted(options.values(), key=lambda each: each.default is not each.empty)
    call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in every}
    return call


def is_option(name: str, keys: Mapping[str, Any]) -> bool:
    """Return whether a parameter of a command is an option or argument, not only a key."""
    return name in OPTIONS or name not in keys


ROLES = ("label_column", "id_column")
"""Keys of columns that are never clustered by, though a command has no other use for them."""


class _Said:
    """What a study file and the command line say.

    Parameters
    ----------
    context : typer.Context
        The call.
    keys : mapping of str to tuple of str
        The keys of the command's parameters.
    content, settings : dict
        What the file says, with what ``--set`` says, and the latter alone.
    """

    def __init__(
        self,
        context: typer.Context,
        keys: Mapping[str, tuple[str, ...]],
        content: dict[str, Any],
        settings: dict[str, Any],
    ) -> None:
        self.context, self.keys = context, keys
        self.content, self.settings = content, settings

    @classmethod
    def of(
        cls, context: typer.Context, keys: Mapping[str, tuple[str, ...]], values: dict[str, Any]
    ) -> _Said:
        """Read the study file among the files of a call, which are replaced by those of its sites.

        Raises
        ------
        InputError
            If a key is unknown, or this command has no use for one that ``--set`` says.
        """
        files, settings = values.get("files") or [], values.pop("settings", None) or []
        if not (settings or any(file.lower().endswith(".toml") for file in files)):
            return cls(context, keys, {}, {})
        from fedcluster_app.cli import _study as study

        content, others = study.study_in(files) if "sites" in keys else ({}, files)
        said = study.settings_in(settings)
        for path, _ in study.leaves(said):
            if not any(path[: len(each)] == each for each in keys.values()):
                raise InputError(
                    f"--set {'.'.join(path)}: {context.command_path} has no use for this key"
                )
        is_read = content.get("sites") and not others
        roles = [content[role] for role in ROLES if role in content and role not in keys]
        if roles and "exclude" in keys and "columns" not in content:
            content["exclude"] = list(dict.fromkeys([*content.get("exclude", ()), *roles]))
        content = study.nested({**dict(study.leaves(content)), **dict(study.leaves(said))})
        if "files" in values:
            sites = content.get("sites", {}) if is_read else {}
            values["files"] = others + study.arguments_of(sites, named="engine" not in content)
        return cls(context, keys, content, said)

    def fill(self, values: dict[str, Any], options: Collection[str]) -> None:
        """Put values of keys into those of options, unless these are typed."""
        for name in self.keys:
            source = self.context.get_parameter_source(name) if name in options else None
            if source is not None and source.name == "COMMANDLINE":
                self.add(name, values[name])
            elif (found := self.found(name)) is not None:
                values[name] = Path(found) if name == "out" else found

    def found(self, name: str, settings: bool = False) -> Any:
        """Return the value of a parameter's key, None if nothing says it."""
        found: Any = self.settings if settings else self.content
        for part in self.keys[name]:
            found = found.get(part) if isinstance(found, dict) else None
        if name == "n_clusters" and isinstance(found, str):
            return number_of_clusters(found)
        return tuple(found) if isinstance(found, list) else found

    def add(self, name: str, value: Any) -> None:
        """Note the value of an option.

        Raises
        ------
        InputError
            If ``--set`` says another one.
        """
        from fedcluster.frames.columns import column_list

        if name in ("columns", "exclude", "categories"):
            value = column_list(value, f"--{name}")
        plain = value.value if isinstance(value, StrEnum) else value
        plain = str(plain) if isinstance(plain, Path) else plain
        other = self.found(name, settings=True)
        if other is not None and other != (tuple(plain) if isinstance(plain, list) else plain):
            raise InputError(
                f"{named(name)} and --set {'.'.join(self.keys[name])} say two different things; "
                "say one of them"
            )
        table = self.content
        *tables, last = self.keys[name]
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = plain

    def check_given(self, declared: Field[Any], value: Any) -> None:
        """Raise an error if a parameter without a default has no value."""
        if value is None and declared.default is MISSING and declared.default_factory is MISSING:
            option = " / ".join(map(repr, declared.metadata["flags"]))
            raise InputError(f"Missing option {option}; see {self.context.command_path} --help")


def _option(declared: Field[Any]) -> inspect.Parameter:
    """Return the option of a field of a specification."""
    metadata = declared.metadata
    kind: Any = KINDS.get(str(declared.type).split(" | ")[0], str)
    default: Any = declared.default if isinstance(declared.default, kind) else None
    default = None if declared.default is MISSING else default
    shown = {key: value for key, value in metadata.items() if key not in OWN}
    if declared.name == "n_clusters":
        shown["parser"], kind = number_of_clusters, Any
    if declared.name == "algorithm":
        shown["autocompletion"] = algorithms
    if "choices" in metadata:
        make: Any = StrEnum  # mypy takes the call for the definition of a class
        kind = make(declared.name, {name.upper(): name for name in metadata["choices"]})
        default = None if default is None else kind(default)
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[
            kind if default is not None else kind | None,
            typer.Option(*metadata["flags"], help=metadata["help"], **shown),
        ],
    )
