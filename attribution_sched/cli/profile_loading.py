"""A user's ``MODULE:FACTORY``: imported, called once, and made into something that can be stepped."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import TaskError, nearest, problem

if TYPE_CHECKING:
    from torch import Tensor, nn

FORM = "Write MODULE:FACTORY, for example mypackage.models:resnet or ./train.py:make"
SHAPE = re.compile(r"(?P<sizes>\d+(x\d+)*)(:int(?P<below>\d+))?")


class UsersError(Exception):
    """The user's own code raised; the message is one line, the cause has the rest."""


@dataclass(frozen=True, eq=False)
class Steppable:
    """What is profiled.

    Attributes:
        name: Of its class or function.
        model: A module; a plain function is wrapped into one.
        inputs: What a step is given.
        own_step: Whether it is a plain function that does a whole step by itself.
    """

    name: str
    model: nn.Module
    inputs: Tensor | tuple[Any, ...] | Mapping[str, Any]
    own_step: bool = False


def load(spec: str, shape: str | None, show: Callable[[str], None] | None = None) -> Steppable:
    """Import, call, and check what comes back.

    Args:
        spec: ``MODULE:FACTORY``, the module dotted or a path.
        shape: Of a random input, for a factory that returns a module alone.
        show: Shown the user's own traceback, should their code raise.

    Raises:
        TaskError: If there is no such module or factory, or it returns something else.
        UsersError: If the user's code raises.
    """
    where, colon, what = spec.rpartition(":")
    if not colon or not where or not what:
        raise TaskError(problem("MODULE:FACTORY", spec, "must be a module, a colon and a name in it", FORM))
    given = None if shape is None else random_input(shape)
    module = _module(where, show)
    factory = getattr(module, what, None)
    if factory is None:
        names = [name for name in vars(module) if not name.startswith("_") and callable(getattr(module, name))]
        raise TaskError(problem("FACTORY", what, f"is not in {where}", nearest(what, names) if names else FORM))
    if not callable(factory):
        rule = f"is {_a(factory)}, not something that can be called"
        raise TaskError(problem("FACTORY", what, rule, "Name a function that returns a module and its inputs"))
    made = _their(lambda: factory(), f"{what}()", show)
    return _steppable(what, made, given)


def random_input(text: str) -> Tensor:
    """A random tensor: ``8x3x224x224`` of standard normal numbers, ``4x128:int30522`` of whole ones below that.

    Raises:
        TaskError: If the text is not of that form, or there is no room for so many numbers.
    """
    found = SHAPE.fullmatch(text)
    sizes = [] if found is None else [int(size) for size in found["sizes"].split("x")]
    if found is None or not all(sizes) or (found["below"] is not None and int(found["below"]) < 1):
        fix = "For example --input 8x3x224x224, or --input 4x128:int30522 for tokens"
        raise TaskError(problem("--input", text, "must be sizes joined by x", fix))
    import torch

    generator = torch.Generator().manual_seed(0)
    try:
        if found["below"] is not None:
            return torch.randint(0, int(found["below"]), sizes, generator=generator)
        return torch.randn(sizes, generator=generator)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        rule = "is more than this machine has memory for, or than a whole number of a tensor can be"
        raise TaskError(problem("--input", text, rule, "Use smaller sizes")) from error


def _module(where: str, show: Callable[[str], None] | None) -> ModuleType:
    path = Path(where)
    if where.endswith(".py") or "/" in where:
        if not path.is_file():
            names = [f"{path.parent}/{each.name}" for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
            raise TaskError(problem("MODULE", where, "is not a file", nearest(where, names) if names else FORM))
        # A script finds what lies beside it, as it does when Python runs it.
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise TaskError(problem("MODULE", where, "is not a Python file", FORM))
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem], loader = module, spec.loader
        _their(lambda: loader.exec_module(module), where, show)
        return module
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        there = importlib.util.find_spec(where) is not None
    except (ImportError, ValueError, AttributeError):
        there = False
    if not there:
        beside = [each.stem for each in Path.cwd().glob("*.py")]
        hint = nearest(where, beside) if beside else ""
        fix = hint if hint.startswith("Did you mean") else "Run it in the module's folder, or give its path"
        raise TaskError(problem("MODULE", where, "cannot be found", fix))
    found: ModuleType = _their(lambda: importlib.import_module(where), where, show)
    return found


def _their(work: Callable[[], Any], what: str, show: Callable[[str], None] | None) -> Any:
    """Run the user's code; its error is told in one line."""
    try:
        return work()
    except Exception as error:
        raise users_error(what, error, show) from error


def users_error(what: str, error: Exception, show: Callable[[str], None] | None) -> UsersError:
    """The error for something the user's code raised.

    Args:
        what: What was being run.
        error: What it raised.
        show: Shown the whole traceback.
    """
    if show is not None:
        show("".join(traceback.format_exception(error)))
    more = "" if show is not None else ". Add --traceback to see where"
    return UsersError(f"{what} raised {type(error).__name__}: {' '.join(str(error).split())}{more}")


def _steppable(name: str, made: Any, given: Tensor | None) -> Steppable:
    from torch import nn

    model: Any = made
    inputs: Any = given
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        model, own = made
        inputs = own if given is None else given
    if isinstance(model, nn.Module):
        if inputs is None:
            inputs = getattr(model, "example_input_array", None)
        if inputs is None:
            rule = "returned a module without inputs"
            fix = "Return (module, example_inputs), or give --input 8x3x224x224"
            raise TaskError(problem("FACTORY", name, rule, fix))
        listed = tuple(inputs) if isinstance(inputs, list) else inputs
        return Steppable(type(model).__name__, model, listed)
    if callable(model) and not isinstance(model, type):
        listed = () if inputs is None else inputs
        return Steppable(getattr(model, "__name__", name), _wrapped(model), listed, own_step=True)
    rule = f"returned {_a(made)}"
    fix = "Return a torch.nn.Module with its inputs, (module, inputs), or a function that does one step"
    raise TaskError(problem("FACTORY", name, rule, fix))


def _wrapped(function: Callable[..., Any]) -> nn.Module:
    import torch
    from torch import nn

    class Step(nn.Module):
        """A plain function as a module; gradients are its own business."""

        def forward(self, *given: Any, **named: Any) -> Any:
            with torch.enable_grad():
                return function(*given, **named)

    return Step()


def _a(thing: Any) -> str:
    name = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
