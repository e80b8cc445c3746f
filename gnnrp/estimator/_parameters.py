"""What model selection of scikit-learn asks of an estimator, without scikit-learn."""

import inspect
from typing import Any

from gnnrp.runtime import checks


class Parameters:
    """Arguments of the constructor, kept as they came, read and set by name."""

    _estimator_type = "classifier"  # what scikit-learn before 1.6 looks at

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name.

        Args:
            deep: with those of arguments that have some too, as ``name__inner``.
        """
        found = {name: getattr(self, name) for name in self._names()}
        if deep:
            for name, value in list(found.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    inner = value.get_params()
                    found |= {f"{name}__{key}": each for key, each in inner.items()}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set arguments of the constructor by name; what is fitted stays.

        Args:
            params: new values; ``name__inner`` sets one of an argument's own.

        Raises:
            ValueError: no argument has that name.
        """
        inner: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            checks.one_of("parameter", name, self._names())
            if nested:
                inner.setdefault(name, {})[rest] = value
            else:
                setattr(self, name, value)
        for name, values in inner.items():
            owner = getattr(self, name)
            if not hasattr(owner, "set_params"):
                msg = (
                    f"{name} is {owner!r}, which has no parameter {next(iter(values))}"
                )
                raise ValueError(msg)
            owner.set_params(**values)
        return self

    def __repr__(self) -> str:
        """Return the call that makes it, without what is left at its default."""
        defaults = inspect.signature(type(self)).parameters
        told = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        )
        return f"{type(self).__name__}({', '.join(told)})"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn, the only caller, wants to know of a classifier."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags  # pyright: ignore

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
        )
