"""Estimate the cost of validating a value before validating it.

A validation cannot be interrupted, and a few lines of schema can make it run for years. Examples are references that
branch repeatedly, recursion that tries each level of the data twice, and a long pattern on a long text. Therefore the
schema is analysed once. Most schemas are cheap for every value within the limits and need no further checks. For the
others, an upper bound is computed for each value. One unit is about 10 ns. Knows no validator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from callgate._schema.references import METASCHEMA, References
from callgate._schema.regex_patterns import cost, patterns
from callgate._schema.subschemas import IN_PLACE, Schema, mapping, subschemas

__all__ = ["ENDLESS", "EndlessSchema", "ValidationCost"]

ENDLESS = 1 << 62
_MOST_BRANCHES = 10_000
_MOST_PLACES = 5_000
_MOST_LEVELS = 200
_MOST_STEPS = 100_000
_MOST_LOOKS = 1_000_000
_MOST_ENTRIES = 300_000
_NAMING = frozenset({"required", "dependentRequired", "dependencies", "dependentSchemas", "properties"})
_ITEMS = frozenset({"items", "additionalItems", "unevaluatedItems", "contains"})

State = dict[int, int]
"""The schemas that apply at one place of a value, by number, and how many times each applies."""


class EndlessSchema(Exception):
    """The schema applies itself to the same value endlessly or too many times. The message says which of the two."""


class _SchemaNode(Struct):
    """The cost of one schema. Refers to other schemas by number."""

    here: int = 1
    text: int = 0
    """Cost per character of a string."""
    keys: int = 0
    """Cost per character of an object's keys."""
    in_place: list[int] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    every_key: list[int] = field(default_factory=list)
    other_keys: list[int] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    says_other: bool = False
    """Whether the schema has a keyword for properties that it does not name."""

    @property
    def has_members(self) -> bool:
        return bool(self.named or self.every_key or self.other_keys)

    @property
    def has_items(self) -> bool:
        return bool(self.prefix or self.items)


