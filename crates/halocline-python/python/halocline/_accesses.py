"""Which indices of its arrays a program of DaCe or GT4Py accesses, as far as its SDFG says.

An access counts if it happens in every call, unless a loop around it is empty: not in a branch. Its indices are affine in the parameters
of the maps and loops around it, so that the bounds of these give its own.
"""

import ast
import dataclasses

import sympy

from ._errors import HaloTypeError
from ._sdfg import quantity


@dataclasses.dataclass(frozen=True)
class Range:
    """Integers from ``first`` to before ``end``, both expressions of symbols."""

    first: sympy.Expr
    end: sympy.Expr

    def contains(self, other):
        """Whether it surely contains another range."""
        return _is_at_least(other.first, self.first) and _is_at_least(self.end, other.end)

    def joined(self, other):
        """The range of both; ``None`` if their distance is not known."""
        first = _smaller(self.first, other.first)
        end = _smaller(-self.end, -other.end)
        return None if first is None or end is None else Range(first, -end)

    def names(self):
        return {symbol.name for symbol in self.first.free_symbols | self.end.free_symbols}

    def with_values(self, values):
        """The range with these values of symbols, by name; ``None`` if one has none."""
        known = {symbol: values[symbol.name] for symbol in self.first.free_symbols | self.end.free_symbols if symbol.name in values}
        if None in known.values():
            return None
        return Range(self.first.subs(known), self.end.subs(known)) if known else self


@dataclasses.dataclass(frozen=True)
class Access:
    """Indices of an array that are accessed, unless a range in ``over`` is empty. A side is ``None`` if it is not known."""

    over: tuple
    sides: tuple

    def covers(self, other):
        sides = zip(self.sides, other.sides)
        is_wide = all(theirs is None or ours is not None and ours.contains(theirs) for ours, theirs in sides)
        return is_wide and all(any(ours.contains(theirs) for theirs in other.over) for ours in self.over)

    def joined(self, other):
        """Both accesses as one, or ``None``."""
        if self.over != other.over:
            return None
        sides = []
        for ours, theirs in zip(self.sides, other.sides):
            both = None if ours is None or theirs is None else ours.joined(theirs)
            if both is None and (ours is not None or theirs is not None):
                return None
            sides.append(both)
        return Access(self.over, tuple(sides))

    def with_values(self, values):
        over = tuple(one and one.with_values(values) for one in self.over)
        # Without a range around it, it is not known when it happens.
        return Access(over, tuple(None if None in over else side and side.with_values(values) for side in self.sides))

    def beyond(self, shape):
        """The access without sides that an array of this shape surely has."""
        whole = [Range(sympy.Integer(0), sympy.sympify(size)) for size in shape]
        return Access(self.over, tuple(None if side is None or has.contains(side) else side for side, has in zip(self.sides, whole)))


def accesses(sdfg, names):
    """The accesses of the arrays of these names, lists by name. Their indices count from the first element in memory."""
    found = {}
    assigned = _assigned(sdfg)
    for state in sdfg.states():
        loops = _loops(state, sdfg)
        if loops is None:
            continue
        for node in state.data_nodes():
            if node.data in names and type(sdfg.arrays[node.data]).__name__ == "Array":
                here = found.setdefault(node.data, [])
                for edge in state.out_edges(node):
                    here += _of_edge(state, edge, node.data, loops, reads=True)
                for edge in state.in_edges(node):
                    here += _of_edge(state, edge, node.data, loops, reads=False)
    return {name: reduced([access.with_values(assigned) for access in all_]) for name, all_ in found.items()}


@dataclasses.dataclass(frozen=True)
class Gather:
    """An index of an array that is an element of a table, plus ``offset``."""

    array: str
    dimension: int
    offset: sympy.Expr
    table: str
    of_table: Access


def gathers(sdfg, tables):
    """The indices that elements of these tables decide, in every call."""
    from dace.sdfg import nodes

    found = []
    assigned = _assigned(sdfg)
    for state in sdfg.states():
        loops = _loops(state, sdfg)
        for tasklet in state.nodes() if loops is not None else ():
            if isinstance(tasklet, nodes.Tasklet):
                found += _gathers_of(state, tasklet, tables, loops)
    found = [dataclasses.replace(gather, of_table=gather.of_table.with_values(assigned)) for gather in found]
    return list(dict.fromkeys(found))


