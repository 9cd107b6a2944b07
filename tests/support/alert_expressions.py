"""Evaluates the expressions of the alert rules on scraped metrics, as far as the rules use the language of Prometheus.

A rate is what a counter grew between the first and the last sample of its range, by the time between them: nothing is
extrapolated to the ends of the range. What the rules do not use is refused with ``ValueError``.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.support.alert_rules import TOKEN, metrics_of

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = float | Vector
Series = list[tuple[float, float]]
"""Times in seconds and values, the oldest first."""

samples_max: Final = 4_096
"""Samples kept of each series."""
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else float("nan"),
}
_LEVELS: Final = (frozenset(("or",)), frozenset(("and",)), frozenset(_COMPARISONS), frozenset("+-"), frozenset("*/"))
"""Operators that bind equally, those that bind least first."""


def seconds_of(duration: str) -> float:
    """The seconds of a duration such as ``5m``."""
    return float(duration[:-1]) * _UNITS_S[duration[-1]]


class Samples:
    """The samples of the metrics that some expressions name, and ``up`` of each instance that was asked."""

    def __init__(self, expressions: Iterable[str]) -> None:
        self._wanted = {name for expression in expressions for name in metrics_of(expression)}
        self._series: dict[str, dict[Labels, deque[tuple[float, float]]]] = {}
        self._asked_s: dict[str, float] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._series = defaultdict(lambda: defaultdict(lambda: deque(maxlen=samples_max)))
        self._asked_s.clear()

    def add(self, job: str, instance: str, at_s: float, page: str | None) -> None:
        """Take what ``/metrics`` of an instance answered at a time; ``None`` if it did not."""
        own = {("job", job), ("instance", instance)}
        self._asked_s[instance] = at_s
        self._series["up"][frozenset(own)].append((at_s, float(page is not None)))
        lines = (line for line in (page or "").splitlines() if re.split(r"[{ ]", line, maxsplit=1)[0] in self._wanted)
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                labels = frozenset(own | set(sample.labels.items()))
                self._series[sample.name][labels].append((at_s, sample.value))

    def last(self, name: str) -> Vector:
        """The value of each series that the last answer of its instance had."""
        return {
            labels: series[-1][1]
            for labels, series in self._series[name].items()
            if series[-1][0] == self._asked_s[dict(labels)["instance"]]
        }

    def within(self, name: str, seconds: float) -> dict[Labels, Series]:
        """The samples of each series in the seconds before the last answer of its instance."""
        found = {}
        for labels, series in self._series[name].items():
            begin_s = self._asked_s[dict(labels)["instance"]] - seconds
            found[labels] = [sample for sample in series if sample[0] >= begin_s]
        return found


def evaluate(expression: str, samples: Samples) -> Vector:
    """The series for which an expression holds, and their values: an alert is due for each of them."""
    value = _Evaluation(expression, samples).whole()
    if isinstance(value, float):
        raise ValueError(f"{expression} is a number, not an alert")
    return value


class _Evaluation:
    """One pass over the tokens of an expression."""

    def __init__(self, expression: str, samples: Samples) -> None:
        metrics_of(expression)  # refuses what nobody can read
        self._text = expression
        self._tokens = [match[0] for match in TOKEN.finditer(expression) if match[0].strip()]
        self._samples = samples

    def whole(self) -> Value:
        value = self._binary(0)
        if self._tokens:
            raise ValueError(f"{self._tokens[0]!r} in {self._text} is not understood")
        return value

    def _next(self, expected: str = "") -> str:
        token = self._tokens.pop(0) if self._tokens else ""
        if expected and token != expected:
            raise ValueError(f"{token!r} in {self._text}, where {expected!r} belongs")
        return token

    def _sees(self, *tokens: str) -> bool:
        return bool(self._tokens) and self._tokens[0] in tokens

    def _binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._primary()
        value = self._binary(level + 1)
        while self._sees(*_LEVELS[level]):
            token, on = self._next(), self._matching()
            other = self._binary(level + 1)
            value = (
                _combined(token, value, other) if on is None else _matched(token, _vector(value), _vector(other), on)
            )
        return value

    def _matching(self) -> list[str] | None:
        """The labels by which both sides are matched, of which the left one may have several; ``None`` for all."""
        if not self._sees("on"):
            return None
        self._next("on")
        names = self._names()
        if self._sees("group_left"):
            self._next("group_left")
        return names

    def _primary(self) -> Value:
        token = self._next()
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return float(token)
        if token == "(":
            return self._closed(self._binary(0))
        if token == "sum" or (token == "max" and self._sees("by")):
            return self._aggregate(sum if token == "sum" else max)
        if token in ("rate", "increase", "delta"):
            self._next("(")
            return self._closed(self._growth(token))
        if token == "histogram_quantile":
            self._next("(")
            share = self._binary(0)
            self._next(",")
            return self._closed(_quantile(share, self._binary(0)))
        if not re.fullmatch(r"[A-Za-z_:][\w:]*", token) or self._sees("("):
            raise ValueError(f"{token!r} in {self._text} is not understood")
        fits = self._matchers()
        return {labels: value for labels, value in self._samples.last(token).items() if fits(dict(labels))}

    def _closed(self, value: Value) -> Value:
        self._next(")")
        return value

    def _aggregate(self, join: Callable[[Iterable[float]], float]) -> Value:
        kept: list[str] = []
        if self._sees("by"):
            self._next("by")
            kept = self._names()
        self._next("(")
        value = self._closed(self._binary(0))
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, one in _vector(value).items():
            groups[_only(labels, kept)].append(one)
        return {labels: join(values) for labels, values in groups.items()}

    def _names(self) -> list[str]:
        self._next("(")
        names = [self._next()]
        while self._sees(","):
            self._next(",")
            names.append(self._next())
        self._next(")")
        return names

    def _growth(self, function: str) -> Vector:
        name = self._next()
        fits = self._matchers()
        self._next("[")
        found = self._samples.within(name, seconds_of(self._next()))
        self._next("]")
        return {
            labels: _grown(series, function) / (series[-1][0] - series[0][0] if function == "rate" else 1.0)
            for labels, series in found.items()
            if len(series) > 1 and fits(dict(labels))
        }

    def _matchers(self) -> Callable[[Mapping[str, str]], bool]:
        """The test that follows a metric's name in braces."""
        tests: list[tuple[str, str, str]] = []
        if self._sees("{"):
            self._next("{")
            while not self._sees("}"):
                tests.append((self._next(), self._next(), self._next().strip('"')))
                if self._sees(","):
                    self._next(",")
            self._next("}")
        return lambda labels: all(_fits(labels.get(name, ""), how, text) for name, how, text in tests)


