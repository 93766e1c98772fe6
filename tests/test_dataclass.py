"""Frozen dataclasses behave as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = {"ours": dataclass, "standard": dataclasses.dataclass}


def define(form: Callable[..., Any]) -> dict[str, Any]:
    """Return classes of every kind of field that the package has."""

    @form(frozen=True, kw_only=True)
    class Plain:
        """One."""

        kind: ClassVar[str] = "plain"
        size: int
        names: list[str] = dataclasses.field(default_factory=list, compare=False)
        secret: str = dataclasses.field(default="", repr=False)
        scale: float = 1.0

        @cached_property
        def double(self) -> int:
            return 2 * self.size

    @form(frozen=True, kw_only=True)
    class Derived(Plain):
        """Made of another one."""

        size: int = 7
        total: int = dataclasses.field(init=False)
        seen: tuple[int, ...] = dataclasses.field(init=False, default=(), compare=False)
        memory: dict[str, int] = dataclasses.field(init=False, default_factory=dict, compare=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("size is negative")
            object.__setattr__(self, "total", self.size + len(self.names))

    @form(frozen=True, kw_only=True, eq=False)
    class Single:
        """Equal to itself alone."""

        size: int

    @form(frozen=True, kw_only=True)
    class Own:
        """With methods of its own."""

        size: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        def __repr__(self) -> str:
            return "mine"

    @form(frozen=True, kw_only=True)
    class Empty:
        """Nothing."""

    @form(frozen=True)
    class Placed:
        """Of positions."""

        size: int
        names: tuple[str, ...] = ()
        scale: float = dataclasses.field(default=1.0, kw_only=True)

    return {kind.__name__: kind for kind in (Plain, Derived, Single, Own, Empty, Placed)}


OURS, STANDARD = (define(form) for form in FORMS.values())
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Plain", {"size": 3}),
    ("Plain", {"size": 3, "names": ["a"], "secret": "s", "scale": 0.5}),
    ("Derived", {}),
    ("Derived", {"size": 2, "names": ["a", "b"]}),
    ("Single", {"size": 1}),
    ("Own", {"size": 1}),
    ("Empty", {}),
    ("Placed", {"size": 1}),
    ("Placed", {"size": 1, "names": ("a",), "scale": 2.0}),
]


@dataclass(frozen=True, kw_only=True)
class Pickled:
    """Found by its name, as pickle needs it."""

    size: int
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(("name", "values"), CASES)
def test_values_are_those_of_the_standard_library(name: str, values: dict[str, Any]) -> None:
    ours, standard = OURS[name](**values), STANDARD[name](**values)
    assert vars(ours) == vars(standard)
    assert repr(ours).split(".")[-1] == repr(standard).split(".")[-1]
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert copy.deepcopy(vars(copy.copy(ours))) == vars(standard)


@pytest.mark.parametrize(("name", "values"), CASES)
def test_comparison_is_that_of_the_standard_library(name: str, values: dict[str, Any]) -> None:
    for _, others in (case for case in CASES if case[0] == name):
        ours = [OURS[name](**x) for x in (values, others)]
        standard = [STANDARD[name](**x) for x in (values, others)]
        assert (ours[0] == ours[1]) is (standard[0] == standard[1])
        assert (ours[0] == 3) is (standard[0] == 3)
        if name != "Single":
            assert [hash(x) for x in ours] == [hash(x) for x in standard]
    sizes = [len({classes[name](**values) for _ in range(2)}) for classes in (OURS, STANDARD)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", OURS)
def test_classes_are_described_as_by_the_standard_library(name: str) -> None:
    ours, standard = OURS[name], STANDARD[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))
    assert [x.name for x in dataclasses.fields(ours)] == [
        x.name for x in dataclasses.fields(standard)
    ]
    assert ours.__match_args__ == standard.__match_args__


@pytest.mark.parametrize(
    ("name", "positional", "values"),
    [
        ("Plain", (), {}),
        ("Plain", (3,), {}),
        ("Plain", (), {"size": 3, "sizes": 4}),
        ("Derived", (), {"total": 3}),
        ("Empty", (), {"size": 3}),
        ("Placed", (), {}),
        ("Placed", (1, (), 2.0), {}),
        ("Placed", (1,), {"size": 3}),
    ],
)
def test_wrong_arguments_are_refused(
    name: str, positional: tuple[Any, ...], values: dict[str, Any]
) -> None:
    for classes in (STANDARD, OURS):
        with pytest.raises(TypeError) as refused:
            classes[name](*positional, **values)
    wrong = set(values) - {"size"} or ({"size"} if values else set())
    assert all(repr(key) in str(refused.value) for key in wrong)


def test_positions_are_taken_in_order() -> None:
    placed = OURS["Placed"]
    assert placed(1, ("a",), scale=2.0) == placed(size=1, names=("a",), scale=2.0)
    match placed(1, ("a",)):
        case placed(size, names):
            assert (size, names) == (1, ("a",))


def test_what_a_class_itself_refuses_is_raised() -> None:
    with pytest.raises(ValueError, match="negative"):
        OURS["Derived"](size=-1)
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(OURS["Derived"](), size=-1)


@pytest.mark.parametrize("classes", [OURS, STANDARD], ids=list(FORMS))
def test_nothing_is_set_or_deleted(classes: dict[str, Any]) -> None:
    made = classes["Plain"](size=3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'size'"):
        made.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError, match="'size'"):
        del made.size
    assert made.double == 6
    assert dataclasses.replace(made, size=4).double == 8


def test_an_instance_is_pickled() -> None:
    made = Pickled(size=3, names=("a",))
    assert pickle.loads(pickle.dumps(made)) == made


def test_other_forms_are_left_to_the_standard_library() -> None:
    @dataclass
    class Mutable:
        """Of positions."""

        size: int = 1

    made = Mutable(2)
    made.size = 3
    assert made == Mutable(3)