class ValidationCost:
    """The cost of validating values against one schema.

    Raises:
        EndlessSchema: There is no bound on the time of a validation.
        LookupError: A reference cannot be resolved. The error's argument is the reference.
    """

    def __init__(self, root: Schema, references: References, draft: int) -> None:
        self._references = references
        self._siblings_count = draft > 7
        self._nodes: list[_SchemaNode] = []
        self._numbers: dict[int, int] = {}
        self._closed: dict[int, State] = {}
        self._entries = 0
        start = self._number(root)
        for number in range(len(self._nodes)):
            self._close(number)
        self._root = self._together([(start, 1)])
        self.per_value, self.per_character = self._bounds()

    def properties(self) -> tuple[frozenset[str], bool]:
        """Return the top-level properties that the schema names, and whether it says nothing about others."""
        nodes = [self._nodes[number] for number in self._root]
        return frozenset(name for node in nodes for name in node.named), not any(node.says_other for node in nodes)

    def bound(self, size: int) -> int:
        """Return an upper bound of the cost for any value of `size` bytes."""
        return ENDLESS if self.per_value == ENDLESS else size * (self.per_value + self.per_character)

    def of(self, value: object) -> int:
        """Return an upper bound of the cost for `value`.

        Return `ENDLESS` if computing the bound takes too many steps.
        """
        total, looks = 0, 0
        stack: list[tuple[object, State]] = [(value, self._root)]
        while stack:
            item, state = stack.pop()
            total += self._at(item, state)
            for inside in self._inside(item, state):
                looks += len(state) + len(inside[1]) + 1
                if looks > _MOST_STEPS or total >= ENDLESS:
                    return ENDLESS
                stack.append(inside)
        return total

    def _inside(self, item: object, state: State) -> Iterator[tuple[object, State]]:
        if isinstance(item, dict):
            yield from ((inner, self._at_key(state, key)) for key, inner in item.items())
        elif isinstance(item, list):
            yield from ((inner, self._at_index(state, index)) for index, inner in enumerate(item))

    def _at(self, item: object, state: State) -> int:
        """Return the cost of the schemas that apply to `item` itself, without nested values."""
        units = 0
        letters = len(item) if isinstance(item, str) else 0
        keys, key_letters = (len(item), sum(map(len, item))) if isinstance(item, dict) else (0, 0)
        for number, times in state.items():
            node = self._nodes[number]
            units += times * (node.here + keys + node.text * letters + node.keys * key_letters)
        return units

    def _number(self, schema: Schema) -> int:
        """Return the number of the node of `schema`.

        Create the nodes of all schemas reachable from it, without recursion.
        """
        if id(schema) in self._numbers:
            return self._numbers[id(schema)]
        waiting = [schema]
        self._enter(schema)
        while waiting:
            current = waiting.pop()
            node = self._nodes[self._numbers[id(current)]]
            for target, place in self._applied_schemas(current, node):
                if id(target) not in self._numbers:
                    self._enter(target)
                    waiting.append(target)
                place.append(self._numbers[id(target)])
            for name, inner in mapping(current, "properties").items():
                if isinstance(inner, dict) and self._looks_inside(current):
                    if id(inner) not in self._numbers:
                        self._enter(inner)
                        waiting.append(inner)
                    node.named[name] = self._numbers[id(inner)]
        return self._numbers[id(schema)]

    def _enter(self, schema: Schema) -> None:
        self._numbers[id(schema)] = len(self._nodes)
        options = schema.get("enum")
        text = cost(schema["pattern"]) if isinstance(schema.get("pattern"), str) else 0
        named = schema.get("patternProperties")
        keys = sum(map(cost, named)) if isinstance(named, dict) else 0
        names = schema.get("propertyNames")
        keys += sum(map(cost, patterns(names))) if isinstance(names, dict) else 0
        self._nodes.append(_SchemaNode(here=1 + (len(options) // 8 if isinstance(options, list) else 0), text=text, keys=keys))

    def _looks_inside(self, schema: Schema) -> bool:
        return self._siblings_count or not isinstance(schema.get("$ref"), str)

    def _applied_schemas(self, schema: Schema, node: _SchemaNode) -> Iterable[tuple[Schema, list[int]]]:
        """Yield each schema that `schema` applies, except those in `properties`, and the list for its number.

        The number of the yielded schema belongs into this list, which is a field of `node`.
        """
        yield from ((target, node.in_place) for target in self._reference_targets(schema))
        if not self._looks_inside(schema):
            return
        node.says_other = any(
            word in schema for word in ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
        )
        for keyword, _, inner in subschemas(schema):
            if keyword in IN_PLACE:
                yield inner, node.in_place
            elif keyword in ("patternProperties", "unevaluatedProperties"):
                yield inner, node.every_key
            elif keyword == "additionalProperties":
                yield inner, node.other_keys
            elif keyword == "prefixItems" or (keyword == "items" and isinstance(schema["items"], list)):
                yield inner, node.prefix
            elif keyword in _ITEMS:
                yield inner, node.items
        self._add_named_properties(schema, node)

    def _add_named_properties(self, schema: Schema, node: _SchemaNode) -> None:
        """Add properties that have a boolean schema or are only named by `required` and similar keywords.

        They cost nothing.
        """
        if _NAMING.isdisjoint(schema):
            return
        free = self._free()
        listed = schema.get("required") if isinstance(schema.get("required"), list) else []
        dependent = [schema.get(word) for word in ("dependentRequired", "dependencies", "dependentSchemas", "properties")]
        mentioned = [name for found in dependent if isinstance(found, dict) for name in found]
        lists = [names for found in dependent[:2] if isinstance(found, dict) for names in found.values() if isinstance(names, list)]
        for name in [*listed, *mentioned, *(name for names in lists for name in names)]:  # type: ignore[misc]
            if isinstance(name, str):
                node.named.setdefault(name, free)

    def _free(self) -> int:
        if id(METASCHEMA) not in self._numbers:
            self._enter(METASCHEMA)
        return self._numbers[id(METASCHEMA)]

    def _reference_targets(self, schema: Schema) -> Iterable[Schema]:
        references = self._references
        for keyword in ("$ref", "$dynamicRef"):
            name = schema.get(keyword)
            if isinstance(name, str):
                target = references.target(name, schema)
                if target is None:
                    raise LookupError(name)
                if isinstance(target, dict):
                    yield target
                if keyword == "$dynamicRef":
                    yield from (other for other in references.dynamic.get(name.partition("#")[2], ()) if other is not target)
        if isinstance(schema.get("$recursiveRef"), str):
            target = references.resource(schema)
            if isinstance(target, dict):
                yield target

    def _close(self, number: int) -> State:
        """Return all schemas that apply to the same value as node `number`, including itself."""
        done = self._closed
        path: set[int] = set()
        stack = [(number, False)]
        while stack:
            current, ready = stack.pop()
            if ready:
                path.remove(current)
                done[current] = self._sum_in_place(current)
                continue
            if current in done:
                continue
            path.add(current)
            stack.append((current, True))
            stack += [(inner, False) for inner in self._nodes[current].in_place if inner not in done]
            if any(inner in path for inner in self._nodes[current].in_place):
                raise EndlessSchema("a reference in it leads back to itself without going into the value")
        return done[number]

    def _sum_in_place(self, number: int) -> State:
        state: State = {number: 1}
        for inner in self._nodes[number].in_place:
            for one, times in self._closed[inner].items():
                state[one] = state.get(one, 0) + times
        self._entries += len(state)
        if sum(state.values()) > _MOST_BRANCHES or self._entries > _MOST_ENTRIES:
            raise EndlessSchema(f"its branches multiply to more than {_MOST_BRANCHES} checks of one value")
        return state

    def _together(self, numbers: Iterable[tuple[int, int]]) -> State:
        state: State = {}
        for number, times in numbers:
            for one, inner in self._closed[number].items():
                state[one] = min(ENDLESS, state.get(one, 0) + times * inner)
        return state

    def _at_key(self, state: State, key: str | None) -> State:
        """Return the schemas that apply to the value of `key`; None stands for a key that no schema names."""
        found: list[tuple[int, int]] = []
        for number, times in state.items():
            node = self._nodes[number]
            found += [(inner, times) for inner in node.every_key]
            if key is not None and key in node.named:
                found.append((node.named[key], times))
            else:
                found += [(inner, times) for inner in node.other_keys]
        return self._together(found)

    def _at_index(self, state: State, index: int) -> State:
        found: list[tuple[int, int]] = []
        for number, times in state.items():
            node = self._nodes[number]
            found += [(inner, times) for inner in node.items]
            if index < len(node.prefix):
                found.append((node.prefix[index], times))
        return self._together(found)

    def _bounds(self) -> tuple[int, int]:
        """Return the maximum cost per value and per character, over all places of a document.

        Both are `ENDLESS` if the cost grows with the depth of the document, or if the schema is too large to tell.
        """
        worst, dearest, looks = 0, 0, 0
        seen: dict[frozenset[int], int] = {}
        stack: list[tuple[State, dict[frozenset[int], int]]] = [(self._root, {})]
        while stack:
            state, above = stack.pop()
            shape, times = frozenset(state), sum(state.values())
            if times > above.get(shape, times) or len(above) > _MOST_LEVELS or len(seen) > _MOST_PLACES:
                return ENDLESS, ENDLESS
            if not state or seen.get(shape, 0) >= times:
                continue
            seen[shape] = times
            nodes = [(self._nodes[number], many) for number, many in state.items()]
            worst = max(worst, sum(node.here * many for node, many in nodes))
            dearest = max(dearest, sum(max(node.text, node.keys) * many for node, many in nodes))
            names: set[str | None] = set()
            if any(node.has_members for node, _ in nodes):
                names = {None}.union(*(node.named for node, _ in nodes))
            places = 1 + max(len(node.prefix) for node, _ in nodes) if any(node.has_items for node, _ in nodes) else 0
            looks += (len(names) + places) * len(state)
            if looks > _MOST_LOOKS:
                return ENDLESS, ENDLESS
            path = {**above, shape: times}
            stack += [(self._at_key(state, name), path) for name in names]
            stack += [(self._at_index(state, index), path) for index in range(places)]
        return worst, dearest