def _gathers_of(state, tasklet, tables, loops):
    from dace import symbolic

    memlets = {edge.dst_conn: edge.data for edge in state.in_edges(tasklet) if not edge.data.is_empty() and not edge.data.dynamic}
    elements = {name for name, memlet in memlets.items() if memlet.data in tables and memlet.subset.num_elements() == 1}
    for connector, memlet in memlets.items():
        begins = [begin for begin, _, _ in memlet.subset.ndrange()] if elements else []
        for dimension, index in enumerate(_subscripts(tasklet, connector, len(begins)) or ()):
            values = _names_in(index) & (set(tasklet.in_connectors) | set(tasklet.out_connectors))
            if len(values) != 1 or not values <= elements or _has_calls(index):
                continue
            (element,) = values
            index = symbolic.pystr_to_symbolic(ast.unparse(index))
            symbol = next(symbol for symbol in index.free_symbols if symbol.name == element)
            offset = sympy.expand(index - symbol + begins[dimension])
            if symbol not in offset.free_symbols:
                table = memlets[element]
                yield Gather(memlet.data, dimension, offset, table.data, _bounded(state, tasklet, _sides(table.subset, tasklet, element), loops))


def reduced(all_):
    """The same accesses as a short list."""
    kept = []
    for access in all_:
        for at, other in enumerate(kept):
            joined = access.joined(other)
            if joined is not None:
                kept[at] = joined
                break
        else:
            kept.append(access)
    return [one for at, one in enumerate(kept) if not any(other.covers(one) for other in kept[at + 1 :] + kept[:at] if other != one)]


def described(all_, dimensions, symbols):
    """Accesses as a manifest has them, for an array with these dimensions of the manifest. Only these symbols have values in a call."""
    entries = []
    for access in all_:
        over = [_texts(one, symbols) for one in access.over]
        sides = [_texts(_from_start(side, dimension), symbols) for side, dimension in zip(access.sides, dimensions)]
        if None not in over and any(sides):
            entry = {"indices": sides, "over": over}
            entries.append({part: values for part, values in entry.items() if values})
    return entries


def _from_start(side, dimension):
    """A side whose indices count from the first index of its dimension, instead of from 0; ``None`` if it is the whole dimension."""
    if side is None or "start" not in dimension:
        return None
    start = _expression(dimension["start"], side)
    first, end = sympy.expand(side.first + start), sympy.expand(side.end + start)
    if first == start and "stop" in dimension and end == _expression(dimension["stop"], side):
        return None
    return Range(first, end)


def _expression(part, side):
    """A part of a manifest's dimension, with the symbol of the SDFG of that name."""
    if isinstance(part, int):
        return sympy.Integer(part)
    symbols = {symbol.name: symbol for symbol in side.first.free_symbols | side.end.free_symbols}
    return symbols.get(part) or sympy.Symbol(part, integer=True)


def _texts(range_, symbols):
    """A range in the words of a manifest; ``None`` if these have no such expression."""
    if range_ is None or not range_.names() <= symbols:
        return None
    try:
        return [quantity(end, "an access") for end in (range_.first, range_.end)]
    except HaloTypeError:
        return None


def _assigned(sdfg):
    """The names that the program assigns. Those that always get one value, a constant or an expression of other names, have it."""
    from dace import symbolic
    from dace.sdfg import state as states

    found = {}
    for edge in sdfg.all_interstate_edges():
        for name, value in edge.data.assignments.items():
            found.setdefault(name, set()).add(str(value))
    for region in sdfg.all_control_flow_regions():
        if isinstance(region, states.LoopRegion) and region.loop_variable:
            found.setdefault(region.loop_variable, set()).add(None)
    values = dict.fromkeys(found)
    for name, (value, *others) in found.items():
        if value is not None and not others:
            value = symbolic.pystr_to_symbolic(value)
            is_constant = not {symbol.name for symbol in value.free_symbols} & set(found) and not value.atoms(sympy.Function)
            values[name] = value if is_constant else None
    return values


