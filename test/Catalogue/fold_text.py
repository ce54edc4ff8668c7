# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`.fold` programs as trees, and rewritings of them that keep what they mean.

A tree is a tuple: ("number", text), ("name", name), ("len", axis), ("at", name, subscripts), ("call", function,
operands), ("reduce", reducer, axes, term), ("unary", operator, operand) or ("binary", operator, left, right).
"""

import re

REDUCERS = {"sum", "max", "min", "prod", "any", "all", "argmax", "argmin", "mean"}
CONSTANTS = {"inf", "nan", "pi"}
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(==|!=|<=|>=|//|->|.))")
LEVELS = [["or"], ["and"], ["not"], ["==", "!=", "<", "<=", ">", ">="], ["+", "-"], ["*", "/", "//", "%"], ["neg"], ["^"]]
LEVEL = {operator: level for level, operators in enumerate(LEVELS) for operator in operators}


class Definition:
    """`targets` are (name, written axes or None)."""

    def __init__(self, targets, value, best=None):
        self.targets, self.value, self.best = targets, value, best  # best: (axis, k) of a top-k


class Program:
    def __init__(self, name, arguments, outputs, definitions):
        self.name = name
        self.arguments = arguments  # (name, [(axis, extent text)] or None, dtype)
        self.outputs = outputs  # (name, dtype)
        self.definitions = definitions


class Reader:
    def __init__(self, text):
        self.tokens = [m.group(1) or m.group(2) or m.group(3) for m in TOKEN.finditer(text.rstrip())]
        self.at = 0

    def next(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted=None):
        token = self.next()
        if wanted is not None and token != wanted:
            raise ValueError(f"found '{token}', expected '{wanted}' in {' '.join(self.tokens)}")
        self.at += 1
        return token

    def has(self, token):
        if self.next() != token:
            return False
        self.at += 1
        return True

    def several(self, item, end):
        items = []
        while not self.has(end):
            items.append(item())
            if not self.has(","):
                self.take(end)
                break
        return items

    def expression(self, level=0):
        if level == LEVEL["not"] and self.has("not"):
            return ("unary", "not", self.expression(level))
        if level == LEVEL["neg"] and self.has("-"):
            return ("unary", "-", self.expression(level))
        if level == LEVEL["^"]:
            base = self.primary()
            return ("binary", "^", base, self.expression(LEVEL["neg"])) if self.has("^") else base
        left = self.expression(level + 1)
        while self.next() in LEVELS[level] and level not in (LEVEL["not"], LEVEL["neg"]):
            operator = self.take()
            left = ("binary", operator, left, self.expression(level + 1))
        return left

    def primary(self):
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if not re.match(r"[A-Za-z_]", token):
            return ("number", token)
        if self.has("["):
            return ("at", token, self.several(self.expression, "]"))
        if not self.has("("):
            return ("number" if token in CONSTANTS else "name", token)
        if token == "len":
            axis = self.take()
            self.take(")")
            return ("len", axis)
        isReducer = token in REDUCERS and ":" in self.tokens[self.at:self.at + 8]
        if isReducer and all(t == "," for t in self.tokens[self.at + 1:self.tokens.index(":", self.at):2]):
            axes = self.several(self.take, ":")
            term = self.expression()
            self.take(")")
            return ("reduce", token, axes, term)
        return ("call", token, self.several(self.expression, ")"))


def parse(text):
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    header = Reader(lines[0])
    name = header.take()
    header.take("(")

    def axis():
        own = header.take()
        return own, header.take() if header.has("=") else ""

    def argument():
        own = header.take()
        axes = header.several(axis, "]") if header.has("[") else None
        return own, axes, header.take() if header.has(":") else ""

    arguments = header.several(argument, ")")
    header.take("->")
    outputs = []
    while header.next():
        own = header.take()
        outputs.append((own, header.take() if header.has(":") else ""))
        header.has(",")
    return Program(name, arguments, outputs, [definition(line) for line in lines[1:]])


def definition(line):
    reader = Reader(line)

    def target():
        own = reader.take()
        return own, reader.several(reader.take, "]") if reader.has("[") else None

    targets = [target()]
    while reader.has(","):
        targets.append(target())
    reader.take("=")
    if len(targets) == 1:
        return Definition(targets, reader.expression())
    reader.take("topk")
    reader.take("(")
    axis = reader.take()
    reader.take(":")
    value = reader.expression()
    reader.take(",")
    return Definition(targets, value, (axis, reader.take()))


def shown(e, least=0):
    kind = e[0]
    if kind in ("number", "name"):
        return e[1]
    if kind == "len":
        return f"len({e[1]})"
    if kind == "at":
        return f"{e[1]}[{', '.join(map(shown, e[2]))}]"
    if kind == "call":
        return f"{e[1]}({', '.join(map(shown, e[2]))})"
    if kind == "reduce":
        return f"{e[1]}({', '.join(e[2])}: {shown(e[3])})"
    operator = e[1] if kind == "binary" or e[1] == "not" else "neg"
    level = LEVEL[operator]
    if kind == "unary":
        text = ("not " if operator == "not" else "-") + shown(e[2], level)
    elif operator == "^":
        text = f"{shown(e[2], level + 1)}^{shown(e[3], LEVEL['neg'])}"
    else:
        inner = level + 1 if operator not in ("or", "and") else level
        text = f"{shown(e[2], level + (level == LEVEL['==']))} {operator} {shown(e[3], inner)}"
    return f"({text})" if level < least else text


def printed(program):
    def subscripts(axes):
        return "" if axes is None else f"[{', '.join(axes)}]"

    def argument(own):
        name, axes, dtype = own
        axes = None if axes is None else [a + (f"={n}" if n else "") for a, n in axes]
        return name + subscripts(axes) + (f": {dtype}" if dtype else "")

    outputs = ", ".join(name + (f": {dtype}" if dtype else "") for name, dtype in program.outputs)
    lines = [f"{program.name}({', '.join(map(argument, program.arguments))}) -> {outputs}"]
    for d in program.definitions:
        value = shown(d.value)
        if d.best:
            value = f"topk({d.best[0]}: {value}, {d.best[1]})"
        lines.append("  " + ", ".join(n + subscripts(axes) for n, axes in d.targets) + f" = {value}")
    return "\n".join(lines) + "\n"


def mapped(e, change):
    """The tree with `change` applied to every node, leaves first."""
    kind = e[0]
    if kind in ("at", "call"):
        e = (kind, e[1], [mapped(a, change) for a in e[2]])
    elif kind == "reduce":
        e = (kind, e[1], e[2], mapped(e[3], change))
    elif kind == "unary":
        e = (kind, e[1], mapped(e[2], change))
    elif kind == "binary":
        e = (kind, e[1], mapped(e[2], change), mapped(e[3], change))
    return change(e)


def namesIn(e):
    found = set()

    def visit(node):
        if node[0] in ("name", "at"):
            found.add(node[1])
        return node

    mapped(e, visit)
    return found


def once(program):
    """Every name defined once: a redefinition gets a name of its own."""
    current, taken, definitions = {}, {a[0] for a in program.arguments}, []
    last = {}
    for i, d in enumerate(program.definitions):
        for name, _ in d.targets:
            last[name] = i
    for i, d in enumerate(program.definitions):
        def change(e):
            return (e[0], current.get(e[1], e[1]), *e[2:]) if e[0] in ("name", "at") else e

        value = mapped(d.value, change)
        targets = []
        for name, axes in d.targets:
            own = name
            while own in taken or (own == name and last[name] > i):
                own += "_"
            taken.add(own)
            current[name] = own
            targets.append((own, axes))
        definitions.append(Definition(targets, value, d.best))
    # An output has its own name, whatever names an argument or an earlier definition has.
    outputs = [(current.get(name, name), dtype) for name, dtype in program.outputs]
    return Program(program.name, program.arguments, outputs, definitions)


def everyAxis(program):
    every = {a for _, own, _ in program.arguments for a, _ in own or []}
    for d in program.definitions:
        every |= {a for _, own in d.targets for a in own or []}
        mapped(d.value, lambda e: every.update(e[2]) or e if e[0] == "reduce" else e)
    return every


def axesOf(program):
    """Name -> its axes, in the order that the language gives them."""
    axes = {name: [a for a, _ in own or []] for name, own, _ in program.arguments}
    every = everyAxis(program)
    for d in program.definitions:
        for name, own in d.targets:
            axes[name] = list(own) if own is not None else freeAxes(d.value, axes, every)
    return axes


def freeAxes(e, axes, every):
    read, indices = [], []

    def visit(node, bound):
        kind = node[0]
        if kind == "name":
            if node[1] in axes:
                read.extend(a for a in axes[node[1]] if a not in bound)
            elif node[1] in every and node[1] not in bound:
                indices.append(node[1])
        elif kind == "at":
            for s in node[2]:
                if s[0] == "name" and s[1] in every and s[1] not in axes:
                    if s[1] not in bound:
                        read.append(s[1])
                else:
                    visit(s, bound)
        elif kind == "call":
            for a in node[2]:
                visit(a, bound)
        elif kind == "reduce":
            visit(node[3], bound | set(node[2]))
        elif kind == "unary":
            visit(node[2], bound)
        elif kind == "binary":
            visit(node[2], bound)
            visit(node[3], bound)

    visit(e, frozenset())
    return list(dict.fromkeys(read + indices))


def renamed(program):
    """Every name and axis another one, in an order of its own."""
    names = {}

    def rename(name, prefix):
        return names.setdefault(name, f"{prefix}{(len(names) * 37 + 11) % 1009}z")

    for name, axes, _ in program.arguments:
        rename(name, "v")
        for a, _ in axes or []:
            rename(a, "a")
    for d in program.definitions:
        for name, axes in d.targets:
            for a in axes or []:
                rename(a, "a")
            rename(name, "v")
    for axis in sorted(everyAxis(program)):
        rename(axis, "a")

    def change(e):
        if e[0] in ("name", "len"):
            return (e[0], names.get(e[1], e[1]))
        if e[0] == "at":
            return ("at", names[e[1]], e[2])
        return ("reduce", e[1], [names[a] for a in e[2]], e[3]) if e[0] == "reduce" else e

    arguments = [(names[n], axes and [(names[a], x) for a, x in axes], t) for n, axes, t in program.arguments]
    definitions = [Definition([(names[n], axes and [names[a] for a in axes]) for n, axes in d.targets],
                              mapped(d.value, change), d.best and (names[d.best[0]], d.best[1]))
                   for d in program.definitions]
    return Program("program", arguments, [(names[n], t) for n, t in program.outputs], definitions)


def reordered(program, draw):
    """Definitions in another order that still defines before it reads; outputs in another order."""
    left, definitions = list(program.definitions), []
    defined = {a[0] for a in program.arguments}
    own = {n for d in left for n, _ in d.targets}
    while left:
        ready = [d for d in left if not (namesIn(d.value) & own) - defined]
        chosen = ready[draw.randrange(len(ready))]
        left.remove(chosen)
        definitions.append(chosen)
        defined |= {n for n, _ in chosen.targets}
    outputs = list(program.outputs)
    draw.shuffle(outputs)
    return Program(program.name, program.arguments, outputs, definitions)


class Splitter:
    """Names for parts: reductions and operands become definitions; a sum of terms becomes a sum of sums, and a
    number is moved into and out of each."""

    def __init__(self, program, splitsSums):
        self.program, self.splitsSums = program, splitsSums
        self.axes = axesOf(program)
        self.every = everyAxis(program)
        self.done = []

    def part(self, e):
        own = f"part{len(self.done)}_"
        free = freeAxes(e, self.axes, self.every)
        self.axes[own] = free
        self.done.append(Definition([(own, free or None)], e))
        return ("name", own)

    def split(self, e, isTop=False):
        kind = e[0]
        if kind == "call":
            e = (kind, e[1], [self.split(a) for a in e[2]])
        elif kind == "unary":
            e = (kind, e[1], self.split(e[2]))
        elif kind == "binary":
            e = (kind, e[1], self.split(e[2]), self.split(e[3]) if e[1] != "^" else e[3])
        elif kind == "reduce":
            return self.reduction(e, isTop)
        isPart = kind == "binary" and e[1] in "+-*/" and not isTop and self.isReal(e)
        return self.part(e) if isPart and freeAxes(e, self.axes, self.every) else e

    def isReal(self, e):
        """Not a number of positions, and something to read."""
        return all(self.axes.get(name) is not None for name in namesIn(e)) and bool(namesIn(e))

    def reduction(self, e, isTop):
        _, reducer, axes, term = e
        isSum = self.splitsSums and reducer == "sum" and self.isReal(term)
        if isSum and term[0] == "binary" and term[1] in "+-":
            halves = [self.reduction(("reduce", reducer, axes, t), True) for t in term[2:]]
            if all(set(axes) <= set(freeAxes(t, self.axes, self.every)) for t in term[2:]):
                e = ("binary", term[1], *halves)
                return e if isTop else self.part(e)
        term = self.split(term)
        if isSum:
            e = ("binary", "*", ("number", "2.0"),
                 self.part(("reduce", reducer, axes, ("binary", "*", ("number", "0.5"), term))))
        else:
            e = ("reduce", reducer, axes, term)
        return e if isTop else self.part(e)


def split(program, splitsSums=True):
    splitter = Splitter(program, splitsSums)
    for d in program.definitions:
        value = splitter.split(d.value, True)
        splitter.done.append(Definition(d.targets, value, d.best))
    return Program(program.name, program.arguments, program.outputs, splitter.done)


def inlined(program, longest=2000):
    """Definitions written out where they are read, as far as axes allow."""
    axes = axesOf(program)
    every = everyAxis(program)
    kept = {n for n, _ in program.outputs}
    for d in program.definitions:
        mapped(d.value, lambda e: kept.add(e[1]) or e if e[0] == "at" else e)
    bodies, definitions = {}, []
    for d in program.definitions:
        value = mapped(d.value, lambda e: bodies.get(e[1], e) if e[0] == "name" else e)
        name, own = d.targets[0]
        free = freeAxes(value, axes, every)
        isPlain = not d.best and name not in kept and set(free) == set(axes[name]) and len(shown(value)) <= longest
        if isPlain:
            bodies[name] = value
        else:
            definitions.append(Definition([(n, axes[n] or None) for n, _ in d.targets], value, d.best))
    return Program(program.name, program.arguments, program.outputs, definitions)
