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

    @form(frozen=True, kw_only=True)
    class Hashed:
        """Hashed by other fields than it is compared by."""

        size: int
        names: list[str] = dataclasses.field(default_factory=list, hash=False)
        secret: str = dataclasses.field(default="", compare=False, hash=True)

    @form(frozen=True)
    class Nested:
        """Printed within itself."""

        inner: Any

    @form(frozen=True)
    class Called:
        """With calls and an initializer of its own."""

        size: int = 1

        def __init__(self, path: str) -> None:
            object.__setattr__(self, "size", len(path))

        def __call__(self, batch: int) -> int:
            return batch + self.size

    @form(frozen=True)
    class Callable:
        """With calls."""

        size: int = 1

        def __call__(self, batch: int) -> int:
            return batch + self.size

    @form(frozen=True)
    class Initialized:
        """Finished by an argument that is no field."""

        size: int = 1
        more: dataclasses.InitVar[int] = 3  # type: ignore[assignment]

        def __post_init__(self, more: int) -> None:
            object.__setattr__(self, "size", self.size + more)

    kinds = (Plain, Derived, Single, Own, Empty, Placed, Hashed, Nested, Called, Callable)
    return {kind.__name__: kind for kind in (*kinds, Initialized)}


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
    ("Hashed", {"size": 1}),
    ("Hashed", {"size": 1, "names": ["a"]}),
    ("Hashed", {"size": 1, "secret": "s"}),
    ("Nested", {"inner": 1}),
    ("Called", {"path": "abc"}),
    ("Callable", {"size": 2}),
    ("Initialized", {"size": 2, "more": 5}),
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
    assert repr(ours) == repr(standard)
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    for copied in (copy.copy(ours), copy.deepcopy(ours)):
        assert (type(copied), vars(copied)) == (type(ours), vars(standard))


def test_a_cycle_is_printed_as_by_the_standard_library() -> None:
    made = {
        form: classes["Nested"](inner=None) for form, classes in (("ours", OURS), ("", STANDARD))
    }
    for one in made.values():
        object.__setattr__(one, "inner", one)
    assert repr(made["ours"]) == repr(made[""])
    assert repr(made["ours"]).endswith("(inner=...)")


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
    flags = ("init", "repr", "eq", "frozen", "order", "unsafe_hash")
    params = [[getattr(x.__dataclass_params__, flag) for flag in flags] for x in (ours, standard)]
    assert params[0] == params[1]
    assert (ours.__hash__ is None) is (standard.__hash__ is None)


def test_signatures_of_what_is_no_constructor_of_fields_are_its_own() -> None:
    class Plain(OURS["Placed"]):  # type: ignore[misc, valid-type, name-defined]
        def __init__(self, path: str) -> None:
            super().__init__(len(path))

    assert list(inspect.signature(Plain).parameters) == ["path"]
    assert list(inspect.signature(OURS["Callable"]()).parameters) == ["batch"]


@pytest.mark.parametrize(
    ("name", "positional", "values", "message"),
    [
        ("Plain", (), {}, "'size'"),
        ("Plain", (3,), {}, "positional"),
        ("Plain", (), {"size": 3, "sizes": 4}, "'sizes'"),
        ("Derived", (), {"total": 3}, "'total'"),
        ("Empty", (), {"size": 3}, "'size'"),
        ("Placed", (), {}, "'size'"),
        ("Placed", (1, (), 2.0), {}, "positional"),
        ("Placed", (1,), {"size": 3}, "'size'"),
    ],
)
def test_wrong_arguments_are_refused(
    name: str, positional: tuple[Any, ...], values: dict[str, Any], message: str
) -> None:
    for classes in (STANDARD, OURS):
        with pytest.raises(TypeError, match=message):
            classes[name](*positional, **values)


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_wrong_classes_are_refused(form: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="non-default argument 'y' follows default argument"):

        @form(frozen=True)
        class Unordered:
            x: int = 1
            y: int

    with pytest.raises(ValueError, match="mutable default"):

        @form(frozen=True)
        class Shared:
            x: list[int] = []  # noqa: RUF012 - the fault

    with pytest.raises(TypeError, match="Cannot overwrite attribute __setattr__"):

        @form(frozen=True)
        class Setting:
            x: int = 1

            def __setattr__(self, name: str, value: object) -> None:
                """Set nothing."""


@pytest.mark.parametrize("base", FORMS.values(), ids=[f"base {form}" for form in FORMS])
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_frozen_classes_derive_from_frozen_ones_alone(
    base: Callable[..., Any], form: Callable[..., Any]
) -> None:
    for frozen in (True, False):

        @base(frozen=frozen)
        class Base:
            x: int = 1

        @form(frozen=frozen)
        class Derived(Base):
            y: int = 2

        made: Any = Derived
        assert (made(3).x, made(y=3).y, made() == Base()) == (3, 3, False)
        with pytest.raises(TypeError, match="cannot inherit"):

            @form(frozen=not frozen)
            class Mixed(Base):
                y: int = 2

    @form(frozen=True, slots=True)
    class Slotted(OURS["Placed"]):  # type: ignore[misc, valid-type, name-defined]
        y: int = 2

    assert Slotted(1, y=5).y == 5


def test_positions_are_taken_in_order() -> None:
    placed = OURS["Placed"]
    assert placed(1, ("a",), scale=2.0) == placed(size=1, names=("a",), scale=2.0)
    match placed(1, ("a",)):
        case placed(size, names):
            assert (size, names) == (1, ("a",))
        case _:
            pytest.fail("a dataclass of positions matches none")


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
    with pytest.raises(dataclasses.FrozenInstanceError, match="'other'"):
        made.other = 4
    assert made.double == 6
    assert dataclasses.replace(made, size=4).double == 8


@pytest.mark.parametrize("classes", [OURS, STANDARD], ids=list(FORMS))
def test_a_subclass_that_is_no_dataclass_adds_attributes(classes: dict[str, Any]) -> None:
    class Added(classes["Placed"]):  # type: ignore[misc, valid-type, name-defined]
        """Neither form's."""

    made = Added(1)
    made.other = 4
    del made.other
    with pytest.raises(dataclasses.FrozenInstanceError, match="'size'"):
        made.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError, match="'size'"):
        del made.size


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