def _loops(state, sdfg):
    """The loops around a state, the innermost first: the variable and its range. ``None`` if a call may leave the state out."""
    from dace.sdfg import state as states

    if any(isinstance(block, states.ReturnBlock) for block in sdfg.all_control_flow_blocks()):
        return None
    region, loops = state.parent_graph, []
    while region is not sdfg:
        if any(not edge.data.is_unconditional() for edge in region.edges()) or isinstance(region, states.ConditionalBlock):
            return None
        if isinstance(region, states.LoopRegion):
            bounds = _bounds_of_loop(region)
            if bounds is None:
                return None
            loops.append((region.loop_variable, bounds))
        region = region.parent_graph
    return None if any(not edge.data.is_unconditional() for edge in sdfg.edges()) else loops


def _bounds_of_loop(loop):
    """The values of a loop's variable; ``None`` if it may take others."""
    from dace.sdfg import state as states
    from dace.transformation.passes.analysis import loop_analysis

    leaves = (states.BreakBlock, states.ContinueBlock)
    if loop.inverted or any(isinstance(block, leaves) for block in loop.all_control_flow_blocks()):
        return None
    if any(loop.loop_variable in edge.data.assignments for edge in loop.all_interstate_edges()):
        return None
    first, last = loop_analysis.get_init_assignment(loop), loop_analysis.get_loop_end(loop)
    if first is None or last is None or loop_analysis.get_loop_stride(loop) != 1:
        return None
    return Range(sympy.sympify(first), sympy.sympify(last) + 1)


def _of_edge(state, edge, name, loops, reads):
    """The accesses of an edge between an array and its user."""
    from dace import data
    from dace.sdfg import nodes

    if edge.data.is_empty():
        return []
    found = []
    for leaf in state.memlet_tree(edge).leaves() if isinstance(edge.dst if reads else edge.src, (nodes.EntryNode, nodes.ExitNode)) else [edge]:
        user = leaf.dst if reads else leaf.src
        if leaf.data.dynamic or isinstance(user, nodes.NestedSDFG) and _may_skip(user.sdfg):
            continue
        if isinstance(user, nodes.AccessNode) and isinstance(state.sdfg.arrays[user.data], (data.View, data.Reference)):
            # What is accessed through it is not known.
            continue
        subset = leaf.data.get_src_subset(leaf, state) if reads else leaf.data.get_dst_subset(leaf, state)
        if subset is None and leaf.data.data == name:
            subset = leaf.data.subset
        if subset is not None:
            connector = leaf.dst_conn if reads else leaf.src_conn
            found.append(_bounded(state, user, _sides(subset, user, connector), loops))
    return found


def _may_skip(sdfg):
    """Whether a nested SDFG may leave something out of what its memlets name."""
    from dace.sdfg import state as states

    blocks = list(sdfg.all_control_flow_blocks(recursive=True))
    return any(isinstance(block, (states.ConditionalBlock, states.LoopRegion)) for block in blocks) or len(blocks) > 1


def _sides(subset, user, connector):
    """The indices of a subset that a node accesses through a connector."""
    from dace.sdfg import nodes

    sides = [_range(side) for side in subset.ndrange()]
    if isinstance(user, nodes.Tasklet) and any(side is None or side.end - side.first != 1 for side in sides):
        # The code gets all of it, and takes what it wants.
        exact = _indices_in_code(user, connector, [begin for begin, _, _ in subset.ndrange()])
        sides = [None if one is None else Range(one, one + 1) for one in exact]
    return sides


def _range(side):
    """A dimension of a subset or a map; ``None`` if it leaves out some integers, or if DaCe knows it roughly, as in maps that it has tiled."""
    begin, last, step = side
    is_exact = all(isinstance(part, (int, sympy.Basic)) for part in side)
    return Range(sympy.sympify(begin), sympy.sympify(last) + 1) if is_exact and step == 1 else None


def _indices_in_code(tasklet, connector, begins):
    """The indices that the code of a tasklet gives to a part of an array with these first indices; ``None`` for one that depends on values."""
    from dace import symbolic

    values = set(tasklet.in_connectors) | set(tasklet.out_connectors)
    exact = []
    for begin, part in zip(begins, _subscripts(tasklet, connector, len(begins)) or [None] * len(begins)):
        is_known = part is not None and not _names_in(part) & values and not _has_calls(part)
        exact.append(symbolic.pystr_to_symbolic(ast.unparse(part)) + begin if is_known else None)
    return exact