def _fits(value: str, how: str, text: str) -> bool:
    is_equal = value == text if how in ("=", "!=") else re.fullmatch(text, value) is not None
    return is_equal != how.startswith("!")


def _vector(value: Value) -> Vector:
    if isinstance(value, float):
        raise ValueError(f"{value} is a number where series belong")
    return value


def _combined(token: str, one: Value, other: Value) -> Value:
    """Series are combined with those of the same labels, and with a number; comparisons keep what they hold for."""
    if token == "or":
        return {**_vector(other), **_vector(one)}
    if token == "and":
        return {labels: value for labels, value in _vector(one).items() if labels in _vector(other)}
    if isinstance(one, float) and isinstance(other, float):
        raise ValueError(f"{one} {token} {other}: two numbers")
    names: Iterable[Labels]
    if isinstance(one, float):
        names = _vector(other)
    elif isinstance(other, float):
        names = one
    else:
        names = one.keys() & other.keys()
    result: Vector = {}
    for labels in names:
        left, right = (side if isinstance(side, float) else side[labels] for side in (one, other))
        if token in _ARITHMETIC:
            result[labels] = _ARITHMETIC[token](left, right)
        elif _COMPARISONS[token](left, right):
            result[labels] = left
    return result


def _only(labels: Labels, names: Collection[str]) -> Labels:
    return frozenset(item for item in labels if item[0] in names)


def _matched(token: str, one: Vector, other: Vector, on: Collection[str]) -> Vector:
    """Series of the left side, with their labels, beside those of the right side that have the same values of some."""
    sides = {_only(labels, on): value for labels, value in other.items()}
    if len(sides) < len(other):
        raise ValueError(f"several series of the right side of {token} have the same {', '.join(on)}")
    beside = {labels: sides[_only(labels, on)] for labels in one if _only(labels, on) in sides}
    return _vector(_combined(token, one, beside))


def _grown(series: Series, function: str) -> float:
    """What a counter grew, one that fell having begun again at zero, or by how much a gauge is greater than before."""
    values = [value for _, value in series]
    if function == "delta":
        return values[-1] - values[0]
    return sum(new - old if new >= old else new for old, new in itertools.pairwise(values))


def _quantile(share: Value, value: Value) -> Vector:
    """The quantile of each histogram, on a straight line inside its bucket."""
    if not isinstance(share, float):
        raise ValueError("a quantile needs a number")
    histograms: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in _vector(value).items():
        edge = float(dict(labels)["le"].replace("+Inf", "inf"))
        histograms[frozenset(item for item in labels if item[0] != "le")].append((edge, count))
    return {
        labels: _quantile_of(share, sorted(buckets)) for labels, buckets in histograms.items() if max(buckets)[1] > 0
    }


def _quantile_of(share: float, buckets: list[tuple[float, float]]) -> float:
    rank = share * buckets[-1][1]
    below, before = 0.0, 0.0
    for edge, count in buckets:
        if count >= rank:
            if edge == float("inf"):
                return below
            return below + (edge - below) * (rank - before) / (count - before) if count > before else edge
        below, before = edge, count
    return below
