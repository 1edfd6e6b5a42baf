"""The two interfaces of vantage6: tools 5.0 with sessions, and 4.15 without."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

try:
    from vantage6.algorithm.decorator import (
        algorithm_client,
        central,
        data_extraction,
        dataframe,
        federated,
        preprocessing,
    )

    SESSIONS = True
except ImportError:
    SESSIONS = False
    try:
        from vantage6.algorithm.tools.decorators import algorithm_client, data
    except ImportError:  # without vantage6 the functions are what they are

        def algorithm_client(function: Any) -> Any:
            """Return a function as it is."""
            return function

        def data(_n_databases: int) -> Any:
            """Return what returns a function as it is."""
            return algorithm_client


def central_function(function: Any) -> Any:
    """Let a function run once, with a client for starting tasks as its first argument."""
    run = algorithm_client(function)
    return central(run) if SESSIONS else run


def partial_function(function: Any) -> Any:
    """Let a function run at each organisation, with its name and data frame."""
    if SESSIONS:

        @wraps(function)
        def answer(frame: Any, **arguments: Any) -> Any:
            return function(site_name(int(os.environ["ORGANIZATION_ID"])), frame, **arguments)

        return federated(dataframe(1)(answer))

    @wraps(function)
    def answer_of(frame: Any, client: Any, **arguments: Any) -> Any:
        return function(site_name(client.organization_id), frame, **arguments)

    return algorithm_client(data(1)(answer_of))


def extraction_function(function: Any) -> Any:
    """Let a function read the data of a session; version 4 has no sessions."""
    return data_extraction(function) if SESSIONS else function


def preprocessing_function(function: Any) -> Any:
    """Let a function change the data frame of a session; version 4 has no sessions."""
    return preprocessing(function) if SESSIONS else function


def site_name(organization: int) -> str:
    """Return the site name of an organisation."""
    return f"organization {organization}"


def begin(
    client: Any, function: str, arguments: Mapping[str, Any], organizations: Sequence[int]
) -> Callable[[], Sequence[Any]]:
    """Start a task; return a function that waits for its results."""
    asked = {"method": function, "kwargs": arguments}
    given = {"method": function, "arguments": arguments} if SESSIONS else {"input_": asked}
    name = f"fedcluster {function}"
    task = client.task.create(organizations=list(organizations), name=name, **given)
    return lambda: client.wait_for_results(task_id=task["id"])