def _subscripts(tasklet, connector, dimensions):
    """The indices of the one access to an array in the code of a tasklet; ``None`` if it is not one, and if there are branches."""
    try:
        nodes = list(ast.walk(ast.parse(tasklet.code.as_string)))
    except SyntaxError:
        # Code in another language.
        return None
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == connector]
    subscripts = [node for node in nodes if isinstance(node, ast.Subscript) and node.value in uses]
    if len(uses) != 1 or len(subscripts) != 1 or any(isinstance(node, (ast.IfExp, ast.If, ast.BoolOp, ast.For, ast.While)) for node in nodes):
        return None
    index = subscripts[0].slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return parts if len(parts) == dimensions else None


def _names_in(node):
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _has_calls(node):
    return any(isinstance(inner, (ast.Call, ast.Subscript)) for inner in ast.walk(node))


def _bounded(state, user, sides, loops):
    """The access of a node to these indices, with the bounds of the maps and loops around it instead of their parameters."""
    from dace.sdfg import nodes

    over = [side for side in sides if side is not None] if not isinstance(user, nodes.CodeNode) else []
    scope = state.scope_dict()
    entry = user if isinstance(user, nodes.EntryNode) else scope[user]
    around = []
    while entry is not None:
        around += zip(entry.map.params, map(_range, entry.map.range.ndrange()))
        entry = scope[entry]
    for parameter, bounds in around + loops:
        conditions = [one for one in over if one is not None and _may_be_empty_for_some(one, parameter)]
        # For which values of the parameter it happens is not known; that it does for one of them, only under one condition.
        sides = [side if side is None or len(conditions) < (1 if parameter in side.names() else 2) else None for side in sides]
        sides = [_without(side, parameter, bounds) for side in sides]
        over = [one and _over_without(one, parameter, bounds) for one in over]
        over.append(bounds)
    if any(one is None for one in over):
        # It is not known when it happens.
        sides = [None] * len(sides)
    return Access(tuple(over), tuple(sides))


def _may_be_empty_for_some(range_, parameter):
    """Whether a range may be empty for some values of a parameter and not for others."""
    return parameter in {symbol.name for symbol in sympy.expand(range_.end - range_.first).free_symbols}


def _over_without(range_, parameter, bounds):
    """A range that is empty if this one is for all values of a parameter; ``None`` if there is no such range."""
    if parameter not in range_.names():
        return range_
    length = sympy.expand(range_.end - range_.first)
    if not _may_be_empty_for_some(range_, parameter):
        return Range(sympy.Integer(0), length)
    longest = _extreme(length, parameter, bounds, lowest=False)
    return None if longest is None else Range(sympy.Integer(0), longest)


def _without(side, parameter, bounds):
    """A range without a parameter of a map, over all its values."""
    if side is None:
        return None
    if all(parameter in {symbol.name for symbol in bound.free_symbols} for bound in (side.first, side.end)):
        # The range moves along. One that also changes its length may be empty where an end of it is extreme.
        if parameter in {symbol.name for symbol in sympy.expand(side.end - side.first).free_symbols}:
            return None
    first, end = _extreme(side.first, parameter, bounds, lowest=True), _extreme(side.end, parameter, bounds, lowest=False)
    return None if first is None or end is None else Range(first, end)


def _extreme(expression, parameter, bounds, lowest):
    symbol = next((symbol for symbol in expression.free_symbols if symbol.name == parameter), None)
    if symbol is None:
        return expression
    slope = sympy.diff(expression, symbol)
    if bounds is None or not slope.is_Integer:
        return None
    return sympy.expand(expression.subs(symbol, bounds.first if (slope > 0) == lowest else bounds.end - 1))


def _difference(left, right):
    """What ``left`` is more than ``right``; ``None`` if that depends on symbols."""
    difference = sympy.expand(left - right)
    return int(difference) if difference.is_Integer else None


def _is_at_least(left, right):
    difference = _difference(left, right)
    return difference is not None and difference >= 0


def _smaller(left, right):
    difference = _difference(left, right)
    if difference is None:
        return None
    return right if difference > 0 else left
