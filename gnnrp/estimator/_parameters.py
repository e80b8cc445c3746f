"""Access to constructor arguments by name: scikit-learn's estimator protocol.

Importing scikit-learn's ``BaseEstimator`` would add 60 MB and half of the import time.
"""

import inspect
from typing import Any

from gnnrp.runtime import checks


class Parameters:
    """Base class of estimators that are dataclasses of their parameters."""

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        names = inspect.signature(type(self)).parameters
        params = {name: getattr(self, name) for name in names}
        for name, value in list(params.items()) if deep else ():
            if hasattr(value, "get_params") and not isinstance(value, type):
                inner = value.get_params()
                params |= {f"{name}__{key}": each for key, each in inner.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set constructor arguments by name; fitted attributes stay."""
        for key in sorted(params, key=lambda key: "__" in key):  # nested ones last
            name, nested, inner = key.partition("__")
            checks.one_of("parameter", name, inspect.signature(type(self)).parameters)
            if not nested:
                setattr(self, name, params[key])
                continue
            owner = getattr(self, name)
            if not hasattr(owner, "set_params"):
                msg = f"{name} is {owner!r}, which has no parameter {inner}"
                raise ValueError(msg)
            owner.set_params(**{inner: params[key]})
        return self

    def __repr__(self) -> str:
        """Return the constructor call, without arguments at their default."""
        defaults = inspect.signature(type(self)).parameters
        arguments = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        )
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a classifier; called by scikit-learn only."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags  # pyright: ignore

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
        )
